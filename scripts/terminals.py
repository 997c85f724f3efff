"""A real terminal with a command in it: what a person types and sees."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SOON = 60.0  # seconds: so long that a crowded machine fails nothing
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>]|\r")
PASTES = b"\x1b[?2004h"  # the line editor asks for pasted text to be marked, in the moment that it begins to read


class Terminal:
    """`said` is everything that the command wrote, as it came."""

    def __init__(self, ours: int, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.said = b""
        self._ours = ours
        self._read = 0  # of `said`, by `until`

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, words: str, timeout_s: float = SOON) -> str:
        """What came since the last time, up to these words, without sequences. Fails where they do not come."""
        end = time.monotonic() + timeout_s
        while words not in (text := plain(self.said[self._read :])):
            left = end - time.monotonic()
            assert left > 0 and self._more(left), f"{words!r} did not come; there is: {text!r}"
        self._read = self._behind(words)
        return text

    def _behind(self, words: str) -> int:
        """Where `said` goes on behind these words, which may have sequences among them."""
        found = re.compile(rb"(?:\x1b\[[0-9;?]*[A-Za-z]|\r)*".join(re.escape(one.encode()) for one in words))
        match = found.search(self.said, self._read)
        return match.end() if match else len(self.said)

    def prompt(self) -> None:
        """Returns when a line can be typed: what came before it is in a terminal that still buffers lines."""
        while PASTES not in self.said[self._read :]:
            assert self._more(SOON), f"no prompt came; there is: {plain(self.said[self._read :])!r}"
        self._read = self.said.index(PASTES, self._read) + len(PASTES)

    def rest(self) -> str:
        """All that comes until the command ends."""
        while self._more(SOON):
            pass
        self.process.wait(SOON)
        return plain(self.said[self._read :])

    def _more(self, timeout_s: float) -> bool:
        if not select.select([self._ours], [], [], timeout_s)[0]:
            return False
        try:
            came = os.read(self._ours, 65536)
        except OSError:  # how a terminal tells that the other side is closed
            return False
        self.said += came
        return bool(came)


def plain(raw: bytes) -> str:
    return SEQUENCE.sub("", raw.decode(errors="replace"))


@contextmanager
def terminal(
    *command: str | Path, environment: Mapping[str, str], cwd: Path | None = None, columns: int = 80, rows: int = 24
) -> Iterator[Terminal]:
    """A command whose terminal this is: Ctrl-C reaches it as it would reach it from a keyboard."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [*map(str, command)],
        env={**os.environ, "TERM": "xterm-256color", **environment},
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
