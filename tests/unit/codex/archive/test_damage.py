"""What is damaged on disk is noticed and made again, what the disk refuses is said: nothing wrong is ever answered."""

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.word_embedder import WordEmbedder

from codex.archive.archive import Archive
from codex.archive.lance import remedy
from codex.documents import Document, digest_of
from codex.errors import ArchiveDamaged
from codex.searching.search import Search
from codex.vectors.embedder import space_of
from codex.vectors.filling import fill
from codex.vectors.index import VectorIndex, VectorsDamaged
from codex.vectors.search import nearest_chunks

ROOT = Path(__file__).resolve().parents[4]
NAMES = [f"shared_{number}" for number in range(40)]


def document(path: str, text: str) -> Document:
    return Document(path, text, digest_of(text.encode()), len(text))


def documents() -> list[Document]:
    return [document(f"{name}.py", f"def {name}(x):\n    return other(x)\n") for name in NAMES]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with everything that can lie in its folder: indexes, deletions, several versions; and vectors."""
    root = tmp_path_factory.mktemp("stored")
    archive = Archive(root / "archive")
    archive.replace("c", documents())
    archive.replace("c", documents()[:3])
    archive.optimize("c")
    archive.replace("c", [document("late.py", "def late():\n    return 1\n")])
    fill(archive, VectorIndex(root / "vectors"), WordEmbedder(), "c")
    archive.close()
    return root


@pytest.fixture
def root(stored: Path, tmp_path: Path) -> Path:
    shutil.copytree(stored, tmp_path / "copy")
    return tmp_path / "copy"


def everything(archive: Archive) -> tuple[object, ...]:
    """All that a search may ask."""
    places = [place for places in archive.definitions("c", NAMES).values() for place in places]
    return (
        sorted(match.place for match in archive.matches("c", ["shared", "late"], 200)),
        sorted(match.path for match in archive.both("c", ["other"], 1, 200)[1]),
        archive.at("c", places),
        [match.place for match in archive.exact("c", "shared_7(x)", 5)],
        archive.digests("c"),
        sorted(archive.chunks("c"), key=lambda match: match.place),
        archive.held("c"),
    )


@pytest.fixture(scope="module")
def expected(stored: Path) -> tuple[object, ...]:
    """All that the undamaged archive answers."""
    return everything(Archive(stored / "archive"))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "random": lambda path: path.write_bytes(random.Random(path.stat().st_size).randbytes(path.stat().st_size)),
}
PARTS = [
    *("chunks.lance/data/*.lance", "chunks.lance/_versions/*.manifest", "chunks.lance/_indices/*/*.lance"),
    *("files.lance/data/*.lance", "files.lance/_versions/*.manifest", "files.lance/_indices/*/*.lance"),
]


@pytest.mark.parametrize("when", ["opened", "open"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed_or_changes_nothing(
    root: Path, expected: tuple[object, ...], part: str, damage: str, when: str
) -> None:
    archive = Archive(root / "archive")
    if when == "open":
        archive.warm("c")
    for path in (root / "archive").glob(f"*/{part}"):
        DAMAGES[damage](path)
    try:
        seen = everything(archive)
    except ArchiveDamaged:
        seen = None
    if seen is not None and archive.held("c") == {}:  # asked last: what was answered before was in memory, and is true
        assert seen[:-1] == expected[:-1]
        seen = None
    if seen is None:
        assert archive.held("c") == {}
        archive.index("c", [*documents(), document("late.py", "def late():\n    return 1\n")])
        seen = everything(archive)
    assert seen == expected  # where nothing was noticed, nothing that was damaged had to be read


def test_a_panic_in_lancedb_is_damage_too(tmp_path: Path) -> None:
    """Its class is made by the binding and cannot be imported. It panics where it knows a file's end from before."""
    archive = Archive(tmp_path)
    texts = {name: f"def {name}(x):\n    return other(x)\n" * 30 for name in NAMES}
    archive.index("c", [document(f"{name}.py", text) for name, text in texts.items()])
    known, other = (archive.definitions("c", [name])[name][:1] for name in ("shared_3", "shared_4"))
    assert [match.symbol for match, _ in archive.at("c", known).values()] == ["shared_3"]
    for path in tmp_path.glob("*/chunks.lance/data/*.lance"):
        path.write_bytes(random.Random(0).randbytes(path.stat().st_size))
    with pytest.raises(ArchiveDamaged, match="LanceDB gave up"):
        archive.at("c", other)
    assert archive.held("c") == {}
    archive.index("c", [document("a.py", "def again():\n    return 1\n")])
    assert [match.place.path for match in archive.matches("c", ["again"], 1)] == ["a.py"]


def replaced(root: Path, table: str, old: bytes, new: bytes) -> None:
    assert len(old) == len(new)
    paths = [path for path in root.glob(f"*/{table}.lance/data/*.lance") if old in path.read_bytes()]
    assert paths
    for path in paths:
        path.write_bytes(path.read_bytes().replace(old, new))


@pytest.mark.parametrize("when", ["opened", "open"])
def test_a_text_with_other_letters_of_the_same_number_is_damage(root: Path, when: str) -> None:
    archive = Archive(root / "archive")
    if when == "open":
        archive.warm("c")
    replaced(root / "archive", "chunks", b"late():", b"evil():")
    with pytest.raises(ArchiveDamaged, match=r"late.py:1-2 is not what was stored"):
        Search(archive).search("late", "c")
    assert archive.held("c") == {}
    archive.index("c", [document("late.py", "def late():\n    return 1\n")])
    assert [hit.text for hit in Search(archive).search("late", "c").hits] == ["def late():\n    return 1"]


