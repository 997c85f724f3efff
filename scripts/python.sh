#!/bin/sh
# Prints a Python that can make our environment: 3.11 or newer, with venv and pip's installer. PYTHON=... overrides.
# The versions that the lock file is tried with come first. Exit 1 and silence when there is none.
for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python3.14}; do
    found=$(command -v "$candidate" 2>/dev/null) || continue
    if "$found" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        echo "$found"
        exit 0
    fi
done
exit 1
