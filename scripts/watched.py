"""Runs a program that takes minutes and says meanwhile how far it is: on a terminal in one line that rewrites itself,
elsewhere in a line each half minute. Standard library only, because it runs before anything is installed.
"""

import contextlib
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

EVERY_S = {True: 1.0, False: 30.0}  # between two lines, on a terminal and elsewhere
SHOWN = 20  # last lines of what failed
STEP = re.compile(r"\[\s*(\d+)/(\d+)\]|\[\s*(\d+)%\]")  # as ninja and make count
MET = re.compile(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
REQUIREMENT = re.compile(r"^[\w.-]+==", re.MULTILINE)
Far = Callable[[str], str]


def run(
    command: Sequence[str | Path],
    what: str,
    far: Far,
    *,
    sink: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
    every_s: float | None = None,
) -> int:
    """The program's exit status. `far` makes words of a line of its output, '' where it says nothing new. The output goes
    to `sink`; without one its end is shown where the program fails."""
    seen = Seen(far, sink)
    began, process = time.monotonic(), start(command, environment)
    reader = threading.Thread(target=seen.read, args=(process.stdout,))
    reader.start()
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EVERY_S[sys.stderr.isatty()] if every_s is None else every_s)
                break
            show(", ".join(filter(None, (what, seen.far, duration(time.monotonic() - began)))))
    finally:
        process.kill()  # a Ctrl-C ends both
        reader.join()
        clear()
    if process.returncode and sink is None:
        sys.stderr.write("".join(seen.last))
    return process.returncode


class Seen:
    """What a program has said until now."""

    def __init__(self, far: Far, sink: TextIO | None) -> None:
        self.far = ""
        self.last: list[str] = []
        self._words = far
        self._sink = sink

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.far = self._words(line) or self.far
            self.last = [*self.last, line][-SHOWN:]
            if self._sink is not None:
                self._sink.write(line)


def start(command: Sequence[str | Path], environment: Mapping[str, str] | None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def show(line: str) -> None:
    if sys.stderr.isatty():
        line = f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}"
    print(line, end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


def clear() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


# ---- what programs say of how far they are ---------------------------------------------------------------------------


def compiled(line: str) -> str:
    """`43 %` of a line of ninja or make."""
    found = STEP.search(line)
    if not found:
        return ""
    done, total, percent = found.groups()
    return f"{percent or 100 * int(done) // int(total)} %"


class Installed:
    """Counts the packages that pip has come to. `locks`: the files that pin them; those for other systems are not met, so
    that the last one may be reached before their number is."""

    def __init__(self, locks: Iterable[Path]) -> None:
        self.met = 0
        self.total = len({name for lock in locks for name in REQUIREMENT.findall(lock.read_text())})

    def __call__(self, line: str) -> str:
        if met := MET.match(line):
            self.met += 1
            return f"{self.met} of {self.total} packages ({met[1]})"
        return "writing them into .venv" if line.startswith("Installing collected packages") else ""
