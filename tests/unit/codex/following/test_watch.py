"""The watcher on a real disk with real inotify; time is waited for through its own batches, never slept."""

import queue
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.libraries import changes_of
from support.scarce_descriptors import no_descriptors

from codex.following.gathering import ChangeBatch
from codex.following.inotify import FolderWatches, Happened, WatchLimit
from codex.following.watch import Watcher
from codex.library import Library
from codex.settings import LibrarySettings, WatchSettings
from codex.trees.sources import LoadSpec

QUICK = WatchSettings(debounce_s=0.2, longest_wait_s=5.0)
Start = Callable[[Path], "Watched"]


class Watched:
    """A started watcher with the batches that it told."""

    def __init__(self, library: Library, root: Path) -> None:
        loaded = library.load(LoadSpec((str(root),)))
        self.library, self.name, self.root = library, loaded.codex.name, root
        self.batches: queue.Queue[ChangeBatch] = queue.Queue()
        self.notices: list[str] = []
        self.forest = library.tree(self.name)
        self.watcher = Watcher(self.forest, QUICK, self.batches.put, self.notices.append)
        self.watcher.start()

    def next(self) -> ChangeBatch:
        return self.batches.get(timeout=60)

    def nothing_more_after(self, path: str) -> list[ChangeBatch]:
        """Touch a file that counts, and return all batches up to the one that tells it."""
        (self.root / path).write_text("mark\n")
        told = [self.next()]
        while path not in told[-1].paths:
            told.append(self.next())
        return told


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    library = Library(tmp_path / "data", LibrarySettings(watch=QUICK))
    running: list[Watched] = []

    def begin(root: Path) -> Watched:
        running.append(Watched(library, root))
        return running[-1]

    yield begin
    for one in running:
        one.watcher.stop()
        one.forest.close()
    library.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "src" / "a.py").write_text("a = 1\n")
    (root / ".gitignore").write_text("build/\n*.log\n")
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    return project


def test_a_save_tells_its_path(start: Start, project: Path) -> None:
    watched = start(project)
    (project / "src" / "a.py").write_text("a = 2\n")
    assert watched.next().paths == {"src/a.py"}


def test_an_atomic_save_tells_the_file_that_was_replaced(start: Start, project: Path) -> None:
    watched = start(project)
    (project / "src" / ".a.swp").write_text("a = 3\n")
    (project / "src" / ".a.swp").rename(project / "src" / "a.py")
    assert "src/a.py" in watched.next().paths


def test_a_file_in_a_folder_that_was_empty_is_told(start: Start, project: Path) -> None:
    watched = start(project)
    (project / "empty" / "b.py").write_text("b = 1\n")
    assert watched.next().paths == {"empty/b.py"}


def test_a_file_in_a_new_folder_is_told_from_then_on(start: Start, project: Path) -> None:
    watched = start(project)
    (project / "new" / "deep").mkdir(parents=True)
    assert watched.next().everything
    (project / "new" / "deep" / "c.py").write_text("c = 1\n")
    assert "new/deep/c.py" in watched.next().paths


def test_deleting_and_renaming_are_told(start: Start, project: Path) -> None:
    watched = start(project)
    (project / "src" / "a.py").rename(project / "src" / "z.py")
    assert watched.next().paths == {"src/a.py", "src/z.py"}
    (project / "src" / "z.py").unlink()
    assert watched.next().paths == {"src/z.py"}


