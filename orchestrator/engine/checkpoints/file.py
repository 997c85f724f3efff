"""Checkpoints as files: the threads that write and read them, the folder of one model, the format of one file.

One segment's KV is one file: written whole or not at all, and believed only when every byte is as it was written.

    magic, version, sizes │ root, name, parent, start, end, ids │ state         as a `Coding` writes them

llama.cpp trusts a state blindly: flipped bytes give wrong answers, a truncated one aborts the process. So a file is checked
here before a byte of it goes there; whatever is wrong with it makes it a miss. The same holds for the folder of a model's
checkpoints: anybody may have put anything there, or taken it away.
"""

import logging
import os
import queue
import shutil
import stat
import struct
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from orchestrator.engine.checkpoints.coding import (
    CRC_BYTES,
    PLAIN,
    Checksummed,
    Coding,
    Content,
    DamagedCheckpoint,
    OtherCoding,
    Sealed,
)
from orchestrator.engine.messages import bytes_to_ids
from orchestrator.engine.model import used

SUFFIX = ".kv"
MAGIC = b"LOREKV"
PIECE = 1 << 20  # bytes of a state that are looked at together
MOST_HEADER = 64 << 20  # bytes: 16 million ids
_HEAD = struct.Struct("<6sHIQ")  # magic, version, bytes of the header, bytes of the state
_HEADER = struct.Struct("<64s64s64sQQ")  # root, name, parent, start, end

log = logging.getLogger("lorekeep.engine.checkpoints")


@dataclass(frozen=True)
class SegmentHeader:
    root: str
    name: str
    parent: str
    start: int
    end: int
    ids: "array[int]"


# -- the threads


@dataclass(frozen=True)
class CheckpointWritten:
    """Wakes the loop: a file is written or has failed, and the store has to take note of it."""


@dataclass(frozen=True, eq=False)
class Put:
    """A file to be written."""

    path: Path
    header: SegmentHeader
    state: bytes


@dataclass(frozen=True, eq=False)
class Arrival:
    """Files that somebody else has written, and checked, beside their places: by header, where each lies and its size.
    `reserved`: bytes for those that were not there. `told` gets why they are not taken, or an empty text."""

    staged: Sequence[tuple[SegmentHeader, Path, int]]
    reserved: int
    told: Callable[[str], None]


class Writer:
    """Works in the order of the calls: what is dropped and put again is there.

    In the writing thread `failed` is called with what could not be written, and `done` after each file.
    """

    def __init__(
        self, failed: Callable[[str, OSError], None], done: Callable[[], None], coding: Coding = PLAIN
    ) -> None:
        self._coding = coding
        self._failed = failed
        self._done = done
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._finished: list[tuple[Put | Arrival, str]] = []
        self.waiting_bytes = 0  # of all states that wait or are being written
        self._open = 0  # calls that are not done yet
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def put(self, path: Path, header: SegmentHeader, state: bytes) -> Put:
        put = Put(path, header, state)
        with self._changed:
            self.waiting_bytes += len(state)
        self._enqueue(partial(self._write, put))
        return put

    def take(self, arrival: Arrival, place: Callable[[str], Path]) -> None:
        """Moves all its files to their places, or none."""
        self._enqueue(partial(self._take, arrival, place))

    def drop(self, path: Path) -> None:
        """Deletes a file: a slow disk takes minutes for the thousands of a long conversation."""
        self._enqueue(lambda: delete(path))

    def drop_model(self, folder: Path) -> None:
        self._enqueue(lambda: delete_model(folder))

    def drop_other_codings(self, folder: Path) -> None:
        self._enqueue(lambda: delete_other_codings(folder, self._coding))

    def finished(self) -> list[tuple[Put | Arrival, str]]:
        """What was written or moved since the last call, each with why it could not be, or an empty text."""
        with self._changed:
            finished, self._finished = self._finished, []
        return finished

    def flush(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _enqueue(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._open += 1
        self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def _write(self, put: Put) -> None:
        fault = ""
        try:
            write(put.path, put.header, put.state, self._coding)
        except OSError as error:
            fault = reason(error)
            self._failed(put.header.name, error)
        with self._changed:
            self._finished.append((put, fault))
            self.waiting_bytes -= len(put.state)
        self._done()

    def _take(self, arrival: Arrival, place: Callable[[str], Path]) -> None:
        fault, moved = "", list[Path]()
        try:
            for header, path, _ in arrival.staged:
                moved.append(path.replace(place(header.name)))
        except OSError as error:
            fault = reason(error)
            for path in moved:
                delete(path)
        with self._changed:
            self._finished.append((arrival, fault))
        self._done()


@dataclass
class Reader:
    """Used by one thread, the loop's. The next file is read in a thread of its own and checked in the caller's: one core
    checks while the other waits for the disk and copies."""

    coding: Coding = PLAIN
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "reading"))
    _ahead: tuple[Path, "Future[Content]"] | None = None

    def read(self, path: Path, header: SegmentHeader, following: Path | None) -> bytes:
        """The verified state. Begins to read what is likely to be asked for next; forgets what was expected before. Raises
        DamagedCheckpoint and OSError."""
        ahead, self._ahead = self._ahead, None
        content = ahead[1].result() if ahead is not None and ahead[0] == path else self._content(path)
        if following is not None:
            self._ahead = following, self._thread.submit(self._content, following)
        return verified(path, content, header, self.coding)

    def _content(self, path: Path) -> Content:
        return read_content(path, self.coding)

    def forget_expected(self) -> None:
        """Forgets what was expected, once no file is open."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            wait([ahead[1]])

    def close(self) -> None:
        self.forget_expected()
        self._thread.shutdown()


# -- the folder of one model, and those of others


def folder_of(root: Path, fingerprint: str) -> Path:
    """Where the checkpoints of the model with this fingerprint lie, below the folder of all."""
    return root / fingerprint[:32]


def usable(folder: Path) -> bool:
    """Whether checkpoints can be kept there, after making it. Among other models' folders it is the last one used."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.utime(folder)
    except OSError as error:
        log.warning("no checkpoints are kept on disk: %s", error)
        return False
    return True


