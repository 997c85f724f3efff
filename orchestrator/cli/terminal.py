"""Where words go, results to stdout and everything else to stderr, and how numbers and tables are written.

Colour and progress only on a terminal.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from orchestrator.wire.places import PHASES, runtime_folder

Report = Mapping[str, Any]  # what the daemon sent, or a part of it
# Control characters in a model's or a file's text must not drive the terminal; tab and newline may. Nor may marks of
# direction, which show a line in another order than it has.
DRIVING = [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
HARMLESS = {code: "�" for code in DRIVING if code not in (9, 10)}
VISIBLE = {**HARMLESS, 13: None}  # a carriage return is left out, as it is at the end of lines of some files
NO_CURSOR = ("", "dumb", "unknown")  # values of TERM that promise no cursor
NO_LINKS = (*NO_CURSOR, "linux")  # the kernel's console has no links
Link = Callable[[str], str | None]  # the URL of `path:line`; None: it is no place that is known
GAP = re.compile(r"(?<=\S) {2,}(?=\S)")  # between two columns of a page
NUMBERS = re.compile(r"(?<!\S)\d[\d,.]*k?(?= )")  # words of a sentence that are a number
LEAST_COLUMN = 20  # characters of the last one, so that a line goes on below it
CLEAR_LINE = "\r\x1b[K"


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that it is; None where it is none."""
    if not is_terminal(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80  # 0: a terminal that does not know
    except OSError:
        return 80


def safe(text: str, stream: TextIO) -> str:
    return text.translate(HARMLESS) if is_terminal(stream) else text


def result(text: str, end: str = "\n", lead: str = "") -> None:
    """`lead` comes before the text, in bold on a terminal."""
    written(bold(safe(lead, sys.stdout), sys.stdout) + safe(text, sys.stdout) + end)


def day(at: float) -> str:
    return moment(at).partition(" ")[0]


def moment(at: float) -> str:
    """Seconds since 1970 as the clocks here show them."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def result_json(value: Any) -> None:
    written(json.dumps(value) + "\n")


def output(value: Any, page: Callable[[Any], str], *, as_json: bool, empty: str = "", as_it_is: bool = False) -> None:
    """A command's result: JSON for programs, a page for people. `empty` is said where the page has nothing; `as_it_is`: the
    page has text that somebody wrote, whose lines stay."""
    if as_json:
        result_json(value)
        return
    text = page(value)
    if not text and empty:
        note(empty)
    else:
        result(text) if as_it_is else result_page(text)


def result_page(text: str, lead: str = "") -> None:
    """Words of ours, with no word broken at the terminal's edge."""
    columns = width_of(sys.stdout)
    result(laid(lead + text, columns)[len(lead) :], lead=lead)


def done(value: Any, words: str, *, as_json: bool) -> None:
    """What a command did that has no page: JSON for programs, a note for people."""
    result_json(value) if as_json else note(words)


def written(text: str) -> None:
    """Raises OSError, which ends the command: `commands.run` says how."""
    sys.stdout.write(text)
    sys.stdout.flush()


def discard(stream: TextIO) -> None:
    """What is still buffered must not fail once more at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def to_stderr(text: str) -> None:
    """That nobody can read it changes nothing of what a command does."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def note(text: str, linked: Callable[[str], str] | None = None) -> None:
    """`linked` adds links to the text, once it can drive no terminal."""
    clear_progress()
    harmless = safe(text, sys.stderr)
    to_stderr(faint(linked(harmless) if linked else harmless, sys.stderr) + "\n")


def folded(text: str, columns: int | None) -> str:
    """On as many lines as its parts need, none of which is broken; parts have ` · ` between them."""
    lines = [""]
    for part in text.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        lines[-1:] = [longer] if columns is None or not lines[-1] or len(longer) <= columns else [lines[-1], part]
    return "\n".join(lines)


def laid(text: str, columns: int | None) -> str:
    """A line that has more than so many columns goes on below its last part; None: as it is."""
    return text if columns is None else "\n".join(laid_line(line, columns) for line in text.split("\n"))


def laid_line(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    indentation = len(line) - len(line.lstrip(" "))
    last = max((gap.end() for gap in GAP.finditer(line)), default=indentation)
    below = last if columns - last >= LEAST_COLUMN else min(indentation + 2, columns // 2)
    from textwrap import TextWrapper

    page = TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
    page.initial_indent, page.subsequent_indent = " " * min(indentation, columns // 2), " " * below
    return page.fill(line[indentation:])


def progress(text: str) -> None:
    """One line that rewrites itself; nothing where nobody watches."""
    if is_terminal(sys.stderr):
        to_stderr(CLEAR_LINE + safe(text, sys.stderr)[: (width_of(sys.stderr) or 80) - 1])


def clear_progress() -> None:
    if is_terminal(sys.stderr):
        to_stderr(CLEAR_LINE)


def coloured(stream: TextIO) -> bool:
    """NO_COLOR, whatever its value, as https://no-color.org has it."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_link(environ: Mapping[str, str]) -> bool:
    """NO_COLOR means no link either: who sets it wants characters alone."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in NO_LINKS


def faint(text: str, stream: TextIO) -> str:
    return f"\x1b[2m{text}\x1b[0m" if coloured(stream) else text


def bold(text: str, stream: TextIO) -> str:
    return f"\x1b[1m{text}\x1b[0m" if text and coloured(stream) else text


def first_time(text: str) -> bool:
    """Whether this text is shown for the first time in this terminal, and marks it as shown. One that differs in the
    numbers between its words was shown: what is free changes by the second.

    The mark is a file in the user's runtime folder, under the number of the terminal's session; the folder is gone when
    the user logs out. Without that folder or a terminal every time is the first.
    """
    if not is_terminal(sys.stderr):
        return True
    mark = runtime_folder(os.environ) / f"shown-{os.getsid(0)}"
    try:
        known = mark.read_text().splitlines() if mark.exists() else []
        if (words := NUMBERS.sub("#", text)) in known:
            return False
        mark.write_text("\n".join([*known, words]) + "\n")
    except (OSError, UnicodeError):
        return True
    return True


# ---- numbers, facts and tables; pure ---------------------------------------------------------------------------------


def count(number: float) -> str:
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def seconds(milliseconds: float) -> str:
    if 0 < milliseconds < 1:
        return "under 1 ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def kv_loss(loss: Report) -> str:
    """`KL 0.0012 mean, 0.0130 99th percentile, 0.4 % other tokens (2,048 tokens of demo)`."""
    figures = (
        f"KL {loss['mean']:.4f} mean, {loss['worst']:.4f} 99th percentile, {100 * loss['changed']:.1f} % other tokens"
    )
    return f"{figures} ({count(loss['tokens'])} tokens of {loss['codex']})"


def sooner(prompt: Report) -> str:
    """` (1,800 of them sooner than reading)`: what is computed although it is on disk; '' where nothing is."""
    return f" ({count(prompt['left'])} of them sooner than reading)" if prompt.get("left") else ""


def duration(amount: float) -> str:
    minutes, rest = divmod(round(amount), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def plural(number: int, one: str, many: str = "") -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def listed(*parts: str) -> str:
    """With commas between those that say something."""
    return ", ".join(filter(None, parts))


def work(what: str, done: float, total: float, rate: float | None, left_s: float | None) -> str:
    """`computing the codex, 43 %, 1,240 tokens/s, 12 s left`; what is not known is left out."""
    return listed(
        what,
        f"{100 * done // total:.0f} %" if done and total else "",
        f"{count(rate)} tokens/s" if rate else "",
        f"{duration(left_s)} left" if left_s is not None else "",
    )


def step(event: Report) -> str:
    """`reading files 120/400 · 55/s · 5 s left`."""
    done, total = event.get("done") or 0, event.get("total") or 0
    phase: str = PHASES.get(event["phase"]) or event["phase"]
    far = f" {count(done)}" + (f"/{count(total)}" if total else "")
    parts = [phase + (far if done or total else "")]
    if event.get("rate"):
        parts.append(f"{count(event['rate'])}/s")
    if event.get("eta_s") is not None:
        parts.append(f"{duration(event['eta_s'])} left")
    return " · ".join(parts)


def facts(rows: Iterable[tuple[str, str]], width: int = 11) -> str:
    """A line of name and text for each row that has a text; a row without a name adds to the one above it."""
    return "\n".join(f"{name:<{width - 1}} {text}" for name, text in rows if text)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns parted by two blanks, numbers flush right; '' without rows. Each row is one line, whatever is in a name."""
    if not rows:
        return ""
    rows = [[cell.replace("\n", r"\n") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    right = [all(is_number(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [heads, *rows]
    )


def is_number(text: str) -> bool:
    return text.removesuffix(" %").replace(",", "").replace(".", "", 1).lstrip("-").isdigit()
