"""What is kept of archives that were set aside: the newest of each codex, as long as all of them have room."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.archive import folders as archive_folders
from codex.archive.folders import Folders, beyond


def made(root: Path, codex: str, said: str, version: str = "6") -> Folders:
    """Folders in which this codex has an archive that says so."""
    folders = Folders(root, version)
    (folders.make(codex) / "data").write_text(said)
    return folders


def aside(root: Path) -> dict[str, str]:
    """What each folder that was set aside says, by the codex's name."""
    return {one.name.split("-")[0]: (one / "data").read_text() for one in root.glob("*.damaged")}


def test_of_what_was_set_aside_the_newest_of_each_codex_is_kept(tmp_path: Path) -> None:
    for codex, said in (("one", "first"), ("two", "only"), ("one", "second")):
        made(tmp_path, codex, said).set_aside(codex)
    assert aside(tmp_path) == {"one": "second", "two": "only"}


def test_a_newer_version_takes_the_place_of_what_an_older_one_set_aside(tmp_path: Path) -> None:
    made(tmp_path, "one", "old", "6").set_aside("one")
    made(tmp_path, "one", "new", "7").set_aside("one")
    assert aside(tmp_path) == {"one": "new"}


def test_the_oldest_go_when_there_is_no_room_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_folders, "_ASIDE_BYTES", 10)
    for at, codex in enumerate(("one", "two", "three", "four")):
        os.utime(made(tmp_path, codex, "12345").set_aside(codex) or tmp_path, (at, at))
    assert sorted(aside(tmp_path)) == ["four", "three", "two"]


def test_a_codex_that_is_dropped_leaves_nothing_of_what_was_set_aside(tmp_path: Path) -> None:
    made(tmp_path, "two", "stays").set_aside("two")
    made(tmp_path, "one", "goes").set_aside("one")
    made(tmp_path, "one", "goes too").remove("one")
    assert [one.name.split("-")[0] for one in tmp_path.iterdir()] == ["two"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8), st.integers(0, 20))
def test_the_newest_stays_and_the_others_hold_no_more_than_they_may(sizes: list[tuple[int, int]], most: int) -> None:
    every = [(float(since), size, Path(str(at))) for at, (since, size) in enumerate(sizes)]
    gone = set(beyond(most, every))
    kept = sorted((one for one in every if one[2] not in gone), reverse=True)
    assert kept[:1] == sorted(every, reverse=True)[:1]
    assert sum(size for _, size, _ in kept[1:]) <= most
    assert all(one[2] in gone for one in every if kept and one < kept[-1])
