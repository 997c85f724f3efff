"""Files that cannot be taken: each has its reason, and the others are taken."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.ingesting import in_a_process

from codex.catalog.catalog import Catalog
from codex.ingest import Ingest
from codex.progress import Cancelled, Step, insist, never, uncounted
from codex.settings import LibrarySettings
from codex.trees.ignore import SkipReason
from codex.trees.port import CandidateFile, FileBytes, Scan, TreeState


class Moody:
    """A tree whose files do what files do while they are being read."""

    def __init__(self, moods: dict[str, Callable[[], bytes]]) -> None:
        self.moods = moods

    def scan(self, cancelled: Cancelled = never, found: Step = uncounted) -> Scan:
        insist(cancelled)
        return Scan(tuple(CandidateFile(path, path, 10, "s") for path in sorted(self.moods)))

    def read(self, candidate: CandidateFile) -> FileBytes:
        return FileBytes(self.moods[candidate.path](), "s")

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
    taken = Ingest(catalog, LibrarySettings()).store_tree("it", tree)  # type: ignore[arg-type]
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
    ingest = Ingest(catalog, LibrarySettings())
    ingest.store_tree("it", Moody(moods))  # type: ignore[arg-type]
    moods["b"] = lambda: b"b\n"
    taken = ingest.store_tree("it", Moody(moods))  # type: ignore[arg-type]
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
        from codex.trees.sources import LoadSpec
        os.setgid(65534)
        os.setuid(65534)
        loaded = Library(Path(sys.argv[1])).load(LoadSpec((sys.argv[2],), name="it"))
        print([one.path for one in loaded.generation.entries], dict(loaded.generation.skipped))
        print(loaded.generation.notices)
    """
    out, err = in_a_process(program, data, root, cwd="/").communicate()
    assert out.splitlines() == [
        "['open.py'] {'unreadable': 2}",
        "('shut.py: Permission denied',)",
    ], err
