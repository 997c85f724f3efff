"""What decides where a path leads, and the watcher that is told when it leads elsewhere, on a real disk with inotify."""

import os
import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.libraries import changes_of, fill, request

from codex.following.gathering import ChangeBatch
from codex.following.watch import Watcher, by_folder, entries_of
from codex.library import Library
from codex.settings import LibrarySettings, WatchSettings

QUICK = WatchSettings(debounce_s=0.05, longest_wait_s=5.0)


class Watched:
    """A started watcher of what was loaded, with the batches that it told."""

    def __init__(self, library: Library, *roots: Path) -> None:
        self.library, self.name = library, library.load(request(*roots)).codex.name
        self.batches: queue.Queue[ChangeBatch] = queue.Queue()
        self.watcher = Watcher(library.tree(self.name), QUICK, self.batches.put, print)
        self.watcher.start()

    def next(self) -> ChangeBatch:
        return self.batches.get(timeout=60)


Start = Callable[..., Watched]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    library = Library(tmp_path / "data", LibrarySettings(watch=QUICK))
    running: list[Watched] = []

    def begin(*roots: Path) -> Watched:
        running.append(Watched(library, *roots))
        return running[-1]

    yield begin
    for one in running:
        one.watcher.stop()
    library.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two folders of code, and a link to the first."""
    fill(tmp_path / "above/releases", {"1/a.py": "a = 1\n", "2/a.py": "a = 2\n"})
    (tmp_path / "above" / "current").symlink_to("releases/1")
    return tmp_path / "above"


def test_entries_are_those_that_the_kernel_looks_up_through_links(place: Path) -> None:
    path = f"{place}/current/../1/./a.py"
    (place / "releases" / "1" / "up").symlink_to("..")
    below = [one.removeprefix(f"{place}/") for one in entries_of(path) if one.startswith(f"{place}/")]
    assert below == ["current", "releases", "releases/1", "releases/1", "releases/1/a.py"]
    assert entries_of(f"{place}/current/up/2")[-1] == f"{place}/releases/2"
    assert entries_of("/") == []


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert set(entries_of(f"{tmp_path}/a")) >= {f"{tmp_path}/a", f"{tmp_path}/b"}


def test_entries_are_watched_by_their_folders() -> None:
    assert by_folder(["/srv", "/srv/a", "/srv/b"]) == {"/": {"srv"}, "/srv": {"a", "b"}}


def test_a_folder_above_that_is_renamed_is_told_and_what_is_watched_is_astray(start: Start, place: Path) -> None:
    watched = start(place / "releases" / "1")
    assert not watched.watcher.is_astray()
    place.rename(place.with_name("old"))
    assert watched.watcher.is_astray()
    assert watched.next().everything


def test_another_folder_in_its_place_is_told_and_astray(start: Start, place: Path) -> None:
    watched = start(place / "releases" / "1")
    (place / "releases").rename(place / "old")
    assert watched.next().everything
    fill(place / "releases", {"1/a.py": "a = 3\n"})
    assert watched.next().everything
    assert watched.watcher.is_astray()
    (place / "releases").rename(place / "third")
    (place / "old").rename(place / "releases")
    assert watched.next().everything
    assert not watched.watcher.is_astray()


def test_a_link_that_is_pointed_elsewhere_is_told_and_astray(start: Start, place: Path) -> None:
    watched = start(place / "current")
    assert not watched.watcher.is_astray()
    (place / "next").symlink_to("releases/2")
    (place / "next").rename(place / "current")
    assert watched.watcher.is_astray()
    assert watched.next().everything


def test_a_link_to_a_single_file_is_followed_and_saves_of_the_file_are_only_saves(start: Start, place: Path) -> None:
    link = place / "one.py"
    link.symlink_to("releases/1/a.py")
    watched = start(link)
    new = fill(place / "releases/1", {"new": "a = 4\n"}) / "new"
    new.rename(place / "releases/1/a.py")
    assert watched.next() == ChangeBatch(frozenset({"a.py"}))
    assert not watched.watcher.is_astray()
    link.unlink()
    link.symlink_to("releases/2/a.py")
    assert watched.watcher.is_astray()
    assert watched.next().everything


def test_what_else_happens_in_folders_above_is_not_told(start: Start, place: Path) -> None:
    watched = start(place / "releases" / "1")
    fill(place, {"beside.py": "x\n", "releases/3/a.py": "x\n"})
    (place / "releases" / "2").rename(place / "2")
    (place / "releases" / "1" / "a.py").write_text("a = 5\n")
    assert watched.next() == ChangeBatch(frozenset({"a.py"}))


def test_a_folder_that_holds_another_root_is_watched_whole(start: Start, place: Path) -> None:
    watched = start(place / "releases", place / "releases" / "1")
    fill(place / "releases", {"new.py": "x\n"})
    assert watched.next().paths == {"releases/new.py"}


def test_a_hard_link_edited_from_outside_is_found_by_a_comparison(start: Start, place: Path) -> None:
    """The kernel tells of it where it was written, so nothing is told here: comparing now and then is for this."""
    outside = place / "outside.py"
    os.link(place / "releases" / "1" / "a.py", outside)
    watched = start(place / "releases" / "1")
    outside.write_text("a = 6\n")
    assert changes_of(watched.library, watched.name).changed == ("a.py",)
