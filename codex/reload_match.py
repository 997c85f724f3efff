"""Which codex a load belongs to: its name, and whether the load updates an existing codex.

A path that leads to another folder than before (a link has changed, a folder was replaced) still names the same codex.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace

from codex.catalog.generations import Codex
from codex.errors import BadName
from codex.trees.ignore import Globs
from codex.trees.sources import CodexSource, LoadSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?:~[0-9]{1,12})?")  # ~: whose it is, which no user writes
_RESERVED = frozenset({"none"})  # `-c none` asks the bare model


def is_reload(codex: Codex, source: CodexSource) -> bool:
    """Whether a load of the source is an update of the codex."""
    return codex.source == source.key or _is_named_alike(codex, source)


def reloaded_name(codices: Sequence[Codex], source: CodexSource) -> str | None:
    """The codex that a load of the source updates: one with the same paths, before one with the same target."""
    same = [one for one in codices if is_reload(one, source)]
    return next((one.name for one in same if spec_of(one).sources == source.lasting), same[0].name if same else None)


def stored_request(request: LoadSpec, source: CodexSource, name: str) -> str:
    """The request as JSON with lasting paths, so that it loads the same from any folder."""
    return json.dumps(asdict(replace(request, sources=source.lasting, name=name, take_name=False)))


def spec_of(codex: Codex) -> LoadSpec:
    stored = json.loads(codex.request)
    globs = Globs(**{key: tuple(value) for key, value in stored.pop("globs").items()})
    return LoadSpec(**{**stored, "sources": tuple(stored["sources"]), "globs": globs})


def valid_name(name: str) -> str:
    """The name itself. Raises BadName."""
    if _NAME.fullmatch(name) is None or name in _RESERVED:
        raise BadName(
            f"{name!r} cannot name a codex: letters, digits, dot, dash and underscore, at most 64, the first one a "
            f"letter or digit, and not {', '.join(sorted(_RESERVED))}; try {name_from(name)!r}"
        )
    return name


def name_from(text: str) -> str:
    """A usable name near to any text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "codex"
    return f"{name}-1" if name in _RESERVED else name


def free_name(name: str, taken: set[str]) -> str:
    """The name with the smallest number behind it that is not taken."""
    number = 2
    while numbered(name, number) in taken:
        number += 1
    return numbered(name, number)


def numbered(name: str, number: int) -> str:
    base, owned, owner = name.partition("~")
    return f"{base[:60]}-{number}{owned}{owner}"


def _is_named_alike(codex: Codex, source: CodexSource) -> bool:
    """Compares paths; not for revisions: one repository can have codices of several."""
    before = spec_of(codex)
    return source.is_on_disk and before.revision is None and not before.sent and before.sources == source.lasting
