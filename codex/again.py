"""How a codex was asked for, as the catalog keeps it, and whether another load asks for the same codex again.

A path may lead elsewhere by now, through a link in it: it is the same codex then, as it is for a folder that was replaced.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from codex.catalog.generations import Codex
from codex.trees.ignore import Globs
from codex.trees.sources import CodexSource, LoadSpec


def kept_request(request: LoadSpec, source: CodexSource, name: str) -> str:
    """What loads the same again from any folder, whatever it was called by."""
    return json.dumps(asdict(replace(request, sources=source.lasting, name=name, take_name=False)))


def request_of(codex: Codex) -> LoadSpec:
    stored = json.loads(codex.request)
    globs = Globs(**{key: tuple(value) for key, value in stored.pop("globs").items()})
    return LoadSpec(**{**stored, "sources": tuple(stored["sources"]), "globs": globs})


def is_again(codex: Codex, source: CodexSource) -> bool:
    """Whether a load of the source is an update of the codex."""
    return codex.source == source.key or _is_named_alike(codex, source)


def name_again(codices: Sequence[Codex], source: CodexSource) -> str | None:
    """The codex of which a load of the source is an update: one that was named alike, before one that leads there too."""
    same = [one for one in codices if is_again(one, source)]
    return next((one.name for one in same if request_of(one).sources == source.lasting), same[0].name if same else None)


def _is_named_alike(codex: Codex, source: CodexSource) -> bool:
    """By paths alone: of one repository there may be codices of several revisions."""
    before = request_of(codex)
    return source.is_on_disk and before.revision is None and before.sources == source.lasting
