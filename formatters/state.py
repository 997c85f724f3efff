"""Writes State: the earlier turns with what came with them, then what came with the question being asked.

A turn is written the same whether it is running or over, so that a closed turn keeps its prefix: its artifacts first,
ordered by what they are, then its words.

    key within a turn   3/ amendments   4/ attachments   5/ evidence   6/ injected by plug-ins   9 the words
"""

from typing import TYPE_CHECKING

from formatters.blocks import BlockKind, Item
from formatters.codex import amendment_item
from formatters.context import Artifacts, AttachmentView, Evidence, TurnView
from formatters.text import counted, passage

if TYPE_CHECKING:
    from formatters.formatter import Turning

WORDS = "9"


class StateWriter:
    name = "state"
    block = BlockKind.STATE

    def write(self, ctx: "Turning", /) -> tuple[Item, ...]:
        state = ctx.deps.state
        earlier = [item for place, turn in enumerate(state.turns) for item in _turn(place, turn)]
        return (*earlier, *_artifacts(len(state.turns), state))


def _turn(place: int, turn: TurnView) -> list[Item]:
    said = Item(WORDS, turn.text, turn.role, turn.role, place, "working_memory", verbatim=True)
    return [*_artifacts(place, turn), said]


def _artifacts(turn: int, came: Artifacts) -> list[Item]:
    amended = [amendment_item(amendment, key="3", turn=turn) for amendment in came.amendments]
    return [*amended, *_attachments(turn, came.attachments), *_evidence(turn, came.evidence)]


def _attachments(turn: int, files: tuple[AttachmentView, ...]) -> list[Item]:
    total = len(files)
    return [
        Item(
            f"4/{place:04d}",
            passage(f"attachment {place} of {total}: {file.name}", file.text),
            file.name,
            turn=turn,
            node="attachments",
            pinned=True,
            verbatim=True,
        )
        for place, file in enumerate(files, start=1)
    ]


def _evidence(turn: int, passages: tuple[Evidence, ...]) -> list[Item]:
    if not passages:
        return []
    passages = tuple(dict.fromkeys(passages))  # two searches may have found the same one
    told = f"{counted(len(passages), 'passage', 'passages')} of the codebase, found for this question:\n\n"
    return [Item("5", told, "archive", turn=turn, node="evidence"), *(_found(turn, one) for one in passages)]


def _found(turn: int, found: Evidence) -> Item:
    where = f"{found.path}:{found.start}-{found.end}"
    heading = f"{where} {found.symbol}" if found.symbol else where
    # By place in the code, not by rank: the same passages for another question are then the same items in the same order.
    key = f"5/{found.path}:{found.start:08d}-{found.end:08d} {found.symbol}"
    return Item(key, passage(heading, found.text), where, turn=turn, node="evidence", verbatim=True)
