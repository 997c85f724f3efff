"""Faults of the library as users read them; an archive that was found damaged is built anew."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from codex.archive.archive import ArchiveDamaged
from codex.errors import (
    BadName,
    CodexError,
    DiskFull,
    LoadCancelled,
    LoadRunning,
    NameTaken,
    SourceError,
    UnknownCodex,
    UnknownGeneration,
)
from orchestrator.errors import Conflict, InvalidRequest, LoreError, NotFound, NotReady

log = logging.getLogger("lorekeep.codices")

Made = TypeVar("Made")

_KINDS: tuple[tuple[type[CodexError], type[LoreError]], ...] = (
    (UnknownCodex, NotFound),
    (UnknownGeneration, NotFound),
    (NameTaken, Conflict),
    (LoadRunning, Conflict),
    (BadName, InvalidRequest),
    (SourceError, InvalidRequest),
    (LoadCancelled, LoreError),
    (DiskFull, LoreError),
    (ArchiveDamaged, NotReady),
)


@contextmanager
def translated() -> Iterator[None]:
    """Raises what the codex refuses as a LoreError; its message ends with what to do."""
    try:
        yield
    except CodexError as error:
        raise lore_error(error) from error


async def mended(work: Callable[[], Made]) -> Made:
    """The work done in a thread; again where it found the archive damaged, which is then empty and built anew."""
    try:
        return await asyncio.to_thread(work)
    except ArchiveDamaged as damage:
        log.warning("%s", damage)
        return await asyncio.to_thread(work)


def lore_error(error: CodexError) -> LoreError:
    kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), LoreError)
    message, _, hint = str(error).partition("; ")
    return kind(message, hint)