def checkpoints(
    folder: Path, root: str, damaged: Callable[[Exception], None], coding: Coding = PLAIN
) -> Iterator[tuple[SegmentHeader, int]]:
    """Headers and sizes of `root`'s files, longest unused first. What is damaged, which is reported, foreign or left over
    is deleted."""
    others: list[Path] = []
    for leftover in folder.glob("*.tmp"):
        delete(leftover)
    for path in sorted(folder.glob(f"*{SUFFIX}"), key=used):
        try:
            header, size = read_header(path, coding), path.stat().st_size
        except OtherCoding:
            others.append(path)
            continue
        except (OSError, DamagedCheckpoint) as error:
            damaged(error)
            delete(path)
            continue
        if header.root == root and path.stem == header.name:
            yield header, size
        else:
            delete(path)
    delete_others(others, coding)


@dataclass(frozen=True)
class OtherModel:
    """The checkpoints of a model that is not loaded."""

    folder: Path
    size: int  # bytes


def other_models(root: Path, own: str) -> list[OtherModel]:
    """All folders of `root` with checkpoints but `own`, longest unused first; none where they cannot be looked for.

    A folder without a checkpoint is not ours to delete.
    """
    try:
        folders = [folder for folder in root.iterdir() if folder.name != own and any(folder.glob(f"*{SUFFIX}"))]
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("checkpoints of other models cannot be looked for: %s", error)
        return []
    return [OtherModel(folder, size_of(folder)) for folder in sorted(folders, key=used)]


def size_of(folder: Path) -> int:
    total = 0
    with suppress(OSError):  # deleted meanwhile, or not for us to read
        for file in folder.iterdir():
            with suppress(OSError):
                total += file.lstat().st_size
    return total


def delete(path: Path) -> None:
    """What cannot be deleted stays and is not used."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be deleted: %s", path, reason(error))


def delete_model(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    log.info("checkpoints of a model that is not loaded were deleted: %s", folder.name)


def delete_other_codings(folder: Path, coding: Coding) -> None:
    """Of another model: where a key is set no plain file is left until somebody loads that."""
    others: list[Path] = []
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            read_header(path, coding)
        except OtherCoding:
            others.append(path)
        except (OSError, DamagedCheckpoint):
            continue  # told where it is used
    delete_others(others, coding)


def delete_others(paths: Sequence[Path], coding: Coding) -> None:
    for path in paths:
        delete(path)
    if paths:
        why = "they are encrypted, and no key is set" if coding is PLAIN else "they are not encrypted with this key"
        log.warning("%d checkpoints were deleted: %s", len(paths), why)


# -- the format of one file


def write(path: Path, header: SegmentHeader, state: bytes, coding: Coding = PLAIN) -> int:
    """Bytes written. Raises OSError; then nothing is left behind."""
    packed = (
        _HEADER.pack(header.root.encode(), header.name.encode(), header.parent.encode(), header.start, header.end)
        + header.ids.tobytes()
    )
    head = _HEAD.pack(MAGIC, coding.version, len(packed), len(state))
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in coding.encoded(head, packed, state):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return file_size(header, state, coding)


def file_size(header: SegmentHeader, state: bytes, coding: Coding = PLAIN) -> int:
    """Bytes that `write` will write."""
    return _size(_HEADER.size + len(header.ids) * header.ids.itemsize, len(state), coding)


def _size(header_size: int, state_size: int, coding: Coding) -> int:
    return _HEAD.size + header_size + coding.header_more + state_size + coding.state_more + coding.tail


def read_header(path: Path, coding: Coding = PLAIN) -> SegmentHeader:
    """Raises DamagedCheckpoint and OSError. Checks sizes; the state is `read_state`'s to check."""
    with opened(path) as file:
        head, header_size, _ = _opening(file, path, coding)
        header = file.read(header_size)
    if len(header) != header_size:
        raise DamagedCheckpoint(f"{path} is truncated")
    return _header(coding.header(path, head, header))


