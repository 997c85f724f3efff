"""The tiers below VRAM: within their budgets, longest unused first, and every fault of a file is a miss."""

import threading
from array import array
from pathlib import Path

import pytest

from orchestrator.engine import writer as writer_module
from orchestrator.engine.checkpoint_file import Header
from orchestrator.engine.messages import Tier
from orchestrator.engine.segments import CUT, segments
from orchestrator.engine.tiers import Tiers

IDS = array("I", range(8 * CUT))
STATE = b"s" * 1000


def header(number: int, root: str = "root") -> Header:
    one = list(segments(root, IDS, len(IDS), 1, len(IDS)))[number]
    return Header(root, one.name, one.parent, one.start, one.end, IDS[one.start : one.end])


def tiers(folder: Path | None = None, ram: int = 1 << 20, disk: int = 1 << 20, root: str = "root") -> Tiers:
    return Tiers(root, folder, ram, disk)


def test_what_is_kept_comes_back_from_ram() -> None:
    kept = tiers()
    kept.keep(header(0), STATE, through=False)
    assert kept.load(header(0)) == (STATE, Tier.RAM)
    assert (kept.ram_bytes, kept.counters.ram_hits) == (1000, 1)
    kept.close()


def test_what_nobody_kept_is_a_miss() -> None:
    kept = tiers()
    assert kept.load(header(0)) is None
    assert kept.counters.misses == 1
    kept.close()


def test_without_a_disk_the_longest_unused_leaves_ram_for_good() -> None:
    kept = tiers(ram=2500)
    for number in range(2):
        kept.keep(header(number), STATE, through=False)
    kept.load(header(0))
    kept.keep(header(2), STATE, through=False)
    assert [kept.holds(header(number).name) for number in range(3)] == [True, False, True]
    assert kept.ram_bytes <= 2500
    kept.close()


def test_what_leaves_ram_is_found_on_disk(tmp_path: Path) -> None:
    kept = tiers(tmp_path, ram=1500)
    for number in range(4):
        kept.keep(header(number), STATE, through=False)
    kept.flush()
    assert kept.ram_bytes <= 1500
    assert kept.load(header(0)) == (STATE, Tier.DISK)
    kept.close()


def test_the_next_process_finds_what_was_written_through(tmp_path: Path) -> None:
    kept = tiers(tmp_path)
    kept.keep(header(0), STATE, through=True)
    kept.keep(header(1), STATE, through=False)
    kept.close()
    again = tiers(tmp_path)
    assert again.load(header(0)) == (STATE, Tier.DISK)
    assert again.load(header(1)) is None
    again.close()


def test_the_disk_s_budget_holds_and_the_oldest_files_go_first(tmp_path: Path) -> None:
    kept = tiers(tmp_path, ram=0, disk=8000)
    for number in range(8):
        kept.keep(header(number), STATE, through=True)
        kept.flush()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == kept.disk_bytes <= 8000
    assert kept.holds(header(7).name)
    assert not kept.holds(header(0).name)
    kept.close()


def test_files_of_another_root_and_what_a_killed_writer_left_are_swept(tmp_path: Path) -> None:
    other = tiers(tmp_path, root="other")
    other.keep(header(0, "other"), STATE, through=True)
    other.close()
    (tmp_path / "half.123.tmp").write_bytes(b"x")
    (tmp_path / "noise.kv").write_bytes(b"x" * 300)
    kept = tiers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert kept.counters.damaged == 1
    kept.close()


def test_a_file_that_vanished_or_was_damaged_is_a_miss_and_is_forgotten(tmp_path: Path) -> None:
    kept = tiers(tmp_path, ram=0)
    for number in range(2):
        kept.keep(header(number), STATE, through=True)
    kept.flush()
    first, second = (tmp_path / f"{header(number).name}.kv" for number in range(2))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    assert [kept.load(header(number)) for number in range(2)] == [None, None]
    assert (kept.counters.damaged, kept.disk_bytes, list(tmp_path.iterdir())) == (2, 0, [])
    kept.close()


def test_a_write_that_fails_is_counted_and_the_state_stays_in_ram(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(28, "No space left on device")

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


def test_a_closed_writer_has_no_thread_left(tmp_path: Path) -> None:
    before = threading.active_count()
    tiers(tmp_path).close()
    assert threading.active_count() == before
