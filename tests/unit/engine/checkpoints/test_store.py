"""Checkpoints on disk: within their budget at any time, what is worth least goes first, and every fault is a miss."""

import os
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checkpoints import STATE, alone, header, store

from orchestrator.engine.checkpoints import file as writer_module
from orchestrator.engine.checkpoints import store as store_module
from orchestrator.engine.checkpoints.coding import PLAIN, Coding, DamagedCheckpoint, Sealed
from orchestrator.engine.checkpoints.file import SegmentHeader, delete, read_state, usable, write
from orchestrator.engine.checkpoints.manager import segments
from orchestrator.engine.checkpoints.store import CheckpointStore, checkpoint_name
from orchestrator.engine.prefill_cost import UNSEEN


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def kept_in(folder: Path, heads: list[SegmentHeader], **options: int) -> CheckpointStore:
    """A store in which each of them is written."""
    kept = store(folder, **options)
    for head in heads:
        kept.keep(head, STATE, UNSEEN)
        kept.flush()
    return kept


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A disk that writes nothing before this is set."""
    disk = threading.Event()
    monkeypatch.setattr(writer_module, "write", lambda *what: disk.wait(30) and write(*what))
    return disk


def no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


# ---- what is kept and found


def test_what_is_kept_comes_back_before_and_after_it_is_written(tmp_path: Path, slow: threading.Event) -> None:
    kept = store(tmp_path)
    kept.keep(header(0), STATE, UNSEEN)
    assert (kept.load(header(0)), kept.arrived(header(0).name)) == (STATE, False)
    slow.set()
    kept.flush()
    assert (kept.load(header(0)), kept.arrived(header(0).name)) == (STATE, True)
    assert (kept.bytes, kept.counters.disk_hits) == (size(tmp_path), 2)
    kept.close()


def test_what_nobody_kept_is_a_miss(tmp_path: Path) -> None:
    kept = store(tmp_path)
    assert kept.load(header(0)) is None
    assert kept.counters.misses == 1
    kept.close()


def test_the_next_process_finds_what_was_written(tmp_path: Path) -> None:
    kept_in(tmp_path, [header(0)]).close()
    again = store(tmp_path)
    assert again.load(header(0)) == STATE
    assert again.load(header(1)) is None
    again.close()


def test_what_was_used_last_stays_longest_also_over_a_restart(tmp_path: Path) -> None:
    heads = [alone(number) for number in range(4)]
    kept_in(tmp_path, heads).close()
    for age, head in enumerate(heads):
        os.utime(tmp_path / f"{head.name}.kv", (age, age))
    kept = store(tmp_path)
    kept.load(heads[0])
    kept.close()
    kept = store(tmp_path, budget=5000)
    assert [kept.holds(head.name) for head in heads] == [True, False, False, True]
    kept.close()


def test_nothing_goes_before_what_goes_on_from_it(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, [header(number) for number in range(6)], budget=9500)
    held = [kept.holds(header(number).name) for number in range(6)]
    assert held == sorted(held, reverse=True)
    assert 2 <= sum(held) < 6
    kept.close()


# ---- the budget


def test_the_budget_holds_and_the_oldest_files_go_first(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, [alone(number) for number in range(8)], budget=8000)
    assert size(tmp_path) == kept.bytes <= 8000
    assert kept.holds(alone(7).name)
    assert not kept.holds(alone(0).name)
    assert kept.counters.disk_evicted == 8 - len(list(tmp_path.iterdir()))
    kept.close()


def test_the_folder_is_never_larger_than_its_budget_while_a_slow_disk_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room was made after files were written: 21.7 MB lay there at a budget of 6, for as long as the writer was at work."""
    largest = [0]

    def slowly(*what: object) -> int:
        time.sleep(0.005)
        written = write(*what)  # type: ignore[arg-type]
        largest[0] = max(largest[0], size(tmp_path))
        return written

    monkeypatch.setattr(writer_module, "write", slowly)
    kept = store(tmp_path, budget=8000)
    for number in range(40):
        kept.keep(alone(number), STATE, UNSEEN)
    kept.flush()
    assert 4000 < largest[0] <= 8000
    assert size(tmp_path) == kept.bytes
    kept.close()


