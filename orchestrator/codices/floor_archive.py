"""The archive that a floor is written to: its manifest, its members, and segments beside their places in the folder.

    manifest.json │ NAME.kv │ NAME.kv │ … │ two empty blocks       a tar archive, written and read as one stream

Nothing of an archive is believed: a name in it leads nowhere and drives no terminal, each byte is under a checksum, each
segment's name is the digest of what is before it and of its ids. Knows no model and no codex.
"""

import asyncio
import json
import os
import tarfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, FailFast, Field, ValidationError, model_validator

from codex.errors import BadName
from codex.reload_match import valid_name
from orchestrator.engine.checkpoints.coding import DamagedCheckpoint
from orchestrator.engine.checkpoints.file import SUFFIX, SegmentHeader, checked
from orchestrator.engine.checkpoints.store import checkpoint_name
from orchestrator.errors import InvalidRequest, LoreError, OverBudget
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.places import VERSION
from orchestrator.wire.wording import wording

FORMAT = 1
MANIFEST = "manifest.json"
# Bytes: 100,000 paths of 50 characters take 11 MiB. JSON is read in one piece, and no other thread runs meanwhile: on a
# slow core this much takes 0.13 s where it is a manifest, and 0.2 to 1.9 s where it is made to harm.
MOST_MANIFEST = 16 << 20
MOST_PARTS = 32  # that KV depends on
PIECE = 1 << 20  # bytes that are held of a segment
BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
AGAIN = "try it again; `lore load` computes what is missing"


def printable(text: str) -> str:
    """On one line, without what drives a terminal or shows a line in another order than it has."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "�" for one in text)


def nameable(name: str) -> str:
    """Raises ValueError for what no codex is called."""
    try:
        return valid_name(name)
    except BadName:
        raise ValueError("no codex can have this name") from None


Text = Annotated[str, Field(max_length=300), AfterValidator(printable)]  # a file's name has 255 bytes at most
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SegmentFile(ReplyShape):
    """A checkpoint, by its name, and the bytes of its file."""

    name: Digest
    bytes: int = Field(gt=0)


class Manifest(ReplyShape):
    """What an archive holds. `order`: the files of the codex with the digests of their texts, as its floor has them.
    `levels`: a digit for each of them, how much of it is shown, in a coverage that chooses; `level_tokens`: that they were
    chosen for."""

    format: int = FORMAT
    made_by: Text = f"lorekeep {VERSION}"
    root: Digest
    parts: Annotated[dict[Text, Text], Field(max_length=MOST_PARTS)]
    model: Text
    codex: Annotated[str, AfterValidator(nameable)]
    state: Text
    tier: Text
    identity: Text
    identity_version: Text
    tokens: int = Field(gt=0)
    segments: Annotated[tuple[SegmentFile, ...], FailFast()] = Field(min_length=1)
    order: Annotated[tuple[tuple[str, str], ...], FailFast()] = ()  # a million wrong ones would be a million faults
    levels: Annotated[str, Field(pattern=r"^[0-3]*$")] = ""
    level_tokens: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _one_level_a_file(self) -> Self:
        if self.levels and len(self.levels) != len(self.order):
            raise ValueError(f"{len(self.levels)} levels of {len(self.order)} files")
        return self

    @property
    def bytes(self) -> int:
        """Of all its segments."""
        return sum(one.bytes for one in self.segments)


def manifest_of(raw: bytes) -> Manifest:
    """Raises InvalidRequest."""
    try:
        found = json.loads(raw)
        version = found.get("format") if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        raise damaged("its manifest is no JSON") from None
    if version != FORMAT:
        told = f"the file has format {str(version)[:20]}, and this Lorekeep reads format {FORMAT}"
        raise InvalidRequest(told, "use the version of Lorekeep that wrote it, on both machines")
    try:
        return Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = printable(".".join(map(str, first["loc"])))[:40] or "the number of levels"
        raise damaged(f"its manifest is wrong in {place}: {told_of(first)}") from None


def told_of(fault: Mapping[str, Any]) -> str:
    """In our words."""
    if fault["type"] == "string_pattern_mismatch":
        return "it has characters that it cannot have"
    return wording(fault["type"], fault["msg"], fault.get("ctx") or {})


def written(manifest: Manifest) -> bytes:
    """Raises OverBudget for one that nobody would read."""
    raw = manifest.model_dump_json().encode()
    if len(raw) > MOST_MANIFEST:
        told = f"the list of its {len(manifest.order):,} files takes {len(raw):,} bytes, and {MOST_MANIFEST:,} are read"
        raise OverBudget(told, "load fewer files: --exclude leaves some out")
    return raw


def damaged(what: str) -> InvalidRequest:
    return InvalidRequest(f"the file is damaged, or no prefix: {what}", "export it again, and compare the copies' sums")


# -- files beside their places


@contextmanager
def staging(folder: Path, manifest: Manifest) -> Iterator[list[Path]]:
    """Where each segment is to be written; what lies there at the end is deleted. A child that starts meanwhile does that
    too."""
    paths = [folder / f"{one.name}.{os.getpid()}.tmp" for one in manifest.segments]
    try:
        yield paths
    except OSError as error:
        raise LoreError(f"the prefix cannot be written to {folder}: {error.strerror}", "make room there") from error
    finally:
        for path in paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)


async def staged(incoming: "Incoming", manifest: Manifest, paths: Sequence[Path]) -> None:
    """Writes all segments, each checked and right behind the one before. Raises InvalidRequest and OSError."""
    parent, at = manifest.root, 0
    for one, path in zip(manifest.segments, paths, strict=True):
        await incoming.member(f"{one.name}{SUFFIX}", one.bytes)
        with path.open("wb") as file:
            async for piece in incoming.pieces(one.bytes):
                await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(synced, file)
        header, _ = await asyncio.to_thread(looked_at, path)
        if not goes_on(header, one.name, manifest.root, parent, at):
            raise damaged(f"segment {one.name[:12]} does not go on from the one before it")
        parent, at = header.name, header.end
    if at != manifest.tokens:
        raise damaged(f"it holds {at:,} of {manifest.tokens:,} tokens")
    await incoming.end()


def synced(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def looked_at(path: Path) -> tuple[SegmentHeader, int]:
    """Raises LoreError for what is damaged, and where it is gone."""
    try:
        return checked(path)
    except DamagedCheckpoint as error:
        raise damaged(str(error).replace(str(path), f"segment {path.name[:12]}")) from None
    except FileNotFoundError:  # by the child, which deletes what lies beside its places when it starts, or by somebody
        raise LoreError(f"segment {path.name[:12]} was deleted meanwhile", AGAIN) from None


def goes_on(header: SegmentHeader, name: str, root: str, parent: str, at: int) -> bool:
    """Whether it is the floor's segment of this name at this place: one of a conversation is named on other ground."""
    place = (header.root, header.name, header.parent, header.start, header.end)
    return place == (root, name, parent, at, at + len(header.ids)) and checkpoint_name(parent, header.ids) == name


