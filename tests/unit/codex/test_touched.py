"""Files that are touched and have not changed: each is read once, and neither searched for secrets nor stored again."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.libraries import MemoryIndex, changes_of, fill, request

from codex import ingest
from codex.catalog.catalog import Catalog
from codex.catalog.generations import KnownFile
from codex.library import Library
from codex.settings import LibrarySettings, SecretSettings

FILES = 40


class Work:
    """A codex of some files whose work is counted: texts looked through, and rows that the catalog wrote."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = fill(folder / "code", {f"m{n}.py": f"n = {n}\n" for n in range(FILES)})
        self.looked_through, self.stored, self.stamps = list[bytes](), list[str](), list[str]()
        look, store, restamp = ingest.find_secret, Catalog.store, Catalog.restamp

        def stored(catalog: Catalog, name: str, found: Mapping[str, KnownFile], bodies: Mapping[str, bytes]) -> None:
            self.stored += found
            store(catalog, name, found, bodies)

        def restamped(catalog: Catalog, name: str, stamps: Mapping[str, str]) -> None:
            self.stamps += stamps
            restamp(catalog, name, stamps)

        patch.setattr(ingest, "find_secret", lambda raw: self.looked_through.append(raw) or look(raw))  # type: ignore[func-returns-value]
        patch.setattr(Catalog, "store", stored)
        patch.setattr(Catalog, "restamp", restamped)
        self.folder, self.index = folder / "data", MemoryIndex()
        self.library = Library(self.folder, indexer=self.index)
        self.library.load(request(self.root, name="code"))
        self.begin()

    def begin(self) -> None:
        self.looked_through.clear(), self.stored.clear(), self.stamps.clear(), self.index.told.clear()

    def touch(self, seconds: int) -> None:
        for path in self.root.iterdir():
            os.utime(path, (seconds, seconds))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(tmp_path, monkeypatch)


def test_of_touched_files_the_new_stamps_are_all_that_is_kept_and_the_next_comparison_reads_nothing(work: Work) -> None:
    work.touch(1_000_000_100)
    assert changes_of(work.library, "code").changed == ()
    assert (work.looked_through, work.stored, len(work.stamps), work.index.told) == ([], [], FILES, [])
    work.begin()
    changes_of(work.library, "code")
    assert work.stamps == [], "they were read again"


def test_a_file_that_changed_among_them_is_taken_in_with_the_same_size_and_date(work: Work) -> None:
    work.touch(1_000_000_100)
    changes_of(work.library, "code")
    work.begin()
    fill(work.root, {"m7.py": "n = 8\n"})
    os.utime(work.root / "m7.py", (1_000_000_100, 1_000_000_100))
    assert changes_of(work.library, "code").changed == ("m7.py",)
    assert (work.looked_through, work.stored, work.stamps) == ([b"n = 8\n"], ["m7.py"], [])


def test_a_file_that_is_being_written_is_read_each_time_and_looked_through_once(work: Work) -> None:
    (work.root / "m7.py").write_text("n = 'now'\n")  # its stamp cannot be trusted yet
    for _ in range(3):
        changes_of(work.library, "code")
    assert (work.looked_through, work.stored, work.stamps) == ([b"n = 'now'\n"], ["m7.py"], ["m7.py"] * 2)


def test_by_other_rules_each_file_is_looked_through_again(work: Work) -> None:
    work.library.close()
    settings = replace(LibrarySettings(), secrets=SecretSettings(load_secret_contents=True))
    other = Library(work.folder, settings, indexer=work.index)
    changes_of(other, "code")
    assert (len(work.stored), work.stamps) == (FILES, [])
    other.close()
