"""Faults of codices as users read them: the library's own, and questions about a codex that is not loaded to its end."""

import asyncio
import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TypeVar

from codex.archive.archive import ArchiveDamaged
from codex.catalog.generations import Codex
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
from orchestrator.prompt.situation import ReadableCodex

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


SOON_S = 2.0


def candidates_of(
    codices: Sequence[Codex], asked: str | None, cwd: str, far: Callable[[str], str | None]
) -> list[ReadableCodex]:
    """What can be asked about, with its roots; `far` says how far a codex's load is, None where none runs. Raises NotReady,
    NotFound where what is asked about, or stood in, was never loaded to its end."""
    half = meant(asked, cwd, codices)
    if half is not None:
        raise refusal(half, far(half.name))
    return [ReadableCodex(one.name, root) for one in codices if one.newest is not None for root in one.roots]


def meant(asked: str | None, cwd: str, codices: Sequence[Codex]) -> Codex | None:
    """The codex without a generation that is named, or in whose folder, before that of any other, the person stands."""
    if asked is None:
        around = [(len(root), one) for one in codices for root in one.roots if cwd and is_in(cwd, root)]
        return next((one for _, one in sorted(around, key=lambda pair: -pair[0])[:1] if one.newest is None), None)
    return next((one for one in codices if one.name == asked and one.newest is None), None)


def is_in(cwd: str, root: str) -> bool:
    return PurePosixPath(cwd).is_relative_to(root)


def refusal(codex: Codex, far: str | None) -> LoreError:
    """What a question about it is told; `far`: how far its load is, None where none runs."""
    if far is not None:
        told = f" ({far})" if far else ""
        hint = "ask again when it stands; `lore status` shows how far it is"
        return NotReady(f"codex {codex.name!r} is being loaded{told}", hint, retry_after=SOON_S)
    again = f"run `lore load {shlex.join(codex.roots)} --name {codex.name}`: it continues"
    return NotFound(f"codex {codex.name!r} was not loaded to the end", again)
