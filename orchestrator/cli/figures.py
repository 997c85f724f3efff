"""Numbers and tables for people."""

from collections.abc import Mapping, Sequence
from typing import Any


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


def outline(report: Mapping[str, Any], indent: str = "") -> str:
    """Any report as indented lines, for what has no page of its own."""
    lines: list[str] = []
    for key, value in report.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}", outline(value, indent + "  ")] if value else [f"{indent}{key}  none"]
        elif isinstance(value, list):
            lines += outlined_list(key, value, indent)
        else:
            lines.append(f"{indent}{key}  {plain(key, value)}")
    return "\n".join(lines)


def outlined_list(key: str, values: list[Any], indent: str) -> list[str]:
    if not any(isinstance(value, Mapping) for value in values):
        return [f"{indent}{key}  {', '.join(map(str, values)) or 'none'}"]
    inner = [outline(value, indent + "    ") if isinstance(value, Mapping) else str(value) for value in values]
    return [f"{indent}{key}", *(f"{indent}  - {text.lstrip()}" for text in inner)]


def plain(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    if isinstance(value, (int, float)) and ("bytes" in key or key.endswith("_size")):
        return size(value)
    if isinstance(value, int):
        return count(value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)
