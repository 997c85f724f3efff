"""What the world can do to a load: each fault has a reason or an error with words, and the catalog survives all of them."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from codex.catalog import Catalog, pack
from codex.errors import CatalogError, DiskFull, LoadCancelled, LoadRunning
from codex.ignore import SkipReason
from codex.ingest import Ingest
from codex.library import Library
from codex.progress import Cancelled, Progress, insist, never
from codex.settings import CodexSettings, IngestSettings
from codex.sources import LoadRequest
from codex.trees import Candidate, Read, Scan, TreeState

SMALL_BATCHES = CodexSettings(ingest=IngestSettings(batch_files=8))


def request(root: Path) -> LoadRequest:
    return LoadRequest((str(root),), name="it")


def many(root: Path, count: int = 400) -> Path:
    root.mkdir()
    for number in range(count):
        (root / f"{number:04}.py").write_text(f"x = {number}\n" * 50)
    return root


def in_a_process(program: str, *arguments: object, **more: object) -> "subprocess.Popen[str]":
    """A program of its own: what is killed or limited in it leaves the tests alone."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,  # type: ignore[call-overload]
    )


SLOW_LOAD = """
    import sys
    from pathlib import Path
    from codex.library import Library
    from codex.settings import CodexSettings, IngestSettings
    from codex.sources import LoadRequest

    def told(progress):
        print(progress.phase, progress.done, flush=True)
        if progress.phase == "read" and progress.done == 0:
            sys.stdin.readline() if sys.argv[3] == "wait" else None

    settings = CodexSettings(ingest=IngestSettings(batch_files=8, readers=1))
    Library(Path(sys.argv[1]), settings).load(LoadRequest((sys.argv[2],), name="it"), told)
"""


@pytest.mark.parametrize("moment", range(6))
def test_a_load_that_is_killed_leaves_a_whole_catalog_and_the_next_one_goes_on(tmp_path: Path, moment: int) -> None:
    root = many(tmp_path / "root")
    child = in_a_process(SLOW_LOAD, tmp_path / "data", root, "run")
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("read 0"):
            break
    deadline = time.monotonic() + moment * 0.01
    while time.monotonic() < deadline:
        pass
    child.kill()
    child.wait()

    library = Library(tmp_path / "data", SMALL_BATCHES)
    stored = len(library._catalog.known("it"))
    loaded = library.load(request(root))
    assert [one.text.split("\n")[0] for one in library.documents(loaded.generation)] == [
        f"x = {number}" for number in range(400)
    ]
    assert stored % 8 == 0
    assert loaded.generation.number == 1
    library.close()


def test_two_processes_cannot_load_the_same_path_at_once(tmp_path: Path) -> None:
    root = many(tmp_path / "root", 10)
    child = in_a_process(SLOW_LOAD, tmp_path / "data", root, "wait", stdin=subprocess.PIPE)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("read 0"):
            break
    library = Library(tmp_path / "data")
    with pytest.raises(LoadRunning, match=r"a load of .* is running; wait for it"):
        library.load(request(root))
    assert child.communicate("go\n")[0]
    assert library.load(request(root)).is_new is False
    library.close()


def test_a_full_disk_is_told_and_what_was_loaded_before_stays(tmp_path: Path) -> None:
    root = many(tmp_path / "root", 50)
    library = Library(tmp_path / "data", SMALL_BATCHES)
    library.load(request(root))
    library.close()
    for number in range(200):
        (root / f"new{number}.bin.txt").write_text(os.urandom(4000).hex())
    program = """
        import sys
        from pathlib import Path
        from codex.errors import DiskFull
        from codex.library import Library
        from codex.sources import LoadRequest
        try:
            Library(Path(sys.argv[1])).load(LoadRequest((sys.argv[2],), name="it"))
        except DiskFull as error:
            print("FULL:", error)
    """
    limit = 300_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    out, err = in_a_process(program, tmp_path / "data", root, preexec_fn=limited).communicate()
    assert out.startswith("FULL: no room left for "), err
    assert "it continues" in out
    library = Library(tmp_path / "data")
    assert len(library.generation("it").entries) == 50
    assert len(list(library.documents(library.generation("it")))) == 50
    assert library.load(request(root)).files == 250
    library.close()


def test_a_tiny_file_system_that_is_full_is_told(tmp_path: Path) -> None:
    root = many(tmp_path / "root", 50)
    for number in range(100):
        (root / f"new{number}.txt").write_text(os.urandom(4000).hex())
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", small], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs more rights")
    try:
        library = Library(small / "data")
        with pytest.raises(DiskFull, match="no room left"):
            library.load(request(root))
        assert library.codex("it").newest is None
        library.close()
    finally:
        subprocess.run(["umount", small], check=True)


class Moody:
    """A tree whose files do what files do while they are being read."""

    def __init__(self, moods: dict[str, Callable[[], bytes]]) -> None:
        self.moods = moods

    def scan(self, cancelled: Cancelled = never) -> Scan:
        insist(cancelled)
        return Scan(tuple(Candidate(path, path, 10, "s") for path in sorted(self.moods)))

    def read(self, candidate: Candidate) -> Read:
        return Read(self.moods[candidate.path](), "s")

    def state(self) -> TreeState:
        return TreeState()

    def close(self) -> None:
        pass


def fails_with(error: OSError) -> Callable[[], bytes]:
    def fail() -> bytes:
        raise error

    return fail


