"""Where words go: results to stdout, everything else to stderr; colour and progress only on a terminal."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from orchestrator.wire.sockets import runtime_folder

# Control characters in a model's or a file's text must not drive the terminal; tab and newline may. Nor may marks of
# direction, which show a line in another order than it has.
DRIVING = [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
HARMLESS = {code: "�" for code in DRIVING if code not in (9, 10)}
LEFT = 128 + 13  # as a shell shows SIGPIPE
CLEAR_LINE = "\r\x1b[K"


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def safe(text: str, stream: TextIO) -> str:
    return text.translate(HARMLESS) if is_terminal(stream) else text


def result(text: str, end: str = "\n", lead: str = "") -> None:
    """`lead` stands before the text, in bold on a terminal."""
    written(bold(safe(lead, sys.stdout), sys.stdout) + safe(text, sys.stdout) + end)


def result_json(value: Any) -> None:
    written(json.dumps(value) + "\n")


def output(value: Any, page: Callable[[Any], str], *, as_json: bool) -> None:
    """A command's result: JSON for programs, a page for people."""
    result_json(value) if as_json else result(page(value))


def written(text: str) -> None:
    """Who reads us may leave: then we end as `cat` does, without a word."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not fail once more at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(LEFT)


def note(text: str) -> None:
    clear_progress()
    sys.stderr.write(faint(safe(text, sys.stderr), sys.stderr) + "\n")
    sys.stderr.flush()


def progress(text: str) -> None:
    """One line that rewrites itself; nothing where nobody watches."""
    if is_terminal(sys.stderr):
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0: a terminal that does not know
        sys.stderr.write(CLEAR_LINE + safe(text, sys.stderr)[: columns - 1])
        sys.stderr.flush()


def clear_progress() -> None:
    if is_terminal(sys.stderr):
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.flush()


def coloured(stream: TextIO) -> bool:
    """NO_COLOR, whatever its value, as https://no-color.org has it."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def faint(text: str, stream: TextIO) -> str:
    return f"\x1b[2m{text}\x1b[0m" if coloured(stream) else text


def bold(text: str, stream: TextIO) -> str:
    return f"\x1b[1m{text}\x1b[0m" if text and coloured(stream) else text


def first_time(text: str) -> bool:
    """Whether this text is shown for the first time in this terminal, and marks it as shown.

    The mark is a file in the user's runtime folder, under the number of the terminal's session; the folder is gone when
    the user logs out. Without that folder or a terminal every time is the first.
    """
    if not is_terminal(sys.stderr):
        return True
    mark = runtime_folder(os.environ) / f"shown-{os.getsid(0)}"
    try:
        known = mark.read_text().splitlines() if mark.exists() else []
        if text in known:
            return False
        mark.write_text("\n".join([*known, text]) + "\n")
    except (OSError, UnicodeError):
        return True
    return True
