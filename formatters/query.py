"""Writes Query: the user's own words and nothing of ours, then what the running turn has appended since.

The question is the last content of a prompt, to the letter: an answer continues it.
"""

from typing import TYPE_CHECKING

from formatters.blocks import BlockKind, Item, Role

if TYPE_CHECKING:
    from formatters.formatter import Turning


class QueryWriter:
    name = "query"
    block = BlockKind.QUERY

    def write(self, ctx: "Turning", /) -> tuple[Item, ...]:
        asked = Item("1", ctx.deps.query, "user", Role.USER, node="query", pinned=True, verbatim=True)
        since = (
            Item("1", turn.text, turn.role, turn.role, place, "act_history", verbatim=True)
            for place, turn in enumerate(ctx.deps.running, start=1)
        )
        return (asked, *since)
