"""The faults that reach a user: few, named, each with what is wrong and what to do about it.

`code` is stable, and names the row of `wire.faults.CODES` that holds the HTTP status and the exit status. Errors of the
codex are translated here, once: CodexError ─▶ LoreError ─▶ its row.
"""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from codex.errors import (
    ArchiveDamaged,
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


class LoreError(Exception):
    """A fault for the user: `message` says what and where, `hint` what to do; `retry_after` seconds where waiting helps."""

    code = "failed"

    def __init__(self, message: str, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry_after = retry_after


class SettingsError(LoreError):
    """A setting that cannot be used: the message names its origin and key."""

    code = "invalid_settings"


class InvalidRequest(LoreError):
    code = "invalid_request"


class OverBudget(LoreError):
    """The prompt cannot fit; the message holds the numbers. `over`: tokens that are too many, 0 where none were counted."""

    code = "context_length_exceeded"

    def __init__(self, message: str, hint: str = "", over: int = 0) -> None:
        super().__init__(message, hint)
        self.over = over


class NotPermitted(LoreError):
    code = "not_permitted"


class FilesWanted(NotPermitted):
    """A path that the daemon does not open for this user: the client is to send the files."""

    code = "files_wanted"


class NotFound(LoreError):
    """An unknown codex, session, memory, trace or model; the hint names the nearest ones."""

    code = "not_found"


class Conflict(LoreError):
    code = "conflict"


class LoadInProgress(Conflict):
    """Another load reads the same files, or has the same name. It ends by itself."""


class NotReady(LoreError):
    """The model or a floor is still loading, and the caller did not want to wait longer."""

    code = "not_ready"


class Paused(LoreError):
    """The memory is given away, and the caller did not want to wait for it."""

    code = "paused"


class Full(LoreError):
    """More asks than the daemon will queue."""

    code = "full"


class EngineFailed(LoreError):
    """The child process died or llama.cpp failed. May be tried again."""

    code = "engine_failed"


class CodexDropped(EngineFailed):
    """Its codex was dropped while it was answered. Asking again finds none of that name."""

    code = "codex_dropped"


NAMED_AT_MOST = 10  # more names are no help to read
COMPARED_AT_MOST = 1000  # characters of a name: a body holds one of 32 MB, and comparing that takes seconds


def instead(name: str, known: Sequence[str], none: str, lists: str) -> str:
    """All of them, the nearest first; of many only the nearest, and what `lists` all. `none`: said where there are none."""
    if not known:
        return none
    cutoff = 0.0 if len(known) > NAMED_AT_MOST else 0.6
    near = difflib.get_close_matches(name[:COMPARED_AT_MOST], known, n=3, cutoff=cutoff)
    if len(known) > NAMED_AT_MOST:
        return f"the nearest of {len(known):,}: {', '.join(near)}; {lists} shows all"
    return f"there are: {', '.join(dict.fromkeys((*near, *known)))}"


def no_codex(name: str, known: Sequence[str]) -> NotFound:
    hint = instead(name, known, "none is loaded", "`lore codex list`")
    return NotFound(f"no codex named {name!r}", f"{hint}; load one with: lore load PATH")


_KINDS: tuple[tuple[type[CodexError], type[LoreError]], ...] = (
    (UnknownGeneration, NotFound),
    (NameTaken, Conflict),
    (LoadRunning, LoadInProgress),
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


def lore_error(error: CodexError) -> LoreError:
    if isinstance(error, UnknownCodex):
        return no_codex(error.name, error.known)
    kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), LoreError)
    message, _, hint = str(error).partition("; ")
    return kind(message, hint)
