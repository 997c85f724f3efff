"""Rows of figures: as a table for people, as JSON for whoever compares runs. Knows no benchmark."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FAILED = "failed"  # the note of a case that gave no figures


@dataclass(frozen=True)
class Row:
    """One figure. `ratio` compares like with like within one run; `met` is None where there is no goal."""

    case: str
    figure: str
    ours: float | None
    theirs: float | None = None
    unit: str = ""
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None
    note: str = ""


def at_most(case: str, figure: str, ours: float, limit: float, unit: str) -> Row:
    return Row(case, figure, ours, unit=unit, goal=f"≤ {limit:g} {unit}".strip(), met=ours <= limit)


def share(case: str, figure: str, ours: float, theirs: float, unit: str, limit: float | None) -> Row:
    """Ours must be at most `limit` times theirs; None: there is no goal."""
    ratio = ours / theirs
    if limit is None:
        return Row(case, figure, ours, theirs, unit, ratio)
    return Row(case, figure, ours, theirs, unit, ratio, f"≤ {limit:g} ×", ratio <= limit)


def sooner(case: str, figure: str, ours: float, theirs: float, times: float) -> Row:
    """Ours must take at most a `times`-th of their time. Seconds."""
    ratio = theirs / ours
    return Row(case, figure, ours, theirs, "s", ratio, f"≥ {times:g} × sooner", ratio >= times)


def rate(case: str, figure: str, ours: float, theirs: float, least: float) -> Row:
    """Tokens a second; ours must be at least `least` times theirs."""
    ratio = ours / theirs
    return Row(case, figure, ours, theirs, "tokens/s", ratio, f"≥ {least:g} ×", ratio >= least)


def table(rows: Sequence[Row]) -> str:
    head = ("case", "figure", "ours", "the peer", "ratio", "goal", "")
    body = [
        (
            row.case,
            row.figure,
            amount(row.ours, row.unit),
            amount(row.theirs, row.unit),
            number(row.ratio),
            row.goal,
            verdict(row),
        )
        for row in rows
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *body)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def amount(value: float | None, unit: str) -> str:
    return f"{number(value)} {unit}".strip() if value is not None else ""


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def verdict(row: Row) -> str:
    return row.note or {True: "met", False: "missed", None: ""}[row.met]


def save(path: Path, machine: dict[str, Any], rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
