"""The circumstances of a turn as its Environment block states them: levels in words, and what the active sigil may use.

The Environment of a conversation is the same text until something that it states has changed: all behind it is then
computed again. Readings are turned into levels elsewhere; no number comes in here.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from formatters.context import EnvironmentView, KarmaEntry, SigilView, ToolView, TurnView
from orchestrator.errors import InvalidRequest, NotFound, no_codex
from orchestrator.wire.answers import BARE
from orchestrator.wire.names import short, spelled

SCOPE_OF_TOOLS = "tools:"
SCOPES_OF_MEMORY = {
    "recall_context": ("memory:read",),
    "expand_detail": ("memory:read",),
    "fact_store": ("memory:write",),
    "fact_feedback": ("memory:read", "memory:write"),
}
"""What tools need beside their own scope, as the routes do that give the same."""
OUR_TOOLS = frozenset(
    {"search_archive", "read_file", "symbol", "context_strategy", "session_search", *SCOPES_OF_MEMORY}
)
"""No package may bring a tool of these names."""


@dataclass(frozen=True)
class Levels:
    """The governor's words; None where nothing is known; the Environment then leaves it out."""

    memory: str | None = None  # calm, elevated, high, critical
    power: str | None = None  # normal, low-power, throttled
    network: str | None = None  # online, offline


def may_use(sigil: SigilView, tool: str) -> bool:
    """Whether the scopes leave this tool."""
    return not lacking_scope(sigil, tool)


def lacking_scope(sigil: SigilView, tool: str) -> str:
    """The first scope that the sigil lacks for this tool; '' where it lacks none. Owners have `admin`, which covers all."""
    needed = (SCOPE_OF_TOOLS + tool, *SCOPES_OF_MEMORY.get(tool, ()))
    return next((scope for scope in needed if not {scope, "admin"} & sigil.scopes), "")


def environment_of(
    levels: Levels,
    sigil: SigilView,
    tools: Iterable[str] | None = None,
    client_system: Iterable[str] = (),
    client_tools: Iterable[ToolView] = (),
    calling: str = "",
    about: tuple[KarmaEntry, ...] = (),
) -> EnvironmentView:
    """The Environment as it is now. `tools`: names of those in Identity, None when Identity has none."""
    return EnvironmentView(
        vram=levels.memory,
        power=levels.power,
        network=levels.network,
        available_tools=None if tools is None else tuple(sorted(tool for tool in tools if may_use(sigil, tool))),
        client_system=tuple(client_system),
        client_tools=tuple(client_tools),
        calling=calling,
        about=about,
    )


def renewed(before: EnvironmentView | None, now: EnvironmentView) -> str:
    """What changed since the conversation's last turn, in words; '' where it is the same, or there was none."""
    if before is None or before == now:
        return ""
    changed = [name for name in EnvironmentView.model_fields if getattr(before, name) != getattr(now, name)]
    return ", ".join(_change(name, getattr(before, name), getattr(now, name)) for name in changed)


def _change(name: str, before: object, after: object) -> str:
    """One field's change in words. What a client sent is not quoted: it may be long, and private."""
    words = (str, type(None))
    if name in ("client_system", "client_tools") or not (isinstance(before, words) and isinstance(after, words)):
        return f"{name} changed"
    return f"{name} changed from {before or 'unknown'} to {after or 'unknown'}"


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
) -> tuple[str | None, str]:
    """The codex's name, or None for the bare model. And a notice which one was chosen, where the folder of the working
    directory is loaded as several codices and none is named, or where only the beginning of a name was given."""
    if conversation is not None:
        return _kept(asked, candidates, conversation), ""
    if asked is not None:
        name = None if asked == BARE else _named(asked, candidates)
        shortened = name is not None and asked.casefold() not in (name.casefold(), short(name).casefold())
        return name, f"this is about {name}, the only codex whose name begins with {asked}" if shortened else ""
    *others, chosen = around(cwd, candidates) or [_only(candidates)]
    too = f"this is about {chosen}; the same folder is loaded as {', '.join(others)} too: choose with -c NAME"
    return chosen, too if others else ""


