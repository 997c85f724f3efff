"""A floor whose files were taken to another engine is not computed there and changes no answer; nothing else goes along."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.fake_engine import FakeBackend
from support.machine import Machine, naive_answer

from orchestrator.engine.checkpoints import file as file_module
from orchestrator.engine.checkpoints.file import CheckpointWritten
from orchestrator.engine.messages import AdoptFiles, FilesAdopted, FindFloor, FloorFound

KINDS = {"ranges": {}, "pieces": {"ranges": False}, "constant": {"ranges": False, "constant": True}}


def machine(folder: Path, kind: str, **options: int) -> Machine:
    return Machine(folder=folder, backend=FakeBackend(12, **KINDS[kind]), **options)


def heard(one: Machine, kind: type, call: int):
    """The answer to a call, once the writer has done what it waits for."""
    for _ in range(100):
        one.store.flush()
        one.loop.handle(CheckpointWritten())
        one.round()
        if found := [said for said in one.told if isinstance(said, kind) and said.call == call]:
            return found[0]
    raise AssertionError("nothing was answered")


def moved(there: Machine, here: Machine, floor: str = "code") -> FloorFound:
    there.loop.handle(FindFloor(1, floor))
    found = heard(there, FloorFound, 1)
    staged = [here.folder / f"{name}.0.tmp" for name in found.names]
    for name, path in zip(found.names, staged, strict=True):
        shutil.copy(there.folder / f"{name}.kv", path)
    here.loop.handle(AdoptFiles(2, tuple(map(str, staged))))
    assert heard(here, FilesAdopted, 2).refusal == ""
    return found


@pytest.mark.parametrize("kind", KINDS)
@few(10)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=900),
    st.lists(st.lists(st.integers(31, 60), min_size=1, max_size=300), max_size=3),
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
)
def test_a_moved_floor_is_restored_whole_and_answers_are_those_of_a_naive_model(
    tmp_path_factory, kind, code, talks, asked
):
    there = machine(tmp_path_factory.mktemp("there"), kind)
    here = machine(tmp_path_factory.mktemp("here"), kind)
    there.floor("code", code)
    there.ask(100, "code", [], 0)
    there.finish()
    for ticket, talk in enumerate(talks):
        there.ask(ticket, "code", talk, 3)
        there.finish()
    found = moved(there, here)
    assert found.tokens == len(code)
    assert here.store.figures()["tier_segments"] == len(found.names)
    assert here.store.bytes == sum(path.stat().st_size for path in here.folder.iterdir())
    here.floor("code", code)
    here.ask(1, "code", asked, 5)
    here.finish()
    assert here.ends[1][0].computed == len(asked)
    assert here.answer(1) == naive_answer([*code, *asked], 5)
    there.loop.close()
    here.loop.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_floor_that_nobody_has_computed_has_no_files(tmp_path, kind):
    one = machine(tmp_path, kind)
    one.floor("code", [1] * 600)
    one.loop.handle(FindFloor(1, "code"))
    assert heard(one, FloorFound, 1) == FloorFound(1, (), 0)
    one.loop.handle(FindFloor(2, "unknown"))
    assert heard(one, FloorFound, 2) == FloorFound(2, (), 0)
    one.loop.close()


def test_who_asks_for_files_waits_until_they_are_written(tmp_path, monkeypatch):
    one = machine(tmp_path, "ranges")
    one.floor("code", [1] * 600)
    one.ask(1, "code", [2], 1)
    while not one.ends:
        one.loop.round()
    one.loop.handle(FindFloor(1, "code"))
    one.loop.round()
    assert not any(isinstance(said, FloorFound) for said in one.told), "it is still in the cells alone"
    assert heard(one, FloorFound, 1).tokens == 600
    one.loop.close()


def test_a_disk_that_takes_nothing_ends_the_waiting_with_what_there_is(tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_module, "write", full)
    one = machine(tmp_path, "ranges")
    one.floor("code", [1] * 600)
    one.ask(1, "code", [2], 1)
    one.finish()
    one.loop.handle(FindFloor(1, "code"))
    assert heard(one, FloorFound, 1) == FloorFound(1, (), 0)
    one.loop.close()


@pytest.mark.parametrize("fault", ["gone", "damaged", "not to be moved"])
def test_files_are_taken_all_or_none(tmp_path, monkeypatch, fault):
    there, here = machine(tmp_path / "there", "ranges"), machine(tmp_path / "here", "ranges")
    there.floor("code", [1] * 600)
    there.ask(1, "code", [2], 1)
    there.finish()
    there.loop.handle(FindFloor(1, "code"))
    found = heard(there, FloorFound, 1)
    staged = [here.folder / f"{name}.0.tmp" for name in found.names]
    for name, path in zip(found.names, staged, strict=True):
        shutil.copy(there.folder / f"{name}.kv", path)
    if fault == "gone":
        staged[-1].unlink()
    elif fault == "damaged":
        staged[-1].write_bytes(b"LOREKV")
    else:
        (here.folder / f"{found.names[-1]}.kv").mkdir()
    here.loop.handle(AdoptFiles(1, tuple(map(str, staged))))
    assert heard(here, FilesAdopted, 1).refusal
    assert here.store.figures()["tier_segments"] == here.store.bytes == 0
    assert not [path for path in here.folder.glob("*.kv") if path.is_file()]
    there.loop.close()
    here.loop.close()


def test_without_checkpoints_nothing_is_found_and_nothing_taken(tmp_path):
    one = Machine()
    one.floor("code", [1] * 600)
    one.loop.handle(FindFloor(1, "code"))
    one.loop.handle(AdoptFiles(2, ()))
    one.round()
    assert [said for said in one.told if isinstance(said, FloorFound | FilesAdopted)] == [
        FilesAdopted(2, "no checkpoints are kept"),
        FloorFound(1, (), 0),
    ]
