"""Whatever lies in the folder of checkpoints is used, or is a miss; it never keeps the engine from starting."""

import os
from array import array

import pytest

from orchestrator.engine.checkpoints.file import DamagedCheckpoint, SegmentHeader, read_state, write
from orchestrator.engine.checkpoints.segments import named
from orchestrator.engine.checkpoints.store import Tiers
from orchestrator.engine.messages import Tier

IDS = array("I", [1, 2, 3])
NAME = named("root", IDS)
HEADER = SegmentHeader("root", NAME, "root", 0, 3, IDS)


def odd_things(folder):
    (folder / "folder.kv").mkdir()
    (folder / "dangling.kv").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.kv")
    (folder / "zero.kv").symlink_to("/dev/zero")
    (folder / "left.tmp").mkdir()


def test_odd_things_beside_a_checkpoint_are_told_and_the_checkpoint_is_found(tmp_path, caplog):
    write(tmp_path / f"{NAME}.kv", HEADER, b"state")
    odd_things(tmp_path)
    tiers = Tiers("root", tmp_path, 0, 1 << 30)
    assert tiers.load(HEADER) == (b"state", Tier.DISK)
    assert tiers.counters.damaged == 4
    assert not (tmp_path / "pipe.kv").exists()
    assert "folder.kv is no file" in caplog.text
    tiers.close()


def test_a_checkpoint_whose_place_a_pipe_took_is_a_miss_and_nobody_waits_for_it(tmp_path):
    path = tmp_path / f"{NAME}.kv"
    write(path, HEADER, b"state")
    tiers = Tiers("root", tmp_path, 0, 1 << 30)
    path.unlink()
    os.mkfifo(path)
    assert tiers.load(HEADER) is None
    tiers.close()


def test_a_file_in_the_folder_s_place_leaves_the_disk_tier_out(tmp_path, caplog):
    (tmp_path / "taken").write_bytes(b"")
    tiers = Tiers("root", tmp_path / "taken", 1 << 20, 1 << 30)
    tiers.keep(HEADER, b"state", through=True)
    assert tiers.load(HEADER) == (b"state", Tier.RAM)
    assert "no checkpoints are kept on disk" in caplog.text
    tiers.close()


def test_a_device_is_no_checkpoint(tmp_path):
    with pytest.raises(DamagedCheckpoint, match="no file"):
        read_state(type(tmp_path)("/dev/zero"), HEADER)
