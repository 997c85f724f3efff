"""Writes Codex: every piece under a line with its path, whole and to the letter; then the log of amendments.

What changes while the files do not is kept out: number of generation, revision and branch would break the prefix of
every conversation with each commit, and a new generation could not share the beginning of the old one.
"""

from typing import TYPE_CHECKING

from formatters.blocks import BlockKind, Item
from formatters.context import AmendmentView, CodexPiece, CodexView
from formatters.memo import Memo
from formatters.text import passage, section

if TYPE_CHECKING:
    from formatters.formatter import Turning

_INTRODUCTION = (
    "The files of this codebase follow, each under a line with its path. "
    "Answer from them and cite them as path:line. "
    "Where an amendment stands further below, it replaces what the file said before.\n"
)


class CodexWriter:
    name = "codex"
    block = BlockKind.CODEX

    def __init__(self) -> None:
        # Two memos: an amendment makes a new view, which still holds the same pieces.
        self._pieces = Memo(_pieces)
        self._items = Memo(self._write)

    def write(self, ctx: "Turning", /) -> tuple[Item, ...]:
        codex = ctx.deps.codex
        return () if codex is None else self._items(codex)

    def _write(self, codex: CodexView) -> tuple[Item, ...]:
        amended = (amendment_item(amendment, key="7") for amendment in codex.amendments)
        return (_heading(codex.name), *self._pieces(codex.pieces), *amended)


def amendment_item(amendment: AmendmentView, *, key: str, turn: int = 0) -> Item:
    """An entry of the change log, ordered by its number: in the Codex of a new conversation, in State of a running one."""
    text = passage(f"amendment {amendment.number}: {amendment.path}", amendment.text)
    return Item(f"{key}/{amendment.number:08d}", text, amendment.path, turn=turn, node="codex", verbatim=True)


def _heading(name: str) -> Item:
    return Item("1", section(f"Codex {name}", _INTRODUCTION), name, node="codex", pinned=True)


def _pieces(pieces: tuple[CodexPiece, ...]) -> tuple[Item, ...]:
    return tuple(_piece(place, piece) for place, piece in enumerate(pieces))


def _piece(place: int, piece: CodexPiece) -> Item:
    heading = piece.path if piece.kind == "full" else f"{piece.path} ({piece.kind})"
    # The key is the place in the generation's frozen order, not the path: files that change often stand last.
    return Item(f"3/{place:08d}", passage(heading, piece.text), piece.path, node="codex", verbatim=True)
