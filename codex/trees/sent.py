"""Files that a client has read with its own rights and sent: a tree of which no path is opened.

    sent/UID-KEY/offer.json   the files that the client has, by name and digest; it may wait for some of their bytes
    sent/UID-KEY/tree.json    the last offer of which all bytes are here: what a load reads
    sent/UID-KEY/files/SHA256 the bytes

A client's names are data. What is opened is named by KEY, a hash of the codex's name, and by digests that were checked.
"""

import hashlib
import json
import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from codex.documents import path_of
from codex.errors import SourceError
from codex.progress import Cancelled, Step, insist, never, uncounted
from codex.settings import WalkSettings
from codex.trees.ignore import SkipReason
from codex.trees.port import CandidateFile, FileBytes, Scan, Skipped, TreeState

SENT = "sent"
MOST_BYTES = 2 << 30  # of one codex: a hundred times what the largest window holds
MOST_OF_USER = 8 << 30  # of all codices of one user: nobody fills the disk of all
LONGEST_NAME = 4096  # bytes, as the kernel has it for a path
MOST_SKIPPED = 1_000_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FRAME = struct.Struct(">32sQ")  # digest and length, before each file's bytes
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SentFile:
    """`path`: its safe name in the codex. `volatility`: how often it changes, as trees have it."""

    path: str
    size: int
    sha256: str
    volatility: int = 0


@dataclass(frozen=True)
class FilesOffer:
    """What a client has. `skipped`: how many files it left out, by reason."""

    files: tuple[SentFile, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)
    state: TreeState = field(default_factory=TreeState)


class SentFiles:
    """All codices that were sent, in one folder. One codex is changed by one caller at a time."""

    def __init__(self, folder: Path, walk: WalkSettings) -> None:
        self._folder = folder
        self._walk = walk

    def offer(self, codex: str, given: FilesOffer) -> list[str]:
        """Keeps it, and gives the digests of which the bytes are not here. Raises SourceError for what cannot be taken."""
        check(given, self._walk)
        place = place_of(self._folder, codex)
        beside = sum(held(other) for other in self._folder.glob(f"{owner_of(codex)}-*") if other != place)
        if beside + sum(one.size for one in given.files) > MOST_OF_USER:
            raise SourceError(f"your codices would have more than {MOST_OF_USER:,} bytes; lore codex drop one of them")
        (place / "files").mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(place / "offer.json", json.dumps(asdict(given)).encode())
        return missing(place, given)

    def take(self, codex: str, body: bytes) -> int:
        """Keeps files of the offer, each behind its digest and length. Gives their number. Raises SourceError."""
        place = place_of(self._folder, codex)
        sizes = {one.sha256: one.size for one in _read_offer(place / "offer.json").files}
        number = 0
        for digest, raw in framed(body):
            if sizes.get(digest) != len(raw) or hashlib.sha256(raw).hexdigest() != digest:
                raise SourceError(f"{digest}: these are not the bytes that were offered; offer the files again")
            _write(place / "files" / digest, raw)
            number += 1
        return number

    def accept(self, codex: str) -> None:
        """The offer becomes what is loaded; bytes that it does not name go. Without an offer nothing changes. Raises
        SourceError while bytes are missing, and where nothing was ever sent."""
        place = place_of(self._folder, codex)
        if not (place / "offer.json").exists():
            if not (place / "tree.json").exists():
                raise SourceError("no files were sent; run lore load, which sends them")
            return
        given = _read_offer(place / "offer.json")
        if wanted := missing(place, given):
            raise SourceError(f"{len(wanted):,} files were offered and not sent; send them first")
        (place / "offer.json").replace(place / "tree.json")
        kept = {one.sha256 for one in given.files}
        for file in (place / "files").iterdir():
            if file.name not in kept:
                file.unlink()

    def drop(self, codex: str) -> None:
        shutil.rmtree(place_of(self._folder, codex), ignore_errors=True)


