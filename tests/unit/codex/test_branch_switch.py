"""A switch of branch and back: what was seen once is neither stored, parsed nor tokenised again."""

import os
import subprocess
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from codex.archive.archive import Archive
from codex.catalog.databases import SqliteBytesCache
from codex.catalog.tokens import TokenStore
from codex.documents import Document
from codex.library import Library
from codex.trees.sources import LoadSpec

FILES = 12


class Indexed:
    """The archive as the library's index."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive

    def held(self, codex: str) -> Mapping[str, str]:
        return self.archive.held(codex)

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        self.archive.index(codex, documents, removed, progress)

    def drop(self, codex: str) -> None:
        self.archive.drop(codex)


class Words:
    """A tokenizer that counts the texts it was given."""

    name = "words"

    def __init__(self) -> None:
        self.texts = 0

    def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
        self.texts += len(texts)
        return [array("I", range(len(text.split()))) for text in texts]


class Work:
    """A library whose work is counted: files parsed and split, texts tokenised."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.archive = Archive(folder / "archive")
        self.words = Words()
        self.parsed = 0
        self._store = TokenStore(folder / "tokens.sqlite3")
        self.library = Library(folder / "data", indexer=Indexed(self.archive))
        put = SqliteBytesCache.put

        def noted(one: SqliteBytesCache, entries: Sequence[tuple[str, bytes]]) -> None:
            self.parsed += len(entries)
            put(one, entries)

        patch.setattr(SqliteBytesCache, "put", noted)

    def done(self, root: Path) -> tuple[int, int]:
        """A load's work: (files parsed, texts tokenised)."""
        parsed, tokenised = self.parsed, self.words.texts
        entries = self.library.load(LoadSpec((str(root),), "it")).generation.entries
        self._store.counts(self.words, [one.text for one in self.library.catalog.documents(entries)])
        return self.parsed - parsed, self.words.texts - tokenised

    def close(self) -> None:
        self.library.close()
        self._store.close()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    made = Work(tmp_path / "state", monkeypatch)
    yield made
    made.close()


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def write(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (1_000_000_000, 1_000_000_000))  # long ago: its stamp can be trusted


def test_only_what_a_branch_changed_is_worked_on_and_nothing_on_the_way_back(work: Work, tmp_path: Path) -> None:
    root = tmp_path / "code"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in range(FILES):
        write(root / f"m{number}.py", f"def f{number}():\n    return {number}\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    assert work.done(root) == (FILES, FILES)

    git(root, "checkout", "-qb", "other")
    write(root / "m0.py", "def changed():\n    return 0\n")
    write(root / "new.py", "def added():\n    return 1\n")
    (root / "m1.py").rename(root / "moved.py")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "two")
    assert work.done(root) == (2, 2)
    assert "moved.py" in work.archive.held("it")

    git(root, "checkout", "-q", "main")
    assert work.done(root) == (0, 0)
    assert set(work.archive.held("it")) == {f"m{number}.py" for number in range(FILES)}

    git(root, "checkout", "-q", "other")
    assert work.done(root) == (0, 0)
    assert {"new.py", "moved.py"} <= set(work.archive.held("it"))
