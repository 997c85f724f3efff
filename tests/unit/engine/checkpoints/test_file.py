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

from orchestrator.engine.checkpoints.coding import PLAIN, Coding, DamagedCheckpoint, OtherCoding, Sealed
from orchestrator.engine.checkpoints.file import (
    SegmentHeader,
    file_size,
    other_models,
    read_header,
    read_state,
    write,
)

HEADER = SegmentHeader("a" * 64, "b" * 64, "c" * 64, 256, 300, array("I", range(44)))
STATE = bytes(range(256)) * 3
anew = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=[PLAIN, Sealed(b"k" * 32)], ids=["plain", "encrypted"])
def coding(request: pytest.FixtureRequest) -> Coding:
    chosen: Coding = request.param
    return chosen


@pytest.fixture
def path(tmp_path: Path, coding: Coding) -> Path:
    write(tmp_path / "x.kv", HEADER, STATE, coding)
    return tmp_path / "x.kv"


def read(path: Path, coding: Coding) -> tuple[SegmentHeader, bytes]:
    header = read_header(path, coding)
    return header, read_state(path, header, coding)


@anew
@given(st.binary(max_size=2000), st.lists(st.integers(0, 2**32 - 1), max_size=300), st.integers(0, 2**40))
def test_what_was_written_is_read(tmp_path: Path, coding: Coding, state: bytes, ids: list[int], start: int) -> None:
    header = SegmentHeader("a" * 64, "b" * 64, "c" * 64, start, start + len(ids), array("I", ids))
    size = write(tmp_path / "y.kv", header, state, coding)
    assert size == file_size(header, state, coding)
    assert read(tmp_path / "y.kv", coding) == (header, state)
    assert (tmp_path / "y.kv").stat().st_size == size
    assert [file.name for file in tmp_path.iterdir() if "y" in file.name] == ["y.kv"]


@anew
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_file_with_any_byte_flipped_is_damaged(path: Path, coding: Coding, at: int, by: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= by
    spoiled = path.with_name("spoiled.kv")
    spoiled.write_bytes(data)
    with pytest.raises(DamagedCheckpoint):
        read(spoiled, coding)
    with pytest.raises(DamagedCheckpoint):
        read_state(spoiled, HEADER, coding)


@anew
@given(st.integers(0, 10_000))
def test_a_file_cut_anywhere_is_damaged(path: Path, coding: Coding, at: int) -> None:
    spoiled = path.with_name("spoiled.kv")
    spoiled.write_bytes(path.read_bytes()[: at % path.stat().st_size])
    with pytest.raises(DamagedCheckpoint):
        read(spoiled, coding)


@anew
@given(st.binary(min_size=1, max_size=100))
def test_a_file_with_something_behind_it_is_damaged(path: Path, coding: Coding, more: bytes) -> None:
    spoiled = path.with_name("spoiled.kv")
    spoiled.write_bytes(path.read_bytes() + more)
    with pytest.raises(DamagedCheckpoint, match="truncated"):
        read(spoiled, coding)


@anew
@given(st.binary(max_size=400))
def test_any_bytes_are_no_checkpoint(tmp_path: Path, coding: Coding, data: bytes) -> None:
    (tmp_path / "z.kv").write_bytes(data)
    with pytest.raises(DamagedCheckpoint):
        read(tmp_path / "z.kv", coding)


def test_a_whole_file_of_another_segment_is_damaged(path: Path, coding: Coding) -> None:
    other = SegmentHeader(HEADER.root, "d" * 64, HEADER.parent, HEADER.start, HEADER.end, HEADER.ids)
    with pytest.raises(DamagedCheckpoint, match="another segment"):
        read_state(path, other, coding)


def test_a_header_that_claims_enormous_sizes_allocates_nothing(path: Path, coding: Coding) -> None:
    data = bytearray(path.read_bytes())
    data[8:12] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    for reading in (lambda: read_header(path, coding), lambda: read_state(path, HEADER, coding)):
        tracemalloc.start()
        with pytest.raises(DamagedCheckpoint, match="truncated"):
            reading()
        (_, most), _ = tracemalloc.get_traced_memory(), tracemalloc.stop()
        assert most < 1 << 20


def test_a_full_disk_leaves_nothing_behind_and_the_old_file_as_it_was(path: Path, coding: Coding) -> None:
    """In a child, because a limit on file sizes is the whole process's."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write(path, HEADER, b"x" * 10_000, coding)
        except OSError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert [file.name for file in path.parent.iterdir()] == ["x.kv"]
    assert read(path, coding) == (HEADER, STATE)


def test_a_folder_without_a_checkpoint_is_no_models_and_stays(tmp_path):
    for name, file in (("own", "a.kv"), ("other", "b.kv"), ("foreign", "weights.gguf")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"x")
    assert [model.folder.name for model in other_models(tmp_path, "own")] == ["other"]


# ---- encrypted


def test_nothing_of_an_encrypted_file_is_read_without_its_key(tmp_path: Path) -> None:
    canary = b"the canary sings at noon"
    header = SegmentHeader("a" * 64, "b" * 64, "c" * 64, 0, 6, array("I", canary))
    for coding, found in ((PLAIN, True), (Sealed(b"k" * 32), False)):
        write(tmp_path / "x.kv", header, canary * 10, coding)
        data = (tmp_path / "x.kv").read_bytes()
        assert [part in data for part in (canary, array("I", canary).tobytes(), b"b" * 64)] == [found] * 3


def test_no_two_files_of_the_same_segment_are_alike(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write(tmp_path / name, HEADER, STATE, Sealed(b"k" * 32))
    first, second = (blocks((tmp_path / name).read_bytes()) for name in ("x", "y"))
    assert not first & second


def blocks(data: bytes) -> set[bytes]:
    """Behind head and key's id, which are the same."""
    return {data[at : at + 16] for at in range(40, len(data), 16)}


@pytest.mark.parametrize(
    ("written", "read_with", "says"),
    [
        (Sealed(b"k" * 32), PLAIN, "no checkpoint of version 1"),
        (PLAIN, Sealed(b"k" * 32), "no checkpoint of version 2"),
        (Sealed(b"k" * 32), Sealed(b"q" * 32), "another key"),
    ],
    ids=["no key", "plain", "another key"],
)
def test_a_file_of_another_coding_is_named_as_that(
    tmp_path: Path, written: Coding, read_with: Coding, says: str
) -> None:
    write(tmp_path / "x.kv", HEADER, STATE, written)
    with pytest.raises(OtherCoding, match=says):
        read_header(tmp_path / "x.kv", read_with)


def test_no_part_of_one_file_is_believed_in_another(tmp_path: Path) -> None:
    coding, sizes = Sealed(b"k" * 32), []
    for name, state in (("x", STATE), ("y", STATE[::-1])):
        sizes.append(write(tmp_path / name, HEADER, state, coding))
    x, y = ((tmp_path / name).read_bytes() for name in ("x", "y"))
    border = sizes[0] - len(STATE) - coding.state_more
    (tmp_path / "z").write_bytes(x[:border] + y[border:])
    with pytest.raises(DamagedCheckpoint, match="not as it was encrypted"):
        read(tmp_path / "z", coding)


def test_names_follow_from_the_key_so_nobody_can_tell_whether_a_text_was_kept() -> None:
    roots = {coding.root("model") for coding in (PLAIN, Sealed(b"k" * 32), Sealed(b"q" * 32))}
    assert len(roots) == 3
    assert Sealed(b"k" * 32).root("model") == Sealed(b"k" * 32).root("model")