def test_files_that_cannot_be_taken_are_counted_by_reason_and_the_others_are_taken(tmp_path: Path) -> None:
    tree = Moody(
        {
            "binary": lambda: b"\0\1\2",
            "denied": fails_with(PermissionError(13, "Permission denied")),
            "fine.py": lambda: b"x = 1\n",
            "grown": lambda: b"x" * ((1 << 20) + 1),
            "latin": lambda: "grün\n".encode("cp1252"),
            "minified": lambda: b"var a=1;" * 640_000,
            "minified-but-small": lambda: b"var a=1;" * 10_000,
            "stale": fails_with(OSError(116, "Stale file handle")),
            "vanished": fails_with(FileNotFoundError(2, "No such file")),
        }
    )
    catalog = Catalog(tmp_path / "c.sqlite")
    catalog.register("it", "s", ["s"], "{}")
    taken = Ingest(catalog, CodexSettings()).take_in("it", tree)  # type: ignore[arg-type]
    assert [one.path for one in taken.entries] == ["fine.py", "latin"]
    assert taken.skipped == {
        SkipReason.BINARY: 1,
        SkipReason.UNREADABLE: 2,
        SkipReason.TOO_LARGE: 2,
        SkipReason.MINIFIED: 1,
        SkipReason.VANISHED: 1,
    }
    assert taken.notices == (
        "denied: Permission denied",
        "latin: not UTF-8: read as Windows-1252",
        "stale: Stale file handle",
    )
    catalog.close()


def test_what_could_not_be_read_is_tried_again_by_the_next_load(tmp_path: Path) -> None:
    moods: dict[str, Callable[[], bytes]] = {"a": lambda: b"a\n", "b": fails_with(PermissionError(13, "Denied"))}
    catalog = Catalog(tmp_path / "c.sqlite")
    catalog.register("it", "s", ["s"], "{}")
    ingest = Ingest(catalog, CodexSettings())
    ingest.take_in("it", Moody(moods))  # type: ignore[arg-type]
    moods["b"] = lambda: b"b\n"
    taken = ingest.take_in("it", Moody(moods))  # type: ignore[arg-type]
    assert ([one.path for one in taken.entries], taken.read) == (["a", "b"], 1)
    catalog.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's eyes are needed")
def test_unreadable_files_and_folders_are_left_out_with_a_notice(tmp_path: Path) -> None:
    for folder in [tmp_path, *list(tmp_path.parents)[:3]]:  # with two test processes pytest's folder is one deeper
        if "pytest" in str(folder):
            folder.chmod(0o755)
    root = tmp_path / "root"
    (root / "closed").mkdir(parents=True)
    for name in ["open.py", "shut.py", "closed/in.py"]:
        (root / name).write_text("x = 1\n")
    (root / "shut.py").chmod(0)
    (root / "closed").chmod(0)
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 65534, 65534)
    program = """
        import os
        import sys
        from pathlib import Path
        from codex.library import Library
        from codex.sources import LoadRequest
        os.setgid(65534)
        os.setuid(65534)
        loaded = Library(Path(sys.argv[1])).load(LoadRequest((sys.argv[2],), name="it"))
        print([one.path for one in loaded.generation.entries], dict(loaded.generation.skipped))
        print(loaded.generation.notices)
    """
    out, err = in_a_process(program, data, root, cwd="/").communicate()
    assert out.splitlines() == [
        "['open.py'] {'unreadable': 2}",
        "('shut.py: Permission denied',)",
    ], err


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7, 0.9])
def test_a_damaged_page_of_the_catalog_is_never_a_wrong_answer(tmp_path: Path, place: float) -> None:
    library = Library(tmp_path / "data")
    library.load(request(many(tmp_path / "root", 50)))
    library.close()
    path = tmp_path / "data" / "catalog.sqlite"
    raw = bytearray(path.read_bytes())
    at = int(len(raw) * place)
    raw[at : at + 3000] = b"\xa5" * 3000
    path.write_bytes(raw)
    try:
        library = Library(tmp_path / "data")
        told = {one.path: one.text for one in library.documents(library.generation("it"))}
    except CatalogError:
        return
    assert told == {f"{number:04}.py": f"x = {number}\n" * 50 for number in range(50)}


def test_bytes_that_were_changed_in_the_catalog_are_not_told(tmp_path: Path) -> None:
    library = Library(tmp_path / "data")
    generation = library.load(request(many(tmp_path / "root", 3))).generation
    with sqlite3.connect(tmp_path / "data" / "catalog.sqlite") as database:
        database.execute("UPDATE content SET body = ? WHERE digest = ?", (b"junk", generation.entries[1].digest))
        database.execute("UPDATE content SET body = ? WHERE digest = ?", (pack(b"other"), generation.entries[2].digest))
    assert library.document(generation.entries[0]).text.startswith("x = 0")
    for entry in generation.entries[1:]:
        with pytest.raises(CatalogError, match="no longer holds"):
            library.document(entry)
    library.close()


def test_an_interrupt_from_the_terminal_ends_a_load_cleanly(tmp_path: Path) -> None:
    root = many(tmp_path / "root")
    child = in_a_process(SLOW_LOAD, tmp_path / "data", root, "wait", stdin=subprocess.PIPE)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("read 0"):
            break
    child.send_signal(signal.SIGINT)
    child.communicate()
    library = Library(tmp_path / "data")
    told: list[Progress] = []
    assert library.load(request(root), told.append).files == 400
    library.close()


def test_no_reader_outlives_a_load_that_failed(tmp_path: Path) -> None:
    library = Library(tmp_path / "data", SMALL_BATCHES)
    told: list[Progress] = []
    with pytest.raises(LoadCancelled, match="continues from there"):
        library.load(request(many(tmp_path / "root")), told.append, lambda: any(one.phase == "read" for one in told))
    assert not [one.name for one in threading.enumerate() if one.name.startswith("codex-read")]
    library.close()
