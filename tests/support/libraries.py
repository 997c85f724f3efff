"""What tests of the library are made of: an index in memory, folders with files, repositories."""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codex.documents import Document
from codex.following.amendments import effective
from codex.library import Library
from codex.trees.port import TreeState
from codex.trees.sources import LoadSpec


class MemoryIndex:
    """An index that remembers what it was told."""

    def __init__(self) -> None:
        self.digests: dict[str, dict[str, str]] = {}
        self.told: list[str] = []

    def held(self, codex: str) -> Mapping[str, str]:
        return dict(self.digests.get(codex, {}))

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        index = self.digests.setdefault(codex, {})
        for path in removed:
            del index[path]
        for document in documents:
            index[document.path] = document.digest
            self.told.append(document.path)
            progress(1)

    def drop(self, codex: str) -> None:
        self.digests.pop(codex, None)


def fill(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000_000, 1_000_000_000))  # long ago: stamps can be trusted, order is by path
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def request(*sources: Path | str, **more: object) -> LoadSpec:
    return LoadSpec(tuple(map(str, sources)), **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Changes:
    """How the disk differs from the newest generation: names, sorted."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    state: TreeState = field(default_factory=TreeState)


def changes_of(library: Library, name: str) -> Changes:
    """What differs on disk from the newest generation, by the log of it."""
    followed = library.follow(name, count=len, changed_definitions=lambda before, now: None)
    base = library.catalog.generation(name).digests()
    now = effective(base, followed.log)
    return Changes(
        changed=tuple(sorted(path for path in now.keys() & base.keys() if now[path] != base[path])),
        added=tuple(sorted(now.keys() - base.keys())),
        removed=tuple(sorted(base.keys() - now.keys())),
        state=followed.state,
    )


def texts(library: Library, name: str, number: int | None = None) -> dict[str, str]:
    return {one.path: one.text for one in library.catalog.documents(library.catalog.generation(name, number).entries)}
