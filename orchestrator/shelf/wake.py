"""After a start: what was loaded before is raised again, one codex after the other."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from codex.library import Library
from orchestrator.shelf.standing import Standing

log = logging.getLogger("lorekeep.shelf")


class Raised(Protocol):
    library: Library

    def seen(self, name: str) -> Standing | None: ...

    async def raise_codex(self, name: str) -> Standing: ...


async def raise_all(shelf: Raised, told: Callable[[int, int], None]) -> None:
    """`told` hears how many are done, of how many."""
    names = [one.name for one in await asyncio.to_thread(shelf.library.codices) if one.newest is not None]
    for done, name in enumerate(names):
        told(done, len(names))
        if shelf.seen(name) is None:
            try:
                await shelf.raise_codex(name)
            except Exception as error:  # noqa: BLE001 - one damaged codex must not keep the others down
                log.warning("codex %s could not be raised: %s", name, error)
    told(len(names), len(names))
