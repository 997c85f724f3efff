#!/bin/bash
# Runs the tests that lean on libraries with the lowest versions that pyproject.toml allows; the lock holds the highest tried.
# The compiled llama.cpp wheel is the cached one. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
test -x $uv || .venv/bin/python -m pip install --quiet uv
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
$uv pip compile pyproject.toml --group dev --system-certs --no-header --quiet --resolution lowest-direct |
  grep -vE '^(llama-cpp-python| *#)' > "$folder/lowest.txt"
$uv venv --quiet --python .venv/bin/python "$folder/venv"
export VIRTUAL_ENV=$folder/venv
$uv pip install --quiet --system-certs -r "$folder/lowest.txt"
$uv pip install --quiet --no-deps "$(.venv/bin/python scripts/llama_wheel.py)"
$uv pip install --quiet --system-certs --no-deps .
"$folder/venv/bin/python" -m pytest --quiet --basetemp="$folder/pytest" \
  tests/unit/{codex,formatters,governor,settings,model,prompt,answering,api} tests/unit/cli/test_commands.py \
  tests/unit/engine/{client,llama} tests/contracts tests/stories/test_openai_client.py