def test_a_segment_larger_than_the_budget_is_not_written(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, [alone(0)], budget=100)
    assert (list(tmp_path.iterdir()), kept.bytes, kept.holds(alone(0).name)) == ([], 0, False)
    kept.close()


def another_model(root: Path, name: str, used: int) -> None:
    (root / name).mkdir()
    (root / name / "a.kv").write_bytes(b"x" * 1000)
    os.utime(root / name, (used, used))


def test_models_that_are_not_loaded_share_the_budget_and_the_longest_unused_goes_first(tmp_path: Path) -> None:
    for name, used in (("loaded", 1), ("recent", 3), ("old", 2)):
        another_model(tmp_path, name, used)
    kept = store(tmp_path / "loaded", budget=4700)
    kept.keep(alone(0), STATE, UNSEEN)
    kept.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loaded", "old", "recent"]
    kept.keep(alone(1), STATE, UNSEEN)
    kept.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loaded"]
    assert [kept.holds(alone(number).name) for number in range(2)] == [True, True]
    kept.close()


def test_when_a_model_is_loaded_others_go_until_all_is_within_the_budget(tmp_path: Path) -> None:
    another_model(tmp_path, "old", 1)
    another_model(tmp_path, "recent", 2)
    (tmp_path / "loaded").mkdir()
    store(tmp_path / "loaded", budget=1500).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loaded", "recent"]


# ---- forgetting


def test_forgetting_while_it_is_written_leaves_no_file(tmp_path: Path) -> None:
    kept = store(tmp_path)
    for number in range(8):
        kept.keep(header(number), STATE * 50, UNSEEN)
        kept.forget(header(number).name)
    kept.flush()
    assert (list(tmp_path.iterdir()), kept.bytes) == ([], 0)
    kept.close()


def test_what_is_forgotten_while_it_is_written_and_kept_again_is_there(tmp_path: Path, slow: threading.Event) -> None:
    kept = store(tmp_path)
    kept.keep(header(0), STATE, UNSEEN)
    kept.forget(header(0).name)
    kept.keep(header(0), STATE * 2, UNSEEN)
    slow.set()
    kept.flush()
    assert kept.load(header(0)) == STATE * 2
    assert kept.bytes == size(tmp_path)
    kept.close()


def test_what_is_forgotten_on_a_slow_disk_takes_no_time_and_is_there_if_it_is_kept_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, disk = kept_in(tmp_path, [header(number) for number in range(8)]), threading.Event()
    monkeypatch.setattr(writer_module, "delete", lambda path: disk.wait(30) and delete(path))
    for number in range(8):
        kept.forget(header(number).name)
    assert (len(list(tmp_path.iterdir())), kept.bytes) == (8, 0)
    kept.keep(header(0), STATE, UNSEEN)
    disk.set()
    kept.flush()
    assert [path.stem for path in tmp_path.iterdir()] == [header(0).name]
    kept.close()


def test_a_file_that_cannot_be_deleted_holds_up_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = kept_in(tmp_path, [header(0)])
    path = tmp_path / f"{header(0).name}.kv"
    path.unlink()
    path.mkdir()
    kept.forget(header(0).name)
    kept.keep(header(1), STATE, UNSEEN)
    kept.flush()
    assert (tmp_path / f"{header(1).name}.kv").exists()
    assert "cannot be deleted" in caplog.text
    kept.close()


# ---- slow and full disks


def test_no_more_is_saved_ahead_of_a_slow_disk_than_a_bounded_heap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: threading.Event
) -> None:
    monkeypatch.setattr(store_module, "WAITING_BYTES", 1500)
    kept = store(tmp_path)
    kept.keep(header(0), STATE, UNSEEN)
    assert kept.takes_one()
    kept.keep(header(1), STATE, UNSEEN)
    assert not kept.takes_one()
    slow.set()
    kept.flush()
    assert kept.takes_one()
    kept.close()


