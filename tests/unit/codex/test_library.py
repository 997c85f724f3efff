"""The life of a codex: loaded, loaded again, followed, dropped."""

import itertools
import os
from pathlib import Path

import pytest
from support.libraries import Changes, MemoryIndex, changes_of, fill, request, texts

from codex.documents import digest_of
from codex.errors import LoadCancelled, LoadRunning, SourceError, UnknownCodex
from codex.following.amendments import ChangeKind
from codex.library import Library
from codex.locks import load_lock
from codex.progress import CodexProgress
from codex.trees.sources import resolve


def test_a_folder_becomes_a_codex_named_after_it(library: Library, project: Path, index: MemoryIndex) -> None:
    loaded = library.load(request(project))
    assert (loaded.codex.name, loaded.codex.roots, loaded.codex.newest) == ("project", (str(project),), 1)
    assert (loaded.files, loaded.read, loaded.generation.number) == (2, 2, 1)
    assert loaded.generation.skipped == {"binary": 1, "secret by name": 1}
    assert texts(library, "project") == {"src/a.py": "a = 1\n", "src/b.py": "b = 2\n"}
    assert index.told == ["src/a.py", "src/b.py"]


def test_loading_again_reads_and_indexes_only_what_changed(library: Library, project: Path, index: MemoryIndex) -> None:
    library.load(request(project))
    again = library.load(request(project))
    assert (again.read, again.generation.number) == (0, 1)
    fill(project, {"src/a.py": "a = 10\n"})
    (project / "src" / "b.py").unlink()
    changed = library.load(request(project))
    assert (changed.read, changed.generation.number) == (1, 2)
    assert index.told == ["src/a.py", "src/b.py", "src/a.py"]
    assert set(index.held("project")) == {"src/a.py"}


def test_an_older_generation_is_told_as_it_was(library: Library, project: Path) -> None:
    library.load(request(project))
    fill(project, {"src/a.py": "a = 10\n"})
    library.load(request(project))
    assert texts(library, "project", 1)["src/a.py"] == "a = 1\n"
    library.release("project")
    assert library.catalog.generations("project") == (2,)
    assert texts(library, "project")["src/a.py"] == "a = 10\n"


def test_the_order_of_a_generation_is_kept_by_the_next(library: Library, project: Path) -> None:
    fill(project, {"src/c.py": "c\n"})
    library.load(request(project))
    fill(project, {"src/a.py": "a = 10\n"})
    assert [one.path for one in library.load(request(project)).generation.entries] == [
        *("src/b.py", "src/c.py", "src/a.py")
    ]


def test_progress_is_told_by_phase_and_ends_complete(library: Library, project: Path) -> None:
    told: list[CodexProgress] = []
    library.load(request(project), report=told.append)
    last = {one.phase: (one.done, one.total) for one in told}
    assert last == {"walk": (2, 2), "rules": (0, 0), "read": (2, 2), "index": (2, 2)}


def test_a_walk_tells_how_many_files_it_has_found_so_far(tmp_path: Path, project: Path) -> None:
    told: list[CodexProgress] = []
    clock = itertools.count()
    library = Library(tmp_path / "data", clock=lambda: float(next(clock)))
    library.load(request(project), report=told.append)
    library.close()
    assert [(one.done, one.total) for one in told if one.phase == "walk"] == [(0, 0), (1, 0), (2, 0), (2, 2)]


def test_a_cancelled_load_keeps_what_it_stored_and_the_next_one_goes_on(library: Library, tmp_path: Path) -> None:
    root = fill(tmp_path / "many", {f"{number:04}.py": f"x = {number}\n" for number in range(600)})
    seen: list[CodexProgress] = []
    with pytest.raises(LoadCancelled, match="continues"):
        library.load(request(root), seen.append, lambda: sum(one.phase == "read" for one in seen) > 0)
    assert library.catalog.codex("many").newest is None
    assert library.load(request(root)).generation.number == 1


def test_a_load_can_be_cancelled_while_its_files_are_listed(library: Library, tmp_path: Path) -> None:
    root = fill(tmp_path / "many", {f"{number:04}.py": f"x = {number}\n" for number in range(50)})
    seen: list[CodexProgress] = []
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 20

    with pytest.raises(LoadCancelled, match="while its files were listed"):
        library.load(request(root), seen.append, cancelled)
    assert {one.phase for one in seen} == {"walk"}  # told more than once on a slow machine
    assert library.load(request(root)).files == 50


def test_a_codex_whose_files_are_gone_keeps_its_last_generation(library: Library, project: Path) -> None:
    library.load(request(project))
    for path in project.rglob("*.py"):
        path.unlink()
    with pytest.raises(SourceError):
        library.load(library.request("project"))
    assert set(texts(library, "project")) == {"src/a.py", "src/b.py"}


def test_a_second_load_of_the_same_path_at_once_is_refused(library: Library, project: Path) -> None:
    source = resolve(request(project), Path.cwd())
    with (
        load_lock(library.folder / "locks", "another-name", source.key, source.title),
        pytest.raises(LoadRunning, match="is running"),
    ):
        library.load(request(project))
    assert library.load(request(project)).generation.number == 1


def test_changes_are_found_without_making_a_generation(library: Library, project: Path) -> None:
    library.load(request(project))
    assert changes_of(library, "project") == Changes()
    fill(project, {"src/a.py": "a = 10\n", "src/c.py": "c\n"})
    (project / "src" / "b.py").unlink()
    changes = changes_of(library, "project")
    assert changes == Changes(("src/a.py",), ("src/c.py",), ("src/b.py",))
    assert library.catalog.document_by_digest("src/a.py", digest_of(b"a = 10\n")).text == "a = 10\n"
    assert library.catalog.generations("project") == (1,)