class SentTree:
    """What was sent of one codex, as a tree."""

    def __init__(self, folder: Path, codex: str) -> None:
        """Raises SourceError where nothing was sent."""
        self._place = place_of(folder, codex)
        self._given = _read_offer(self._place / "tree.json")

    def scan(self, cancelled: Cancelled = never, found: Step = uncounted) -> Scan:
        candidates: list[CandidateFile] = []
        for one in sorted(self._given.files, key=lambda file: file.path):
            insist(cancelled)
            candidates.append(CandidateFile(one.path, one.sha256, one.size, one.sha256))
            found()
        skipped = [
            Skipped("", SkipReason(reason)) for reason, count in self._given.skipped.items() for _ in range(count)
        ]
        return Scan(tuple(candidates), tuple(skipped))

    def read(self, candidate: CandidateFile) -> FileBytes:
        return FileBytes(self._bytes(candidate.origin), candidate.stamp)

    def named(self, path: str) -> bytes | None:
        """The bytes of the file of this name, None where there is none."""
        digest = next((one.sha256 for one in self._given.files if one.path == path), None)
        return None if digest is None else self._bytes(digest)

    def state(self) -> TreeState:
        return self._given.state

    def volatility(self, candidates: Sequence[CandidateFile]) -> Mapping[str, int]:
        steps = {one.path: one.volatility for one in self._given.files}
        return {one.path: steps.get(one.path, 0) for one in candidates}

    def close(self) -> None:
        pass

    def _bytes(self, digest: str) -> bytes:
        if not _DIGEST.fullmatch(digest):
            raise FileNotFoundError(digest)
        with os.fdopen(os.open(self._place / "files" / digest, _OPEN), "rb") as file:
            return file.read()


def place_of(folder: Path, codex: str) -> Path:
    return folder / f"{owner_of(codex)}-{hashlib.sha256(codex.encode()).hexdigest()[:32]}"


def owner_of(codex: str) -> int:
    """The user whose codex it is, by its name; -1: the daemon's."""
    return int(codex.partition("~")[2] or -1)


def held(place: Path) -> int:
    """Bytes that were sent, and those that were offered and may still come."""
    offered = (place / "offer.json", place / "tree.json")
    return max((sum(one.size for one in _read_offer(file).files) for file in offered if file.exists()), default=0)


def frame(digest: str, raw: bytes) -> bytes:
    """A file as `take` reads it."""
    return _FRAME.pack(bytes.fromhex(digest), len(raw)) + raw


def framed(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Digest and bytes of each file. Raises SourceError for a body that is cut off."""
    at = 0
    while at < len(body):
        if len(body) - at < _FRAME.size:
            raise SourceError("the body ends within a file's head; send it again")
        digest, size = _FRAME.unpack_from(body, at)
        at += _FRAME.size
        if len(body) - at < size:
            raise SourceError("the body ends within a file; send it again")
        yield digest.hex(), body[at : at + size]
        at += size


def check(given: FilesOffer, walk: WalkSettings) -> None:
    """Raises SourceError for what no walk of ours gives: a name that leaves the codex, too much, an unknown reason."""
    if len(given.files) > walk.max_files:
        raise SourceError(f"{len(given.files):,} files are more than {walk.max_files:,}; load a smaller folder")
    if sum(one.size for one in given.files) > MOST_BYTES:
        raise SourceError(f"the files have more than {MOST_BYTES:,} bytes; load a smaller folder")
    if len({one.path for one in given.files}) != len(given.files):
        raise SourceError("a file is offered twice; offer each once")
    for one in given.files:
        if not is_inside(one.path):
            raise SourceError(f"{one.path!r} is no name of a file in a codex; names are relative and without ..")
        if not 0 <= one.size <= walk.max_file_bytes:
            raise SourceError(f"{one.path} is larger than {walk.max_file_bytes:,} bytes (codex.max_file); leave it out")
        if not _DIGEST.fullmatch(one.sha256):
            raise SourceError(f"{one.path}: {one.sha256!r} is no SHA-256 in hex; send its digest")
    for reason, count in given.skipped.items():
        if reason not in set(SkipReason) or not 0 <= count <= MOST_SKIPPED:
            raise SourceError(f"skipped: {reason!r} is no reason, or {count:,} too many; leave it out")


def is_inside(path: str) -> bool:
    """Whether a safe name is of a file below the codex's root."""
    try:
        raw = os.fsencode(path_of(path))
    except UnicodeEncodeError:
        return False  # it escapes what no file system gives
    return len(raw) <= LONGEST_NAME and b"\0" not in raw and not {b"", b".", b".."} & set(raw.split(b"/"))


def missing(place: Path, given: FilesOffer) -> list[str]:
    """Digests of the offer without bytes, in its order."""
    here = {file.name for file in (place / "files").iterdir()}
    return list(dict.fromkeys(one.sha256 for one in given.files if one.sha256 not in here))


def _read_offer(path: Path) -> FilesOffer:
    try:
        kept = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SourceError("no files were sent; run lore load, which sends them") from None
    files = tuple(SentFile(**one) for one in kept["files"])
    return FilesOffer(files, kept["skipped"], TreeState(**kept["state"]))


def _write(path: Path, raw: bytes) -> None:
    """Whole or not at all, for the daemon's user alone."""
    temporary = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(raw)
    temporary.replace(path)
