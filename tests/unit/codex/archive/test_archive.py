"""What only the archive on disk promises: it survives, it notices damage, it forgets other versions."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codex.archive import archive as module
from codex.archive import queries, tables
from codex.archive.archive import Archive
from codex.archive.queries import ChunkPlace
from codex.documents import Document, digest_of
from codex.errors import ArchiveDamaged
from codex.vectors.embedder import Space
from codex.vectors.index import VectorIndex


def document(path: str, text: str) -> Document:
    return Document(path, text, digest_of(text.encode()), len(text))


def stored(root: Path) -> Archive:
    archive = Archive(root)
    archive.replace("c", [document(f"{name}.py", f"def shared_{name}():\n    return 1\n") for name in "ab"])
    return archive


def test_another_process_finds_what_was_stored(tmp_path: Path) -> None:
    held = stored(tmp_path).held("c")
    again = Archive(tmp_path)
    assert again.held("c") == held
    assert [match.place.path for match in again.matches("c", ["shared_b"], 5)] == ["b.py"]
    assert [place.path for place in again.definitions("c", ["shared_a"])["shared_a"]] == ["a.py"]


def test_a_chunk_is_read_once_of_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = stored(tmp_path)
    places = archive.definitions("c", ["shared_a", "shared_b"])
    (a,), (b,) = places["shared_a"], places["shared_b"]
    asked: list[list[ChunkPlace]] = []
    read = queries.read
    monkeypatch.setattr(queries, "read", lambda table, wanted: asked.append(list(wanted)) or read(table, wanted))
    first = archive.at("c", [a])
    assert archive.at("c", [a]) == first
    assert archive.at("c", [b, a]).keys() == {a, b}
    assert asked == [[a], [b]]
    archive.replace("c", [document("a.py", "def shared_a():\n    return 2\n")])
    assert "return 2" in archive.at("c", [a])[a][1]
    assert asked[2:] == [[a]]


def test_a_warmed_archive_shows_what_was_written_since_and_after_folding(tmp_path: Path) -> None:
    """Addresses of rows are remembered; a row of the same chunk has another one after every change."""
    archive = stored(tmp_path)
    archive.warm("c")
    assert [match.symbol for match in archive.matches("c", ["shared"], 5)] == ["shared_a", "shared_b"]
    archive.replace("c", [document("a.py", "def shared_c(x):\n    return x\n")])
    assert sorted(match.symbol for match in archive.matches("c", ["shared"], 5)) == ["shared_b", "shared_c"]
    archive.optimize("c")
    assert sorted(match.symbol for match in archive.matches("c", ["shared"], 5)) == ["shared_b", "shared_c"]
    archive.replace("c", (), ["b.py"])
    assert [match.path for match in archive.both("c", ["shared"], 5, 5)[1]] == ["a.py"]


def test_damaged_data_is_set_aside_and_can_be_indexed_again(tmp_path: Path) -> None:
    stored(tmp_path)
    for data in tmp_path.rglob("*.lance"):
        if data.is_file():
            data.write_bytes(b"\x00" * 100)
    archive = Archive(tmp_path)
    with pytest.raises(ArchiveDamaged, match="set aside"):
        archive.at("c", [next(iter(stored(tmp_path / "other").definitions("c", ["shared_a"]).values()))[0]])
    assert archive.held("c") == {}
    assert [path.name for path in tmp_path.glob("*.damaged")] != []
    archive.index("c", [document("a.py", "def shared_a():\n    return 1\n")])
    assert list(archive.held("c")) == ["a.py"]


def test_a_lost_manifest_means_that_nothing_is_held(tmp_path: Path) -> None:
    stored(tmp_path)
    for manifest in tmp_path.rglob("*.manifest"):
        manifest.write_bytes(b"not a manifest")
    assert Archive(tmp_path).held("c") == {}


def test_a_folder_without_its_tables_means_that_nothing_is_held(tmp_path: Path) -> None:
    archive = stored(tmp_path)
    folder = archive._folders.of("c")
    archive.drop("c")
    folder.mkdir()
    assert archive.held("c") == {}


def test_a_kill_between_the_two_commits_leaves_the_file_to_be_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = stored(tmp_path)
    write = tables.write
    written: list[object] = []

    def dies_at_the_second(table: object, *rest: object) -> None:
        written.append(table)
        if len(written) == 2:
            raise KeyboardInterrupt
        write(table, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(tables, "write", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        archive.replace("c", [document("a.py", "other = 2\n")])
    assert list(Archive(tmp_path).held("c")) == ["b.py"]


def test_another_version_of_what_is_stored_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path)
    monkeypatch.setattr(module, "PREPARE_VERSION", "next")
    archive = Archive(tmp_path)
    assert archive.held("c") == {}
    archive.replace("c", [document("a.py", "x = 1\n")])
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


def test_the_same_text_is_not_parsed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = stored(tmp_path)

    def never(*_: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr("codex.archive.prepare.outline", never)
    archive.replace("other", [document("moved/a.py", "def shared_a():\n    return 1\n")])
    assert [match.place.path for match in archive.matches("other", ["shared_a"], 5)] == ["moved/a.py"]
    assert [match.place.path for match in archive.matches("other", ["moved"], 5)] == ["moved/a.py"]


def test_making_an_archive_does_not_import_the_database(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from codex.archive.archive import Archive; "
        f"a = Archive(Path({str(tmp_path)!r})); a.held('c'); a.matches('c', ['x'], 1); "
        "sys.exit('lancedb' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a name a number, and one of them is gone at once


def test_closed_archives_and_vectors_leave_no_file_open(tmp_path: Path) -> None:
    """A daemon that changes its model opens them again each time."""
    stored(tmp_path / "archive").close()
    space = Space("embedder", 2)
    numbers = []
    for number in range(10):
        archive, vectors = Archive(tmp_path / "archive"), VectorIndex(tmp_path / "vectors")
        archive.warm("c")
        archive.replace("c", [document("a.py", f"number = {number}\n")])
        archive.optimize("c")
        vectors.add("c", space, {f"{number}": [1.0, 0.0]})
        assert vectors.nearest("c", space, [1.0, 0.0], 1)
        archive.close()
        vectors.close()
        numbers.append(open_files())
    assert numbers[-1] <= numbers[1]


def test_a_dropped_codex_leaves_no_file_open_and_the_others_are_found(tmp_path: Path) -> None:
    """Caches that all codices share kept the files of indexes that were searched."""
    archive = stored(tmp_path)
    archive.warm("c")
    others, cached = archive.matches("c", ["shared_a"], 5), archive._open["c"].row_cache
    numbers = []
    for _ in range(3):
        archive.replace("gone", [document(f"{at}.py", f"zebra = {at}\n") for at in range(300)])
        archive.optimize("gone")
        archive.warm("gone")
        assert archive.matches("gone", ["zebra"], 1)
        archive.drop("gone")
        assert not archive.matches("gone", ["zebra"], 1)
        assert archive.matches("c", ["shared_a"], 5) == others
        numbers.append(open_files())
    assert numbers[-1] <= numbers[0]
    assert archive._open["c"].row_cache is cached  # what a search shows is not read from disk anew
    archive.replace("c", [document("new.py", "def shared_new():\n    return 1\n")])
    assert archive.definitions("c", ["shared_new"])["shared_new"]


def test_a_closed_archive_opens_again(tmp_path: Path) -> None:
    archive = stored(tmp_path)
    held = archive.held("c")
    archive.close()
    assert archive.held("c") == held
    assert archive.matches("c", ["shared_a"], 1) == Archive(tmp_path).matches("c", ["shared_a"], 1)


def test_warming_reads_the_rows_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = stored(tmp_path)
    expected = archive.definitions("c", ["shared_a"])
    scans: list[object] = []
    encoded_rows = queries.encoded_rows

    def counted(table: object) -> Iterator[str]:
        scans.append(table)
        return encoded_rows(table)

    monkeypatch.setattr(queries, "encoded_rows", counted)
    again = Archive(tmp_path)
    again.warm("c")
    assert again.definitions("c", ["shared_a"]) == expected
    assert scans == []