# -- the archive as bytes


class Incoming:
    """A tar archive as it comes; only what is expected is taken. Raises InvalidRequest for anything else."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._held = bytearray()

    async def manifest(self) -> bytes:
        name, size = await self._head()
        if name != MANIFEST or not 0 < size <= MOST_MANIFEST:
            raise damaged(f"it does not begin with {MANIFEST}")
        return b"".join([piece async for piece in self.pieces(size)])

    async def member(self, name: str, size: int) -> None:
        """The next one is this."""
        if await self._head() != (name, size):
            raise damaged(f"{name[:12]} does not follow, which its manifest lists")

    async def pieces(self, size: int) -> AsyncIterator[bytes]:
        """The content of a member, and what fills its last block."""
        for at in range(0, size, PIECE):
            yield await self._take(min(PIECE, size - at))
        if any(await self._take(len(padding(size)))):
            raise damaged("its blocks are not filled with zeros")

    async def end(self) -> None:
        whole = await self._take(len(END)) == END and not self._held
        async for more in self._body:
            whole = whole and not more
        if not whole:
            raise damaged("something follows that its manifest does not list")

    async def _head(self) -> tuple[str, int]:
        try:
            found = tarfile.TarInfo.frombuf(await self._take(BLOCK), "ascii", "strict")
        except (tarfile.HeaderError, ValueError):
            raise damaged("a header of it cannot be read") from None
        if found.type != tarfile.REGTYPE:
            raise damaged("it holds something that is no file")
        return found.name, found.size

    async def _take(self, size: int) -> bytes:
        while len(self._held) < size:
            more = await anext(self._body, None)
            if more is None:
                raise damaged("it ends early")
            self._held += more
        found = bytes(self._held[:size])
        del self._held[:size]
        return found


def head(name: str, size: int) -> bytes:
    """The block before a member's content."""
    found = tarfile.TarInfo(name)
    found.size, found.mode = size, 0o600
    return found.tobuf(tarfile.GNU_FORMAT)  # of any size: POSIX' own heads end at 8 GiB


def padding(size: int) -> bytes:
    """What fills the last block of a member of so many bytes."""
    return bytes(-size % BLOCK)
