"""What a terminal gets that a pipe does not: progress and colour; and what it must not get."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from support.waiting import SOON

LORE = Path(sys.executable).parent / "lore"


def on_a_terminal(folder, *arguments, output=None, **environment):
    """Everything that `lore` writes to a terminal, and its exit status. `output`: a file for its results instead."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [LORE, *arguments],
        env={**os.environ, "LORE_SOCKET": str(folder / "lore.sock"), "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL,
        stdout=output or theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:
        pass  # how a terminal tells that the other side is closed
    os.close(ours)
    return written.decode(), process.wait(SOON)


def test_on_a_terminal_waiting_is_shown_and_colour_unless_it_is_not_wanted(lorekeep, folder):
    shown, status = on_a_terminal(folder, "ask", "hello")
    assert status == 0
    assert "computing the codex, 50 %" in shown
    assert "\x1b[2m" in shown
    assert "\x1b[2m" not in on_a_terminal(folder, "ask", "hello", NO_COLOR="1")[0]


def test_a_wait_for_json_is_shown_too_where_somebody_watches(lorekeep, folder):
    with (folder / "answer.json").open("w") as output:
        shown, status = on_a_terminal(folder, "ask", "hello", "--json", output=output)
    assert status == 0
    assert "computing the codex, 50 %" in shown
    assert json.loads((folder / "answer.json").read_text())["answer"] == "hello "


def test_what_the_model_is_is_told_once_in_a_terminal_and_afterwards_named(lorekeep, folder):
    (folder / "lorekeep").mkdir()
    first, again = (on_a_terminal(folder, "ask", "hello", XDG_RUNTIME_DIR=str(folder))[0] for _ in range(2))
    assert "builtin:quoter only quotes" in first
    assert "only quotes" not in again
    assert "10 computed\r\nbuiltin:quoter · cites" in again  # a line of 80 columns is folded between its parts
    homeless = on_a_terminal(folder, "ask", "hello", XDG_RUNTIME_DIR=str(folder / "none"))[0]
    assert "only quotes" in homeless  # where nothing can be marked


def test_an_answer_cannot_drive_the_terminal(lorekeep, folder):
    shown, _ = on_a_terminal(folder, "ask", "evil\x1b]0;title\x07", NO_COLOR="1")
    assert "\x1b]0;" not in shown
    assert "evil" in shown
