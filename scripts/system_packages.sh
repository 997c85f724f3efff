#!/bin/sh
# Makes sure that the tools are there which building and testing need and pip cannot bring. As root on a Debian it installs
# what is missing; otherwise it prints the command that would. Does nothing, at once, when nothing is missing.
set -eu
here=$(dirname "$0")

needed=""
for pair in gcc:gcc g++:g++ git:git make:make; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || needed="$needed ${pair#*:}"
done
python=$("$here/python.sh") || needed="$needed python3 python3-venv python3-pip"

# The tests hold the service unit against systemd-analyze, and look at the page of lore dash in a real browser; running the
# program needs neither.
wanted=""
command -v systemd-analyze >/dev/null 2>&1 || wanted=" systemd"
command -v chromium >/dev/null 2>&1 || wanted="$wanted chromium"

[ -n "$needed$wanted" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing system packages:$needed$wanted" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -q -y --no-install-recommends $needed $wanted; } >&2 </dev/null
    python=$("$here/python.sh") || {
        echo "This system's python3 is older than 3.11. Install a newer one and run: make install PYTHON=/path/to/it" >&2
        exit 1
    }
elif [ -n "$needed" ]; then
    echo "Missing:$needed. Install them first, on Debian or Ubuntu by:" >&2
    echo "  sudo apt-get install$needed$wanted" >&2
    exit 1
else
    echo "Not found, and needed by tests:$wanted. Those of the service unit and of the page of lore dash fail without." >&2
fi