def test_a_write_that_fails_is_counted_and_forgotten_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "write", no_space)
        for number in range(6):
            kept.keep(header(number), STATE, UNSEEN)
        kept.flush()
    assert (kept.bytes, kept.figures()["tier_segments"], kept.takes_one()) == (0, 0, True)
    assert (kept.counters.write_failures, caplog.text.count("No space left")) == (6, 1)
    kept.keep(header(0), STATE, UNSEEN)
    kept.flush()
    assert len(list(tmp_path.iterdir())) == 1
    kept.close()


class Reported(threading.Semaphore):
    """Counts the writer's reports, and waits for them."""

    def __init__(self) -> None:
        super().__init__(0)

    def __call__(self) -> None:
        self.release()

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self.acquire(timeout=30)


def test_after_each_file_the_writer_reports_also_where_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = Reported()
    kept = CheckpointStore("root", tmp_path, 1 << 20, reported)
    kept.keep(alone(0), STATE, UNSEEN)
    reported.wait(1)
    monkeypatch.setattr(writer_module, "write", no_space)
    kept.keep(alone(1), STATE, UNSEEN)
    reported.wait(1)
    kept.note_written()
    assert (kept.arrived(alone(0).name), kept.holds(alone(1).name), kept.bytes) == (True, False, size(tmp_path))
    kept.close()


def test_a_closed_store_has_no_thread_left(tmp_path: Path) -> None:
    before = threading.active_count()
    store(tmp_path).close()
    assert threading.active_count() == before


# ---- whatever lies in the folder is used, or is a miss

IDS = array("I", [1, 2, 3])
NAME = checkpoint_name("root", IDS)
HEADER = SegmentHeader("root", NAME, "root", 0, 3, IDS)


def odd_things(folder: Path) -> None:
    (folder / "folder.kv").mkdir()
    (folder / "dangling.kv").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.kv")
    (folder / "zero.kv").symlink_to("/dev/zero")
    (folder / "left.tmp").mkdir()


def test_odd_things_beside_a_checkpoint_are_reported_and_the_checkpoint_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / f"{NAME}.kv", HEADER, b"state")
    odd_things(tmp_path)
    kept = store(tmp_path)
    assert kept.load(HEADER) == b"state"
    assert kept.counters.damaged == 4
    assert not (tmp_path / "pipe.kv").exists()
    assert "folder.kv is no file" in caplog.text
    kept.close()


