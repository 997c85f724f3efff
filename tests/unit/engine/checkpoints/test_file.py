"""A checkpoint is believed only when every byte is as it was written."""

import os
import resource
import signal
import tracemalloc
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.engine.checkpoints.file import (
    DamagedCheckpoint,
    SegmentHeader,
    other_models,
    read_header,
    read_state,
    write,
)

HEADER = SegmentHeader("a" * 64, "b" * 64, "c" * 64, 256, 300, array("I", range(44)))
STATE = bytes(range(256)) * 3
anew = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "x.kv", HEADER, STATE)
    return tmp_path / "x.kv"


def read(path: Path) -> tuple[SegmentHeader, bytes]:
    header = read_header(path)
    return header, read_state(path, header)


@anew
@given(st.binary(max_size=2000), st.lists(st.integers(0, 2**32 - 1), max_size=300), st.integers(0, 2**40))
def test_what_was_written_is_read(tmp_path: Path, state: bytes, ids: list[int], start: int) -> None:
    header = SegmentHeader("a" * 64, "b" * 64, "c" * 64, start, start + len(ids), array("I", ids))
    size = write(tmp_path / "y.kv", header, state)
    assert read(tmp_path / "y.kv") == (header, state)
    assert (tmp_path / "y.kv").stat().st_size == size
    assert [file.name for file in tmp_path.iterdir() if "y" in file.name] == ["y.kv"]


@anew
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_file_with_any_byte_flipped_is_damaged(path: Path, at: int, by: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= by
    spoiled = path.with_name("spoiled.kv")
    spoiled.write_bytes(data)
    with pytest.raises(DamagedCheckpoint):
        read(spoiled)
    with pytest.raises(DamagedCheckpoint):
        read_state(spoiled, HEADER)


@anew
@given(st.integers(0, 10_000))
def test_a_file_cut_anywhere_is_damaged(path: Path, at: int) -> None:
    spoiled = path.with_name("spoiled.kv")
    spoiled.write_bytes(path.read_bytes()[: at % path.stat().st_size])
    with pytest.raises(DamagedCheckpoint):
        read(spoiled)


@anew
@given(st.binary(min_size=1, max_size=100))
def test_a_file_with_something_behind_it_is_damaged(path: Path, more: bytes) -> None:
    spoiled = path.with_name("spoiled.kv")
    spoiled.write_bytes(path.read_bytes() + more)
    with pytest.raises(DamagedCheckpoint, match="truncated"):
        read(spoiled)


@anew
@given(st.binary(max_size=400))
def test_any_bytes_are_no_checkpoint(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "z.kv").write_bytes(data)
    with pytest.raises(DamagedCheckpoint):
        read(tmp_path / "z.kv")


def test_a_whole_file_of_another_segment_is_damaged(path: Path) -> None:
    other = SegmentHeader(HEADER.root, "d" * 64, HEADER.parent, HEADER.start, HEADER.end, HEADER.ids)
    with pytest.raises(DamagedCheckpoint, match="another segment"):
        read_state(path, other)


def test_a_header_that_claims_enormous_sizes_allocates_nothing(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:12] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    for reading in (lambda: read_header(path), lambda: read_state(path, HEADER)):
        tracemalloc.start()
        with pytest.raises(DamagedCheckpoint, match="truncated"):
            reading()
        (_, most), _ = tracemalloc.get_traced_memory(), tracemalloc.stop()
        assert most < 1 << 20


def test_a_full_disk_leaves_nothing_behind_and_the_old_file_as_it_was(path: Path) -> None:
    """In a child, because a limit on file sizes is the whole process's."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write(path, HEADER, b"x" * 10_000)
        except OSError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert [file.name for file in path.parent.iterdir()] == ["x.kv"]
    assert read(path) == (HEADER, STATE)


def test_a_folder_without_a_checkpoint_is_no_models_and_stays(tmp_path):
    for name, file in (("own", "a.kv"), ("other", "b.kv"), ("foreign", "weights.gguf")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"x")
    assert [model.folder.name for model in other_models(tmp_path, "own")] == ["other"]
