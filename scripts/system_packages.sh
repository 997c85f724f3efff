#!/bin/sh
# Makes sure that the tools are there which building needs and pip cannot bring, and with the word `tests` those of the tests
# too. As root on a Debian it installs what is missing; otherwise it prints the command that would. Does nothing, at once,
# when nothing is missing.
set -eu
here=$(dirname "$0")

needed=""
for pair in gcc:gcc g++:g++ git:git make:make; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || needed="$needed ${pair#*:}"
done
python=$("$here/python.sh") || needed="$needed python3 python3-venv python3-pip"

# The tests hold the service unit against systemd-analyze; running the program does not need it.
wanted=""
command -v systemd-analyze >/dev/null 2>&1 || wanted=" systemd"

# The tests look at the page of lore dash in a real browser: 113 MB to fetch and 414 MB on the disk, for nobody else.
browser=""
[ "${1:-}" != tests ] || command -v chromium >/dev/null 2>&1 || browser=chromium

[ -n "$needed$wanted$browser" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing system packages:$needed$wanted $browser" >&2
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get install -q -y --no-install-recommends"
    { apt-get update -q && { [ -z "$needed$wanted" ] || $install $needed $wanted; }; } >&2 </dev/null
    # By itself: a distribution without that package still builds and runs the program.
    [ -z "$browser" ] || $install $browser >&2 </dev/null || echo "Not installed: $browser. The tests of lore dash fail." >&2
    python=$("$here/python.sh") || {
        echo "This system's python3 is older than 3.11. Install a newer one and run: make install PYTHON=/path/to/it" >&2
        exit 1
    }
elif [ -n "$needed" ]; then
    echo "Missing:$needed. Install them first, on Debian or Ubuntu by:" >&2
    echo "  sudo apt-get install$needed$wanted $browser" >&2
    exit 1
else
    [ -z "$wanted" ] || echo "Not found: systemd-analyze (package systemd). The tests of the service unit need it." >&2
    [ -z "$browser" ] || echo "Not found: chromium (package chromium). The tests of lore dash need it." >&2
fi