def test_a_path_or_name_with_other_letters_is_damage(root: Path) -> None:
    replaced(root / "archive", "chunks", b'["late.py"', b'["evil.py"')
    archive = Archive(root / "archive")
    with pytest.raises(ArchiveDamaged, match="a row is not what was stored"):
        Search(archive).search("late", "c")
    assert archive.held("c") == {}


@pytest.mark.parametrize("table", ["chunks", "files"])
def test_an_older_version_is_not_taken_for_the_newest(root: Path, table: str) -> None:
    manifests = list((root / "archive").glob(f"*/{table}.lance/_versions/*.manifest"))
    assert len(manifests) > 1
    min(manifests).unlink()  # they are named so that the newest comes first
    with pytest.raises(ArchiveDamaged, match="newest version"):
        Archive(root / "archive").matches("c", ["shared_7"], 1)


@pytest.mark.parametrize("part", ["data/*.lance", "_versions/*.manifest"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_vectors_are_removed_and_embedded_again(root: Path, part: str, damage: str) -> None:
    archive, embedder = Archive(root / "archive"), WordEmbedder()
    expected = nearest_chunks(archive, embedder, VectorIndex(root / "vectors"), "shared_7", "c", 5)
    assert expected[0][0].path == "shared_7.py"
    for path in (root / "vectors").glob(f"*/vectors.lance/{part}"):
        DAMAGES[damage](path)
    vectors = VectorIndex(root / "vectors")
    try:
        assert (
            nearest_chunks(archive, embedder, vectors, "shared_7", "c", 5) == ()
        )  # zeros are an empty table's manifest
    except VectorsDamaged:
        assert vectors.held("c", space_of(embedder)) == frozenset()
    assert fill(archive, vectors, embedder, "c").complete
    assert nearest_chunks(archive, embedder, vectors, "shared_7", "c", 5) == expected


@pytest.mark.parametrize("part", ["data/*.lance", "_versions/*"])
def test_damage_of_vectors_takes_away_only_the_search_by_meaning(root: Path, part: str) -> None:
    for path in (root / "vectors").glob(f"*/vectors.lance/{part}"):
        path.write_bytes(b"damaged" * 100)
    archive, embedder = Archive(root / "archive"), WordEmbedder()
    found = Search(archive, embedder, VectorIndex(root / "vectors")).search("shared_7", "c")
    assert found.hits == Search(archive).search("shared_7", "c").hits
    assert "will be embedded again" in found.notices[0]


FULL = """
import resource, sys
from pathlib import Path
from support.word_embedder import WordEmbedder
from codex.archive.archive import Archive, ArchiveDamaged, ArchiveError
from codex.documents import Document, digest_of
from codex.vectors.embedder import space_of
from codex.vectors.filling import fill
from codex.vectors.index import VectorError, VectorIndex, VectorsDamaged

root, limit = Path(sys.argv[1]), int(sys.argv[2])
archive, vectors, embedder = Archive(root / "archive"), VectorIndex(root / "vectors"), WordEmbedder()
held, places = archive.held("c"), archive.digests("c")
texts = [f"def second_{n}(x):\\n    return x\\n" * 30 for n in range(60)]
more = [Document(f"b{n}.py", text, digest_of(text.encode()), len(text)) for n, text in enumerate(texts)]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for write in (
    lambda: archive.index("c", more),
    lambda: archive.index("other", more),
    lambda: fill(archive, vectors, WordEmbedder(dimensions=9_000), "c"),
):
    try:
        write()
        sys.exit("it was written")
    except (ArchiveDamaged, VectorsDamaged) as error:
        sys.exit(f"taken for damage: {error}")
    except (ArchiveError, VectorError) as error:
        print(error)
assert archive.held("c") == held and archive.digests("c") == places and archive.held("other") == {}
assert [match.place.path for match in archive.matches("c", ["shared_7"], 1)] == ["shared_7.py"]
assert vectors.count("c", space_of(embedder)) == len(held)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
archive.index("c", more)
archive.index("other", more)
assert len(archive.held("c")) == len(held) + 60 and len(archive.held("other")) == 60
assert fill(archive, vectors, embedder, "c").complete
"""


@pytest.mark.parametrize("limit", [0, 3_000])
def test_a_full_disk_is_said_and_what_was_stored_stays(root: Path, limit: int) -> None:
    """A limit on the size of files refuses writes as a full disk does, and needs no mount."""
    child = subprocess.run(
        [sys.executable, "-P", "-c", FULL, str(root), str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.count("free some room") == 3
    assert ".rs" not in child.stdout


def test_rows_without_their_index_are_found_after_a_kill(root: Path) -> None:
    """The process died between the first rows and the index over them."""
    archive = Archive(root / "archive")
    folder = next((root / "archive").glob("c-*"))
    opened = archive._opened("c")
    assert opened is not None
    for index in opened.chunks.list_indices():
        opened.chunks.drop_index(index.name)
    found = Archive(root / "archive").matches("c", ["shared_7"], 1)
    assert [match.place.path for match in found] == ["shared_7.py"]
    assert folder.is_dir()


def test_where_no_more_files_may_be_open_room_on_the_disk_is_not_what_helps() -> None:
    assert "ulimit -n" in remedy(RuntimeError("lance error: Too many open files (os error 24)"))
    assert "fs.file-max" in remedy(OSError(errno.ENFILE, "Too many open files in system"))
    assert remedy(OSError(errno.EROFS, "Read-only file system")) == "make it writable"
    assert remedy(OSError(errno.ENOSPC, "No space left on device")) == "free some room"
