"""Numbers and tables for people."""

from collections.abc import Sequence


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
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def duration(amount: float) -> str:
    minutes, rest = divmod(round(amount), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def plural(number: int, one: str, many: str = "") -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def share(done: float, total: float) -> str:
    """The share that is done, as every page says it: whole percent, rounded down."""
    return f"{100 * done // total:.0f} %"


def work(what: str, done: float, total: float, rate: float | None, left_s: float | None) -> str:
    """`computing the codex, 43 %, 1,240 tokens/s, 12 s left`; what is not known is left out."""
    parts = [what, share(done, total) if done and total else ""]
    parts += [f"{count(rate)} tokens/s" if rate else "", f"{duration(left_s)} left" if left_s is not None else ""]
    return ", ".join(part for part in parts if part)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns parted by two blanks; those that hold only numbers stand right."""
    widths = [max(len(line[column]) for line in [heads, *rows]) for column in range(len(heads))]
    right = [bool(rows) and all(is_number(row[column]) for row in rows) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [heads, *rows]
    )


def is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()
