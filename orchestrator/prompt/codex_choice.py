"""Which codex a question is about: by name, by the conversation, by where the person stands, or the only one.

    #  when                                        codex
    1  the conversation has one                    that; another name is refused
    2  named: `none`                               the bare model
    3  named                                       that, or NotFound with those there are
    4  a loaded folder holds the working directory the deepest such; a codex of single files never
    5  exactly one is loaded                       that
    6  otherwise                                   InvalidRequest with the names

Paths are compared as they are given: the caller resolves links.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.nearest import instead
from orchestrator.service import BARE


@dataclass(frozen=True)
class ReadableCodex:
    """A loaded codex that the asker may read; `root` is a folder or a single file, absolute, or a URL."""

    name: str
    root: str


@dataclass(frozen=True)
class SessionCodex:
    """A session that exists: its codex stays what it was. `codex` None: the bare model."""

    name: str
    codex: str | None


def choose_codex(
    asked: str | None, cwd: str, candidates: Sequence[ReadableCodex], conversation: SessionCodex | None = None
) -> str | None:
    """The codex's name, or None for the bare model."""
    if conversation is not None:
        return _kept(asked, candidates, conversation)
    if asked == BARE:
        return None
    if asked is not None:
        return _named(asked, candidates)
    return _around(cwd, candidates) or _only(candidates)


def _kept(asked: str | None, candidates: Sequence[ReadableCodex], conversation: SessionCodex) -> str | None:
    kept = conversation.codex or BARE
    if asked is not None and asked != kept:
        raise InvalidRequest(
            f"session {conversation.name!r} is about codex {kept!r}, not {asked!r}",
            f"leave out the codex, or ask in a new session about {asked!r}",
        )
    return None if kept == BARE else _named(kept, candidates)


def _named(name: str, candidates: Sequence[ReadableCodex]) -> str:
    names = sorted({candidate.name for candidate in candidates})
    if name in names:
        return name
    hint = instead(name, names, "none is loaded", "`lore codex list`")
    raise NotFound(f"no codex named {name!r}", f"{hint}; load one with: lore load PATH --name {name}")


def _around(cwd: str, candidates: Sequence[ReadableCodex]) -> str | None:
    if not cwd:
        return None
    holding = [candidate for candidate in candidates if PurePosixPath(cwd).is_relative_to(candidate.root)]
    deepest = max(
        holding, key=lambda candidate: (len(PurePosixPath(candidate.root).parts), candidate.name), default=None
    )
    return deepest.name if deepest else None


def _only(candidates: Sequence[ReadableCodex]) -> str:
    names = sorted({candidate.name for candidate in candidates})  # one of several roots is several candidates
    if len(names) == 1:
        return names[0]
    if not names:
        raise InvalidRequest("no codex is loaded", "load one with: lore load PATH, or ask the bare model with -c none")
    raise InvalidRequest("several codices are loaded and none is named", f"name one with -c: {', '.join(names)}")
