"""The codex's own faults as those that a user is told."""

from collections.abc import Iterator
from contextlib import contextmanager

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
from orchestrator.errors import Conflict, InvalidRequest, LoreError, NotFound

_KINDS: tuple[tuple[type[CodexError], type[LoreError]], ...] = (
    (UnknownCodex, NotFound),
    (UnknownGeneration, NotFound),
    (NameTaken, Conflict),
    (LoadRunning, Conflict),
    (BadName, InvalidRequest),
    (SourceError, InvalidRequest),
    (LoadCancelled, LoreError),
    (DiskFull, LoreError),
)


@contextmanager
def translated() -> Iterator[None]:
    """Raises what the codex refuses as a LoreError; its message ends with what to do."""
    try:
        yield
    except CodexError as error:
        raise lore_error(error) from error


def lore_error(error: CodexError) -> LoreError:
    kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), LoreError)
    message, _, hint = str(error).partition("; ")
    return kind(message, hint)
