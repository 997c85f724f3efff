"""What the tiers do while a disk is slow, full, or at work: nobody waits for it, and what it holds up is bounded."""

import threading
from pathlib import Path

import pytest
from support.checkpoints import STATE, alone, header, tiers

from orchestrator.engine.cache.eviction import UNSEEN, Price
from orchestrator.engine.checkpoints import store as tiers_module
from orchestrator.engine.checkpoints import writer as writer_module
from orchestrator.engine.checkpoints.checkpoint_folder import delete
from orchestrator.engine.checkpoints.file import write
from orchestrator.engine.checkpoints.store import Tiers
from orchestrator.engine.messages import Tier


def test_a_full_disk_fills_no_ram_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tiers(tmp_path, ram=2500)
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "write", no_space)
        for number in range(6):
            kept.keep(header(number), STATE, through=True)
        kept.flush()
    assert kept.ram_bytes <= 2500
    assert (kept.counters.write_failures, caplog.text.count("No space left")) == (6, 1)
    kept.keep(header(7), STATE, through=True)
    kept.flush()
    assert len(list(tmp_path.iterdir())) == 1
    kept.close()


def no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


def test_a_write_that_fails_is_counted_and_the_state_stays_in_ram(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "write", no_space)
    kept = tiers(tmp_path)
    kept.keep(header(0), STATE, through=True)
    kept.flush()
    assert kept.load(header(0)) == (STATE, Tier.RAM)
    assert kept.counters.write_failures == 1
    assert "No space left" in caplog.text
    kept.close()


def test_forgetting_while_it_is_written_leaves_no_file(tmp_path: Path) -> None:
    kept = tiers(tmp_path)
    for number in range(8):
        kept.keep(header(number), STATE * 50, through=True)
        kept.forget(header(number).name)
    kept.flush()
    assert (list(tmp_path.iterdir()), kept.ram_bytes, kept.disk_bytes) == ([], 0, 0)
    kept.close()


def test_what_is_forgotten_on_a_slow_disk_takes_no_time_and_is_there_if_it_is_kept_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, disk = tiers(tmp_path), threading.Event()
    for number in range(8):
        kept.keep(header(number), STATE, through=True)
    kept.flush()
    monkeypatch.setattr(writer_module, "delete", lambda path: disk.wait(30) and delete(path))
    for number in range(8):
        kept.forget(header(number).name)
    assert (len(list(tmp_path.iterdir())), kept.disk_bytes) == (8, 0)
    kept.keep(header(0), STATE, through=True)
    disk.set()
    kept.flush()
    assert [path.stem for path in tmp_path.iterdir()] == [header(0).name]
    kept.close()
    assert tiers(tmp_path).load(header(0)) == (STATE, Tier.DISK)


def test_a_file_that_cannot_be_deleted_holds_up_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = tiers(tmp_path)
    kept.keep(header(0), STATE, through=True)
    kept.flush()
    path = tmp_path / f"{header(0).name}.kv"
    path.unlink()
    path.mkdir()
    kept.forget(header(0).name)
    kept.keep(header(1), STATE, through=True)
    kept.flush()
    assert (tmp_path / f"{header(1).name}.kv").exists()
    assert "cannot be deleted" in caplog.text
    kept.close()


class Told(threading.Semaphore):
    """Counts what the writer tells, and waits for it."""

    def __init__(self) -> None:
        super().__init__(0)

    def __call__(self) -> None:
        self.release()

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self.acquire(timeout=30)


def test_after_each_file_the_writer_tells_and_then_bytes_and_budgets_are_right(tmp_path: Path) -> None:
    told = Told()
    kept = Tiers("root", tmp_path, 2500, 5000, written=told)
    for number in range(6):
        kept.keep(alone(number), STATE, through=True)
    told.wait(6)
    kept.settle()
    assert 0 < kept.disk_bytes <= 5000
    assert kept.ram_bytes <= 2500
    kept.flush()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == kept.disk_bytes
    kept.close()


def test_a_write_that_fails_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "write", no_space)
    told = Told()
    kept = Tiers("root", tmp_path, 0, 1 << 20, written=told)
    kept.keep(header(0), STATE, through=True)
    told.wait(1)
    kept.settle()
    assert (kept.ram_bytes, kept.disk_bytes, kept.holds(header(0).name)) == (0, 0, False)
    kept.close()


def test_where_nothing_is_held_twice_ram_has_what_is_not_written_yet_and_what_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Tiers("root", tmp_path, 1 << 20, 1 << 20, twice=False)
    kept.keep(header(0), STATE, through=True)
    assert kept.ram_bytes == 1000
    kept.flush()
    assert (kept.ram_bytes, kept.counters.ram_evicted, kept.load(header(0))) == (0, 0, (STATE, Tier.DISK))
    kept.keep(header(0), STATE, through=False)
    kept.keep(alone(1), STATE, through=False)
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "write", no_space)
        kept.keep(alone(2), STATE, through=True)
        kept.flush()
    assert kept.ram_bytes == 2000
    kept.close()


def test_no_more_is_saved_ahead_of_a_slow_disk_than_a_bounded_heap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = threading.Event()
    monkeypatch.setattr(tiers_module, "IN_HAND", 1500)
    monkeypatch.setattr(writer_module, "write", lambda *told: disk.wait(30) and write(*told))
    kept = tiers(tmp_path)
    kept.keep(header(0), STATE, through=True)
    assert not kept.crowded()
    kept.keep(header(1), STATE, through=True)
    assert kept.crowded()
    disk.set()
    kept.flush()
    assert not kept.crowded()
    kept.close()


@pytest.mark.parametrize("ram", [0, 2500])
def test_what_leaves_the_cells_waits_for_a_slow_disk_in_a_bounded_heap_and_what_comes_then_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ram: int
) -> None:
    disk = threading.Event()
    monkeypatch.setattr(tiers_module, "IN_HAND", 1500)
    monkeypatch.setattr(writer_module, "write", lambda *told: disk.wait(30) and write(*told))
    kept = tiers(tmp_path, ram=ram)
    for number in range(12):
        if kept.takes_one():
            kept.keep(alone(number), STATE, through=False)
        else:
            kept.lost_one()
        assert kept.ram_bytes <= ram + 1500 + 1000
    held = [number for number in range(12) if kept.holds(alone(number).name)]
    assert kept.counters.ram_evicted == 12 - len(held) > 5
    disk.set()
    kept.flush()
    assert [kept.load(alone(number)) is not None for number in held] == [True] * len(held)
    kept.close()


def test_without_ram_of_its_own_what_leaves_the_cells_is_written_at_once_and_nobody_asks_what_goes_first(
    tmp_path: Path,
) -> None:
    asked: list[int] = []

    def price() -> Price:
        asked.append(1)
        return UNSEEN

    kept = Tiers("root", tmp_path, 0, 1 << 20, price=price)
    for number in range(20):
        kept.keep(alone(number), STATE, through=False)
    kept.flush()
    assert (asked, kept.ram_bytes, len(list(tmp_path.iterdir()))) == ([], 0, 20)
    kept.close()


def test_a_closed_writer_has_no_thread_left(tmp_path: Path) -> None:
    before = threading.active_count()
    tiers(tmp_path).close()
    assert threading.active_count() == before
