"""What a codex was before a load, so that one which is cancelled leaves it as it was. For a worker thread.

What was read of its files stays in the catalog, unseen: the next load goes on from there.
"""

import logging
import time
from dataclasses import dataclass, field, replace

from codex.catalog.generations import Codex
from codex.errors import CodexError, UnknownCodex
from codex.library import Library
from orchestrator.codices.ledger import Ledger, Wishes
from orchestrator.codices.standing import Standing

log = logging.getLogger("lorekeep.shelf")


@dataclass(frozen=True)
class Before:
    """`codex` as the catalog had it, with the generation that stood as its newest; None: it was not known. `began`: when
    the load did."""

    name: str
    codex: Codex | None
    standing: Standing | None
    wishes: Wishes
    hot: tuple[str, ...] | None
    began: float = field(default_factory=time.time)

    @property
    def number(self) -> int | None:
        """The generation that stood."""
        return self.codex.newest if self.codex else None


def before(library: Library, ledger: Ledger, name: str, standing: Standing | None) -> Before:
    """`standing`: the codex as it stands, None when it was not raised. Raises CodexError."""
    try:
        codex = library.codex(name)
    except UnknownCodex:
        return Before(name, None, None, Wishes(), None)
    if standing is not None:
        codex = replace(codex, newest=standing.generation.number)
    hot = ledger.frozen(name, codex.newest) if codex.newest is not None else None
    return Before(name, codex, standing, ledger.wishes(name), hot)


def take_back(library: Library, ledger: Ledger, was: Before) -> None:
    """Raises CodexError. One that was not known stays, if it got so far, as one that was never loaded to its end."""
    found = was.codex or next((replace(one, newest=None) for one in library.codices() if one.name == was.name), None)
    if found is None:
        return
    library.take_back(found)
    ledger.rewish(was.name, was.wishes)
    if was.number is not None and was.hot is not None:
        ledger.freeze(was.name, was.number, was.hot)


def note_compared(ledger: Ledger, was: Before) -> None:
    """A load has ended well: from when it began on, changes on disk are seen by whoever follows them."""
    try:
        ledger.compared(was.name, was.began)
    except CodexError as fault:
        log.warning("when %s was loaded was not kept: %s", was.name, fault)


def compared_at(ledger: Ledger, name: str) -> float | None:
    """When the last load that ended well began, in seconds since 1970; None where that is not known."""
    try:
        return ledger.compared_at(name)
    except CodexError:
        return None
