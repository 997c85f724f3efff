"""The faults that reach a user: few, named, each with what is wrong and what to do about it.

`code` is stable and machine-readable; HTTP statuses and exit codes are assigned at the two edges, not here. Errors of the
codex are translated here, once.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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
    """The prompt cannot fit; the message holds the numbers."""

    code = "context_length_exceeded"


class NotPermitted(LoreError):
    code = "not_permitted"


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


SHOULD = {
    "string_type": "should be text",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a finite number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "dict_type": "should be an object",
    "model_type": "should be an object",
    "missing": "is missing",
    "string_too_short": "is empty",
    "string_too_long": "is longer than {max_length:,} characters",
    "greater_than_equal": "should be {ge} or more",
    "greater_than": "should be more than {gt}",
    "less_than_equal": "should be {le} or less",
    "less_than": "should be less than {lt}",
    "literal_error": "should be {expected}",
}


def wording(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """What is wrong with a value, of pydantic's kind of error, its message and its context."""
    if kind == "too_short":
        least = context["min_length"]
        return "is empty" if least == 1 else f"should have at least {least}, and has {context['actual_length']}"
    if kind == "too_long":
        return f"too many: {context['actual_length'] or 'more'} of at most {context['max_length']}"
    if kind in SHOULD:
        return SHOULD[kind].format(**context)
    return message.removeprefix("Value error, ").removeprefix("Input ")


NAMED_AT_MOST = 10  # more names are no help to read


def instead(name: str, known: Sequence[str], none: str, lists: str) -> str:
    """All of them, the nearest first; of many only the nearest, and what `lists` all. `none`: said where there are none."""
    if not known:
        return none
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.0 if len(known) > NAMED_AT_MOST else 0.6)
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
