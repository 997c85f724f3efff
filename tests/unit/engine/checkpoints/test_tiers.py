"""The tiers below VRAM: within their budgets, longest unused first, and every fault of a file is a miss."""

import os
from pathlib import Path

from support.checkpoints import STATE, alone, header, tiers

from orchestrator.engine.messages import Tier


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
        kept.keep(alone(number), STATE, through=False)
    kept.load(alone(0))
    kept.keep(alone(2), STATE, through=False)
    assert [kept.holds(alone(number).name) for number in range(3)] == [True, False, True]
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
        kept.keep(alone(number), STATE, through=True)
        kept.flush()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == kept.disk_bytes <= 8000
    assert kept.holds(alone(7).name)
    assert not kept.holds(alone(0).name)
    kept.close()


def test_nothing_leaves_before_what_goes_on_from_it(tmp_path: Path) -> None:
    for kept in (tiers(ram=3500), tiers(tmp_path, ram=0, disk=9500)):
        for number in range(6):
            kept.keep(header(number), STATE, through=True)
            kept.flush()
        held = [kept.holds(header(number).name) for number in range(6)]
        assert held == sorted(held, reverse=True)
        assert 2 <= sum(held) < 6
        kept.close()


def test_only_as_much_is_written_as_has_to_leave_ram(tmp_path: Path) -> None:
    kept = tiers(tmp_path, ram=4500)
    for number in range(5):
        kept.keep(header(number), STATE, through=False)
    kept.flush()
    assert len(list(tmp_path.iterdir())) == 1
    assert kept.ram_bytes == 4000
    kept.close()


def test_what_was_used_last_stays_longest_also_over_a_restart(tmp_path: Path) -> None:
    heads = [alone(number) for number in range(4)]
    kept = tiers(tmp_path)
    for age, head in enumerate(heads):
        kept.keep(head, STATE, through=True)
        kept.flush()
        os.utime(tmp_path / f"{head.name}.kv", (age, age))
    kept.close()
    kept = tiers(tmp_path)
    kept.load(heads[0])
    kept.close()
    kept = tiers(tmp_path, disk=5000)
    assert [kept.holds(head.name) for head in heads] == [True, False, False, True]
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
    kept.flush()
    assert (kept.counters.damaged, kept.disk_bytes, list(tmp_path.iterdir())) == (2, 0, [])
    kept.close()
