"""After a start: what was loaded before is raised again, one codex after the other, in order of last use."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from codex.library import Library
from orchestrator.codices.ledger import Ledger
from orchestrator.codices.standing import Standing

log = logging.getLogger("lorekeep.shelf")


class Raised(Protocol):
    library: Library
    ledger: Ledger

    def seen(self, name: str) -> Standing | None: ...

    async def raise_codex(self, name: str) -> Standing: ...


def codices_of(library: Library, ledger: Ledger) -> list[str]:
    """Names of what can be raised, asked about last first; what is noted of others is forgotten. Raises CodexError."""
    noted = ledger.noted()  # first: what is loaded meanwhile is in the catalog before anything is noted of it
    codices = library.codices()
    for name in noted - {one.name for one in codices}:
        ledger.forget(name)
    names = [one.name for one in codices if one.newest is not None]
    return sorted(names, key=ledger.used, reverse=True)


async def raise_all(shelf: Raised, told: Callable[[int, int], None]) -> None:
    """`told` hears how many are done, of how many."""
    names = await asyncio.to_thread(codices_of, shelf.library, shelf.ledger)
    for done, name in enumerate(names):
        told(done, len(names))
        if shelf.seen(name) is None:
            try:
                await shelf.raise_codex(name)
            except Exception as error:  # noqa: BLE001 - one damaged codex must not keep the others down
                log.warning("codex %s could not be raised: %s", name, error)
    told(len(names), len(names))