def _kept(asked: str | None, candidates: Sequence[ReadableCodex], conversation: SessionCodex) -> str | None:
    kept = conversation.codex or BARE
    if asked not in (None, kept) and spelled(asked or "", _names(candidates)) != kept:
        raise InvalidRequest(
            f"session {conversation.name!r} is about codex {kept!r}, not {asked!r}",
            f"leave out the codex, or ask in a new session about {asked!r}",
        )
    if kept != BARE and all(candidate.name != kept for candidate in candidates):
        raise NotFound(
            f"session {conversation.name!r} is about codex {kept!r}, which is not loaded any more",
            f"load it again: lore load PATH --name {kept}; or ask without this session; "
            f"lore session drop {conversation.name} forgets it",
        )
    return None if kept == BARE else kept


def _named(name: str, candidates: Sequence[ReadableCodex]) -> str:
    found = spelled(name, _names(candidates))
    if found is None:
        raise no_codex(name, _names(candidates))
    return found


def _names(candidates: Sequence[ReadableCodex]) -> list[str]:
    return sorted({candidate.name for candidate in candidates})  # one of several roots is several candidates


def around(cwd: str, candidates: Sequence[ReadableCodex]) -> list[str]:
    """Names, sorted, of what is loaded from the deepest folder that holds the working directory."""
    holding = [candidate for candidate in candidates if cwd and PurePosixPath(cwd).is_relative_to(candidate.root)]
    deepest = max((len(PurePosixPath(candidate.root).parts) for candidate in holding), default=0)
    return sorted({one.name for one in holding if len(PurePosixPath(one.root).parts) == deepest})


def _only(candidates: Sequence[ReadableCodex]) -> str:
    names = _names(candidates)
    if len(names) == 1:
        return names[0]
    if not names:
        raise InvalidRequest("no codex is loaded", "load one with: lore load PATH, or ask the bare model with -c none")
    hint = f"name one (-c NAME, or a client's model lore/NAME), or ask in its folder: {', '.join(names)}"
    raise InvalidRequest("several codices are loaded and none is named", hint)


_RUN = re.compile(r"[\w./\\-]+")
_PATHLIKE = re.compile(r"[\w./\\-]*[\w-]\.\w+|[\w.-]+(?:/[\w.-]+)+")  # takes the square of what it is given
_RUN_CHARS = 300  # a longer one is data; a name has at most 255
_MOST = 8  # a question that names more is about the whole


def named_documents(question: str, paths: Sequence[str]) -> tuple[str, ...]:
    """The paths that the question names, in the order of `paths`, at most a few."""
    runs = (run for run in set(_RUN.findall(question)) if len(run) <= _RUN_CHARS)
    words = {_clean(word) for run in runs for word in _PATHLIKE.findall(run)} - {""}
    if not words:
        return ()
    names = Counter(path.rpartition("/")[2] for path in paths)
    return tuple(path for path in paths if _is_named(path, words, names))[:_MOST]


def discussed(turns: Iterable[TurnView], paths: Sequence[str]) -> tuple[str, ...]:
    """Of these paths, those that a conversation names or was shown passages of, the most often first."""
    if not paths:
        return ()
    known, counts = frozenset(paths), Counter[str]()
    for turn in turns:
        counts.update(one.path for one in turn.evidence if one.path in known)
        counts.update(named_documents(turn.text, paths))
    return tuple(path for path, _ in counts.most_common())


def _clean(word: str) -> str:
    return word.replace("\\", "/").removeprefix("./").strip(".")


def _is_named(path: str, words: set[str], names: Counter[str]) -> bool:
    name = path.rpartition("/")[2]
    if name in words and names[name] == 1:
        return True
    return path in words or any(end in words for end in _ends(path))


def _ends(path: str) -> Iterator[str]:
    """What a path ends in, from folders on: by these, and not by the words, as a question may have 100,000 of them."""
    at = path.find("/")
    while at >= 0:
        end = path[at + 1 :]
        if "/" in end:
            yield end
        at = path.find("/", at + 1)
