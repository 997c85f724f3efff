"""`lore serve` on a terminal: all that it writes is what a person needs, and nothing of any library."""

import os
import pty
import re
import select
import signal
import subprocess
import time

from private_daemon import LORE
from support.waiting import SOON

QUESTION = "What is here?"


def read_until(terminal: int, word: bytes, timeout_s: float) -> bytes:
    """What comes until `word`, its line's end included; all that came where it does not come in time."""
    text, end = b"", time.monotonic() + timeout_s
    while not re.search(re.escape(word) + rb"[^\n]*\n", text) and (left := end - time.monotonic()) > 0:
        if terminal in select.select([terminal], [], [], left)[0]:
            try:
                text += os.read(terminal, 65536)
            except OSError:  # its other end is closed
                break
    return text


def test_it_says_at_once_where_and_which_model_then_that_it_is_ready_and_nothing_else(new_daemon, tmp_path):
    nobody = new_daemon()  # never started: its folders and its socket alone
    code = tmp_path / "demo"
    code.mkdir()
    (code / "run.py").write_text("def run():\n    return 'forever and ever and forever and ever'\n")
    here, there = pty.openpty()
    command = [str(LORE), "serve", "--socket", str(nobody.socket), "--model", "builtin:quoter"]
    # As a person has it: pydantic-ai prints no banner in a test run.
    environment = {name: value for name, value in nobody.environment.items() if name not in ("PYTEST_VERSION", "CI")}
    environment |= {"TERM": "xterm", "AI_AGENT": "some-agent"}
    serving = subprocess.Popen(command, env=environment, stdin=there, stdout=there, stderr=there)
    os.close(there)
    try:
        said = read_until(here, b"ready", 60)
        assert nobody.lore("load", code, "--wait", "--no-watch").returncode == 0
        assert nobody.lore("ask", QUESTION, "-c", "demo", "--max-tokens", "8").returncode == 0
        serving.send_signal(signal.SIGINT)
        said += read_until(here, b"nothing more", SOON)
    finally:
        serving.kill()
        serving.wait()
        os.close(here)
    assert said.decode().splitlines() == [
        f"lore: starting at {nobody.socket}, with builtin:quoter",
        'lore: ready. In another terminal: lore load DIRECTORY, then lore ask "QUESTION"; Ctrl-C ends it',
    ]