def test_following_appends_to_the_log_and_brings_the_index_along(
    library: Library, project: Path, index: MemoryIndex
) -> None:
    def follow() -> list[tuple[int, str, ChangeKind]]:
        followed = library.follow("project", count=len, changed_definitions=lambda old, new: None)
        return [(one.number, one.path, one.kind) for one in followed.log[len(followed.log) - followed.new :]]

    library.load(request(project))
    fill(project, {"src/a.py": "a = 10\n"})
    assert follow() == [(1, "src/a.py", ChangeKind.CHANGED)]
    assert follow() == []
    fill(project, {"src/a.py": "a = 100\n", "src/c.py": "c\n"})
    assert follow() == [(2, "src/a.py", ChangeKind.CHANGED), (3, "src/c.py", ChangeKind.ADDED)]
    assert set(index.held("project")) == {"src/a.py", "src/b.py", "src/c.py"}
    assert [one.text for one in library.catalog.amendments("project")] == ["a = 10\n", "a = 100\n", "c\n"]
    assert texts(library, "project")["src/a.py"] == "a = 1\n"
    assert library.load(library.request("project")).generation.number == 2
    assert library.catalog.amendments("project") == ()
    assert len(library.catalog.amendments("project", 1)) == 3


def test_a_load_of_what_was_changed_and_changed_back_leaves_no_log(library: Library, project: Path) -> None:
    library.load(request(project))
    before = texts(library, "project")
    for content in ("a = 10\n", "a = 1\n"):
        fill(project, {"src/a.py": content})
        library.follow("project", count=len, changed_definitions=lambda old, new: None)
    assert [one.kind for one in library.catalog.amendments("project")] == [ChangeKind.CHANGED, ChangeKind.RESTORED]
    assert library.load(library.request("project")).generation.number == 2
    assert library.catalog.amendments("project") == ()
    assert texts(library, "project") == before
    assert library.load(library.request("project")).generation.number == 2, "the same once more is the same generation"


def test_a_dropped_codex_is_gone_here_and_in_the_index(library: Library, project: Path, index: MemoryIndex) -> None:
    library.load(request(project))
    library.drop("project")
    assert (library.catalog.codices(), index.held("project")) == ((), {})
    with pytest.raises(UnknownCodex):
        library.catalog.generation("project")
    assert library.load(request(project)).generation.number == 1


def test_an_index_that_was_lost_is_completed_by_the_next_load(
    library: Library, project: Path, index: MemoryIndex
) -> None:
    library.load(request(project))
    index.digests.clear()
    index.told.clear()
    assert library.load(request(project)).read == 0
    assert index.told == ["src/a.py", "src/b.py"]


def test_a_file_whose_permission_was_taken_away_is_gone_and_told_until_it_can_be_read_again(
    library: Library, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.load(request(project))
    opened, shut = os.open, {str(project / "src/a.py")}

    def guarded(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(path) in shut:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode)

    monkeypatch.setattr("codex.trees.walk.os.open", guarded)  # a test may run as root, whom no permission stops
    (project / "src/a.py").chmod(0o200)
    loaded = library.load(request(project))
    assert loaded.generation.skipped == {"binary": 1, "secret by name": 1, "unreadable": 1}
    assert loaded.generation.notices == (
        ".env: left out, by the name it may hold secrets",
        "src/a.py: Permission denied",
    )
    assert set(texts(library, "project")) == {"src/b.py"}
    shut.clear()
    assert set(library.load(request(project)).generation.digests()) == {"src/a.py", "src/b.py"}


def test_a_first_load_takes_the_order_that_was_expected_and_the_next_ones_go_on_from_it(tmp_path: Path) -> None:
    """The files of a codex whose prefix came from another machine."""
    root = fill(tmp_path / "code", {"a.py": "one\n", "b.py": "two\n", "c.py": "three\n", "new.py": "four\n"})
    elsewhere = Library(tmp_path / "elsewhere", indexer=MemoryIndex())
    digests = elsewhere.load(request(root, name="x")).generation.digests()
    elsewhere.close()
    library = Library(tmp_path / "library", indexer=MemoryIndex())
    library.expect("x", [("c.py", digests["c.py"]), ("b.py", "other"), ("gone.py", "1"), ("a.py", digests["a.py"])])
    assert not library.knows("x")
    for _ in range(2):
        made = library.load(request(root, name="x")).generation
        assert [one.path for one in made.entries] == ["c.py", "a.py", "b.py", "new.py"]
    assert library.knows("x")
    library.drop("x")
    again = library.load(request(root, name="x")).generation
    assert [one.path for one in again.entries] == ["a.py", "b.py", "c.py", "new.py"], "it was expected once"
    library.close()


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff"])
def test_an_expected_order_that_cannot_be_read_is_none(tmp_path: Path, raw: bytes) -> None:
    library = Library(tmp_path / "library", indexer=MemoryIndex())
    library.expect("x", [("b.py", "1")])
    (file,) = (tmp_path / "library" / "orders").iterdir()
    file.write_bytes(raw)
    root = fill(tmp_path / "code", {"a.py": "one\n", "b.py": "two\n"})
    made = library.load(request(root, name="x")).generation
    assert [one.path for one in made.entries] == ["a.py", "b.py"]
    library.close()