def read_state(path: Path, expected: SegmentHeader, coding: Coding = PLAIN) -> bytes:
    """The state of a file that is what `expected` says, verified to the last byte. Raises DamagedCheckpoint and OSError."""
    return verified(path, read_content(path, coding), expected, coding)


def checked(path: Path) -> tuple[SegmentHeader, int]:
    """What a plain file holds and its size, once every byte was seen to be as it was written; a piece of it is in memory at
    a time. Raises DamagedCheckpoint and OSError."""
    with opened(path) as file:
        head, header_size, state_size = _opening(file, path, PLAIN)
        if header_size > MOST_HEADER:
            raise DamagedCheckpoint(f"{path} has a header of {header_size:,} bytes")
        packed = file.read(header_size)
        crc, left = zlib.crc32(packed, zlib.crc32(head)), state_size
        while left and (piece := file.read(min(left, PIECE))):
            crc, left = zlib.crc32(piece, crc), left - len(piece)
        if left or file.read() != crc.to_bytes(CRC_BYTES, "little"):
            raise DamagedCheckpoint(f"{path} has a wrong checksum")
    return _header(packed), _size(header_size, state_size, PLAIN)


def read_content(path: Path, coding: Coding = PLAIN) -> Content:
    """Raises DamagedCheckpoint and OSError; what it holds is `verified`'s to check."""
    with opened(path) as file:
        head, header_size, state_size = _opening(file, path, coding)
        # Read as it is returned: the pages of a second buffer took three times as long as the checksum.
        return Content(head, file.read(header_size), file.read(state_size), file.read(coding.tail))


def verified(path: Path, content: Content, expected: SegmentHeader, coding: Coding = PLAIN) -> bytes:
    """The state, where every byte is as it was written and the segment is the expected one. Raises DamagedCheckpoint."""
    state = coding.state(path, content)
    if _header(coding.header(path, content.head, content.header)) != expected:
        raise DamagedCheckpoint(f"{path} holds another segment than its name says")
    return state


def reason(error: OSError) -> str:
    return error.strerror or str(error)


def opened(path: Path) -> BinaryIO:
    """For reading. What is no file, and might never give anything or never end, is DamagedCheckpoint."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedCheckpoint(f"{path} is no file")
    return os.fdopen(descriptor, "rb")


def _opening(file: BinaryIO, path: Path, coding: Coding) -> tuple[bytes, int, int]:
    """The head, and the sizes of header and state as they stand behind it. They are compared with the file's size before
    memory is allocated for as much as a damaged head says."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise DamagedCheckpoint(f"{path} is truncated")
    magic, version, header_size, state_size = _HEAD.unpack(head)
    if magic != MAGIC:
        raise DamagedCheckpoint(f"{path} is no checkpoint")
    if version not in (Checksummed.version, Sealed.version):
        raise DamagedCheckpoint(f"{path} is a checkpoint of version {version}, which is not known here")
    if version != coding.version:
        raise OtherCoding(f"{path} is no checkpoint of version {coding.version}")
    if header_size < _HEADER.size or (header_size - _HEADER.size) % 4:
        raise DamagedCheckpoint(f"{path} has a damaged header")
    if os.fstat(file.fileno()).st_size != _size(header_size, state_size, coding):
        raise DamagedCheckpoint(f"{path} is truncated")
    return head, header_size + coding.header_more, state_size + coding.state_more


def _header(packed: bytes) -> SegmentHeader:
    root, name, parent, start, end = _HEADER.unpack(packed[: _HEADER.size])
    return SegmentHeader(_text(root), _text(name), _text(parent), start, end, bytes_to_ids(packed[_HEADER.size :]))


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode("ascii", "replace")
