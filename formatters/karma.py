"""Writes Karma: what is remembered, under its headings, in the order it was pinned in."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from formatters.blocks import BlockKind, Item
from formatters.context import KarmaEntry
from formatters.text import ended

if TYPE_CHECKING:
    from formatters.formatter import Turning

HEADINGS = (
    "Active Constraints",
    "Current Approach",
    "Current Focus",
    "Relevant Past Decisions",
    "Known Information",
    "Procedure",
    "Past Experience",
    "Note",
)
"""The headings in their order; any other heading stands behind them."""


class KarmaWriter:
    name = "karma"
    block = BlockKind.KARMA

    def write(self, ctx: "Turning", /) -> tuple[Item, ...]:
        entries = sorted(ctx.deps.karma.entries, key=lambda entry: (_place(entry.heading), entry.heading))
        groups = groupby(entries, key=lambda entry: entry.heading)
        return tuple(item for heading, group in groups for item in _section(heading, group))


def _section(heading: str, entries: Iterable[KarmaEntry]) -> Iterator[Item]:
    """The heading and each entry are items of their own, so that one memory can be cut without the others."""
    key = f"1/{_place(heading):02d}/{heading}"
    yield Item(key, f"# {heading}\n", "karma", node="karma")
    for place, entry in enumerate(entries):
        yield Item(
            f"{key}/{place:04d}",
            ended(f"- {entry.text}"),
            entry.source or "karma",
            node=entry.node or "karma",
            pinned=entry.pinned,
            verbatim=entry.verbatim,
        )


def _place(heading: str) -> int:
    return HEADINGS.index(heading) if heading in HEADINGS else len(HEADINGS)