@pytest.mark.parametrize("kind", ["project", "repository"])
def test_ignored_files_and_folders_are_not_told(start: Start, kind: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(kind)
    (root / "build").mkdir()
    watched = start(root)
    (root / "build" / "x.py").write_text("x\n")
    (root / "src" / "noise.log").write_text("x\n")
    (root / "src" / "__pycache__").mkdir()
    told = watched.nothing_more_after("src/mark.py")
    assert set().union(*(one.paths for one in told)) == {"src/mark.py"}
    assert not any(one.everything for one in told)


def test_an_edited_ignore_file_is_followed_at_once(start: Start, repository: Path) -> None:
    (repository / "build").mkdir()
    watched = start(repository)
    (repository / ".gitignore").write_text("*.log\n")
    assert watched.next().everything
    (repository / "build" / "x.py").write_text("x\n")
    assert "build/x.py" in watched.next().paths


def test_rules_that_git_reads_from_its_own_folder_are_followed(start: Start, repository: Path) -> None:
    (repository / "empty" / "b.py").write_text("b = 1\n")
    watched = start(repository)
    (repository / ".git" / "info" / "exclude").write_text("empty/\n")
    assert watched.next().everything
    assert changes_of(watched.library, watched.name).removed == ("empty/b.py",)
    (repository / "empty" / "c.py").write_text("c = 1\n")
    told = watched.nothing_more_after("src/mark.py")
    assert set().union(*(one.paths for one in told)) == {"src/mark.py"}


def test_rules_in_the_users_own_file_are_followed_from_when_they_are_named(
    start: Start, repository: Path, tmp_path: Path
) -> None:
    (repository / "empty" / "b.py").write_text("b = 1\n")
    rules = tmp_path / "mine" / "ignored"
    rules.parent.mkdir()
    watched = start(repository)
    git(repository, "config", "core.excludesFile", str(rules))
    assert watched.next().everything
    assert changes_of(watched.library, watched.name).removed == ()
    (rules.parent / "new").write_text("empty/\n")
    (rules.parent / "new").rename(rules)
    assert watched.next().everything
    assert changes_of(watched.library, watched.name).removed == ("empty/b.py",)


def test_a_checkout_of_a_branch_is_one_batch(start: Start, repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "other")
    for number in range(200):
        (repository / "src" / f"m{number}.py").write_text("m\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "many")
    watched = start(repository)
    git(repository, "checkout", "-q", "main")
    batch = watched.next()
    assert batch.everything
    assert batch.commit
    changes = changes_of(watched.library, watched.name)
    assert (len(changes.removed), changes.state.branch) == (200, "main")
    assert watched.batches.empty()


@pytest.mark.filterwarnings("error")
def test_two_roots_in_one_repository_share_its_watch(project: Path, tmp_path: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    (project / "empty" / "b.py").write_text("b = 1\n")
    library = Library(tmp_path / "two", LibrarySettings(watch=QUICK))
    library.load(LoadSpec((str(project / "src"), str(project / "empty")), name="two"))
    batches: queue.Queue[ChangeBatch] = queue.Queue()
    forest = library.tree("two")
    watcher = Watcher(forest, QUICK, batches.put, print)
    watcher.start()
    git(project, "checkout", "-q", "-b", "other")
    assert batches.get(timeout=60).commit
    watcher.stop()
    forest.close()
    library.close()


def test_where_the_process_may_open_no_more_files_that_limit_is_named_and_none_of_the_kernel() -> None:
    with no_descriptors(), pytest.raises(WatchLimit) as refused:
        FolderWatches()
    assert refused.value.name.startswith("the limit of open files")


@pytest.mark.filterwarnings("error")
def test_a_folder_that_is_watched_twice_tells_its_events_once(tmp_path: Path) -> None:
    watches = FolderWatches()
    for _ in range(2):
        watches.add(tmp_path)
    assert len(watches) == 1
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert [one.path for one in watches.read()] == [f"{tmp_path}/one", f"{tmp_path}/two"]
    watches.close()


def test_of_files_only_those_that_say_more_are_told_where_all_are_compared(tmp_path: Path) -> None:
    watches = FolderWatches()
    watches.add(tmp_path)
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "HEAD").touch()
    told = watches.read({b"HEAD"})
    assert {one.path.removeprefix(f"{tmp_path}/") for one in told} == {"folder", "HEAD", ""}
    assert told[-1] == Happened()
    assert watches.read({b"HEAD"}) == []
    watches.close()


def test_a_busy_folder_that_is_watched_for_one_name_says_nothing_of_its_other_files(tmp_path: Path) -> None:
    watches = FolderWatches()
    watches.add(tmp_path, {"root"})
    (tmp_path / "other").touch()
    for files in (None, {b"HEAD"}):
        assert watches.read(files) == []
        (tmp_path / "other").touch()
    watches.close()


def test_more_events_than_the_kernel_keeps_are_told_as_lost(tmp_path: Path) -> None:
    watches = FolderWatches()
    watches.add(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "b.py").touch()
    for _ in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())):
        (tmp_path / "a.py").touch()
        (tmp_path / "b.py").touch()
    told: list[Happened] = []
    while events := watches.read():
        told += events
    assert told[-1].overflow
    watches.close()


def test_a_stash_is_followed(start: Start, repository: Path) -> None:
    (repository / "src" / "a.py").write_text("a = 9\n")
    watched = start(repository)
    git(repository, "stash")
    assert watched.next().commit
    assert changes_of(watched.library, watched.name).changed == ("src/a.py",)


def test_lost_events_lead_to_a_comparison_of_everything(start: Start, project: Path) -> None:
    watched = start(project)
    watched.watcher.look_again()
    assert watched.next().everything
    (project / "src" / "a.py").write_text("a = 4\n")
    assert "src/a.py" in watched.next().paths


def test_what_lies_in_a_submodule_is_told(start: Start, repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "lib.py").write_text("x = 1\n")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "lib")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "lib")
    watched = start(repository)
    (repository / "lib" / "lib.py").write_text("x = 2\n")
    (repository / "src" / "noise.log").write_text("x\n")
    assert watched.next().paths == {"lib/lib.py"}


def test_of_a_single_file_only_its_own_changes_are_told(start: Start, project: Path, tmp_path: Path) -> None:
    library = Library(tmp_path / "other-data", LibrarySettings(watch=QUICK))
    library.load(LoadSpec((str(project / "src" / "a.py"),), name="single"))
    batches: queue.Queue[ChangeBatch] = queue.Queue()
    forest = library.tree("single")
    watcher = Watcher(forest, QUICK, batches.put, print)
    watcher.start()
    (project / "src" / "other.py").write_text("x\n")
    (project / "src" / "a.py").write_text("a = 2\n")
    assert batches.get(timeout=60).paths == {"a.py"}
    watcher.stop()
    library.close()