def test_a_checkpoint_whose_place_a_pipe_took_is_a_miss_and_nobody_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.kv"
    write(path, HEADER, b"state")
    kept = store(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert kept.load(HEADER) is None
    kept.close()


def test_files_of_another_root_and_what_a_killed_writer_left_are_deleted(tmp_path: Path) -> None:
    other = store(tmp_path, root="other")
    other.keep(header(0, "other"), STATE, UNSEEN)
    other.close()
    (tmp_path / "half.123.tmp").write_bytes(b"x")
    (tmp_path / "noise.kv").write_bytes(b"x" * 300)
    kept = store(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert kept.counters.damaged == 1
    kept.close()


def test_a_file_that_vanished_or_was_damaged_is_a_miss_and_is_forgotten(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, [header(number) for number in range(2)])
    first, second = (tmp_path / f"{header(number).name}.kv" for number in range(2))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    assert [kept.load(header(number)) for number in range(2)] == [None, None]
    kept.flush()
    assert (kept.counters.damaged, kept.bytes, list(tmp_path.iterdir())) == (2, 0, [])
    kept.close()


def test_a_device_is_no_checkpoint() -> None:
    with pytest.raises(DamagedCheckpoint, match="no file"):
        read_state(Path("/dev/zero"), HEADER)


def test_a_folder_that_cannot_be_made_is_reported_as_unusable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_bytes(b"")
    for folder in (tmp_path / "taken", tmp_path / ("x" * 300) / "loaded"):  # a longer name than may be
        assert not usable(folder)
    assert caplog.text.count("no checkpoints are kept on disk") == 2


FLOOR = array("I", range(512))


@pytest.fixture
def folder_store(tmp_path: Path) -> Iterator[CheckpointStore]:
    kept = CheckpointStore("root", tmp_path, 1 << 30)
    yield kept
    kept.close()


def keep(folder_store: CheckpointStore, ids: "array[int]", cut: int, owner: int = 1) -> list[SegmentHeader]:
    """All segments of a path."""
    headers = [
        SegmentHeader("root", one.name, one.parent, one.start, one.end, ids[one.start : one.end])
        for one in segments("root", ids, cut, owner, len(ids))
    ]
    for one in headers:
        folder_store.keep(one, b"state", UNSEEN)
    return headers


def held(folder_store: CheckpointStore, headers: list[SegmentHeader]) -> list[bool]:
    return [folder_store.holds(header.name) for header in headers]


def test_a_tail_of_more_segments_than_python_has_frames_goes_with_its_floor(folder_store: CheckpointStore) -> None:
    tail = keep(folder_store, FLOOR + array("I", range((sys.getrecursionlimit() + 100) * 256)), len(FLOOR))
    folder_store.forget_chain([one.name for one in tail[:2]], ())
    assert folder_store.figures()["tier_segments"] == 0


def test_what_hangs_behind_a_segment_goes_the_last_ones_first(
    folder_store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = keep(folder_store, FLOOR + array("I", range(1000)), len(FLOOR))
    order: list[str] = []
    monkeypatch.setattr(folder_store, "forget", order.append)
    folder_store.forget_from(tail[2])
    assert order == [one.name for one in reversed(tail[2:])]


def test_behind_its_end_conversations_go_and_longer_floors_stay_with_theirs(folder_store: CheckpointStore) -> None:
    longer = keep(folder_store, FLOOR + array("I", [7] * 300), 700)
    mine, yours = (keep(folder_store, FLOOR + array("I", [owner] * 300), len(FLOOR), owner) for owner in (1, 2))
    folder_store.forget_chain([one.name for one in longer[:2]], ())
    assert held(folder_store, longer) == [True] * 4
    assert held(folder_store, [*mine[2:], *yours[2:]]) == [False] * 4


def test_what_another_floor_is_made_of_stays_though_nothing_goes_on_from_it(folder_store: CheckpointStore) -> None:
    floor = keep(folder_store, FLOOR + array("I", [7] * 300), 812)
    names = [one.name for one in floor]
    folder_store.forget_chain(names, names[:2])
    assert held(folder_store, floor) == [True, True, False, False]


# ---- encrypted


def sealed(folder: Path, coding: Coding) -> CheckpointStore:
    return CheckpointStore("root", folder, 1 << 20, coding=coding)


def of_root(kept: CheckpointStore) -> SegmentHeader:
    ids = array("I", [7] * 256)
    return SegmentHeader(kept.root, checkpoint_name(kept.root, ids), kept.root, 0, 256, ids)


@pytest.mark.parametrize("after", [PLAIN, Sealed(b"q" * 32)], ids=["no key", "another key"])
def test_with_the_key_it_is_found_again_and_without_it_deleted_and_no_damage(
    tmp_path: Path, after: Coding, caplog: pytest.LogCaptureFixture
) -> None:
    kept = sealed(tmp_path, Sealed(b"k" * 32))
    kept.keep(of_root(kept), STATE, UNSEEN)
    kept.close()
    again = sealed(tmp_path, Sealed(b"k" * 32))
    assert again.load(of_root(again)) == STATE
    again.close()
    other = sealed(tmp_path, after)
    other.close()
    assert (list(tmp_path.glob("*.kv")), other.counters.damaged) == ([], 0)
    assert "1 checkpoints were deleted" in caplog.text


def test_plain_checkpoints_of_all_models_go_as_soon_as_there_is_a_key(tmp_path: Path) -> None:
    for model in ("own", "other"):
        (tmp_path / model).mkdir()
        kept_in(tmp_path / model, [header(0)]).close()
    (tmp_path / "other" / "costs").write_bytes(b"what was learned")
    sealed(tmp_path / "own", Sealed(b"k" * 32)).close()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["costs"]
