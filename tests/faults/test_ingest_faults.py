"""What the world can do to a load: killed, locked out, its disk full; the catalog survives all of it."""

import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.ingesting import in_a_process, many, request
from support.small_disk import small_disk

from codex.errors import DiskFull, LoadCancelled, LoadRunning
from codex.library import Library
from codex.progress import CodexProgress
from codex.settings import IngestSettings, LibrarySettings

SMALL_BATCHES = LibrarySettings(ingest=IngestSettings(batch_files=8))


SLOW_LOAD = """
    import sys
    from pathlib import Path
    from codex.library import Library
    from codex.settings import LibrarySettings, IngestSettings
    from codex.trees.sources import LoadSpec

    def told(progress):
        print(progress.phase, progress.done, flush=True)
        if progress.phase == "read" and progress.done == 0:
            sys.stdin.readline() if sys.argv[3] == "wait" else None

    settings = LibrarySettings(ingest=IngestSettings(batch_files=8, readers=1))
    Library(Path(sys.argv[1]), settings).load(LoadSpec((sys.argv[2],), name="it"), told)
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
    stored = len(library.catalog.known("it"))
    loaded = library.load(request(root))
    assert [one.text.split("\n")[0] for one in library.catalog.documents(loaded.generation.entries)] == [
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
    assert library.load(request(root)).generation.number == 1
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
        from codex.trees.sources import LoadSpec
        try:
            Library(Path(sys.argv[1])).load(LoadSpec((sys.argv[2],), name="it"))
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
    assert len(library.catalog.generation("it").entries) == 50
    assert len(list(library.catalog.documents(library.catalog.generation("it").entries))) == 50
    assert library.load(request(root)).files == 250
    library.close()


def test_a_tiny_file_system_that_is_full_is_told(tmp_path: Path) -> None:
    root = many(tmp_path / "root", 50)
    for number in range(100):
        (root / f"new{number}.txt").write_text(os.urandom(4000).hex())
    with small_disk(tmp_path / "small", "400k") as small:
        library = Library(small / "data")
        with pytest.raises(DiskFull, match="no room left"):
            library.load(request(root))
        assert library.catalog.codex("it").newest is None
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
    told: list[CodexProgress] = []
    assert library.load(request(root), told.append).files == 400
    library.close()


def test_no_reader_outlives_a_load_that_failed(tmp_path: Path) -> None:
    library = Library(tmp_path / "data", SMALL_BATCHES)
    told: list[CodexProgress] = []
    with pytest.raises(LoadCancelled, match="continues from there"):
        library.load(request(many(tmp_path / "root")), told.append, lambda: any(one.phase == "read" for one in told))
    assert not [one.name for one in threading.enumerate() if one.name.startswith("codex-read")]
    library.close()
