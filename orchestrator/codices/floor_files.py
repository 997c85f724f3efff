"""Floors as files: what was computed on one machine is read on another that has the same model.

    manifest.json │ NAME.kv │ NAME.kv │ … │ two empty blocks       a tar archive, written and read as one stream

The manifest says what the KV depends on, part by part, and how the codex was laid out; the others are the checkpoints of
the floor, in order, none of a conversation. Nothing of an archive is believed: a name in it leads nowhere, each byte is
under a checksum, each segment's name is the digest of what is before it and of its ids, and the parts are compared with
those of the model that runs. Whether the KV is what the model would compute cannot be seen: who imports trusts who made it.

    body ─▶ manifest compared ─▶ NAME.tmp beside its place, synced ─▶ checked, chained ─▶ the engine takes all, or none
"""

import asyncio
import json
import os
import shlex
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from orchestrator.codices.floors import Floors, HeldFloor, ServingIdentities
from orchestrator.codices.state import CodexState
from orchestrator.engine.checkpoints.coding import DamagedCheckpoint
from orchestrator.engine.checkpoints.file import SUFFIX, SegmentHeader, checked, folder_of
from orchestrator.engine.checkpoints.store import most_of, named
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.model import ModelInfo
from orchestrator.errors import Conflict, InvalidRequest, LoreError, NotFound, OverBudget
from orchestrator.model.chat_model import engine_faults
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.places import VERSION
from orchestrator.wire.replies import ImportedFloor

FORMAT = 1
MANIFEST = "manifest.json"
MOST_MANIFEST = 64 << 20  # bytes: the paths of half a million files
PIECE = 1 << 20  # bytes that are held of a segment
BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
WORDS = {  # what KV depends on, as a person calls it, and what makes it the same
    "weights": ("the model", "lore model use takes another one"),
    "kv_type_k": ("K", "the setting model.kv_type_k"),
    "kv_type_v": ("V", "the setting model.kv_type_v"),
    "flash_attention": ("flash attention", "the setting model.flash_attention"),
    "windows": ("how sliding windows are kept", "the setting model.window_cache"),
    "rope": ("the set of rotation factors", "the setting model.context"),
    "build": ("the build of llama.cpp", "install the same compiled wheel of llama-cpp-python on both machines"),
}
SHOWN = 28  # characters of a part: digests are longer

Text = Annotated[str, Field(max_length=1000)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SegmentFile(ReplyShape):
    """A checkpoint, by its name, and the bytes of its file."""

    name: Digest
    bytes: int = Field(gt=0)


class Manifest(ReplyShape):
    """What an archive holds. `order`: the files of the codex with the digests of their texts, as its floor has them."""

    format: int = FORMAT
    made_by: Text = f"lorekeep {VERSION}"
    root: Digest
    parts: dict[Text, Text]
    model: Text
    codex: Text
    state: Text
    tier: Text
    identity: Text
    identity_version: Text
    tokens: int = Field(gt=0)
    segments: tuple[SegmentFile, ...] = Field(min_length=1)
    order: tuple[tuple[str, str], ...] = ()

    @property
    def bytes(self) -> int:
        """Of all its segments."""
        return sum(one.bytes for one in self.segments)


class FloorFiles:
    """`expect` keeps the order of a codex's files for its first load, `known` says whether a codex of a name is loaded."""

    def __init__(
        self,
        client: EngineClient,
        floors: Floors,
        identities: ServingIdentities,
        expect: Callable[[str, Sequence[tuple[str, str]]], None],
        known: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._floors = floors
        self._identities = identities
        self._expect = expect
        self._known = known
        self._importing = False

    # -- out

    async def exported(self, state: CodexState) -> AsyncIterator[bytes]:
        """The archive of a codex's floor, which is computed where it is not resident. Everything that can be wrong with it
        is found before the first piece; where a file is deleted meanwhile, the archive has no end. Raises LoreError."""
        if state.log:
            changed = len({entry.path for entry in state.log})
            told = f"{changed} files of {state.name} have changed since its prefix was laid out"
            raise Conflict(told, f"`lore codex reload {state.name}` lays it out anew; export it then")
        held = self._floors.held_for(state.name)
        if held is None or held.key.generation != state.generation.number:
            raise Conflict(
                f"the prefix of {state.name} is being laid out", "export it when `lore codex show` has no other"
            )
        with engine_faults():
            folder = self._folder(await self._client.ensure_ready())
            await self._floors.grow(held.floor, held.key)
            manifest = await self._manifest(state, held)
        raw = manifest.model_dump_json().encode()
        yield head(MANIFEST, len(raw)) + raw + padding(len(raw))
        with suppress(OSError):
            for one in manifest.segments:
                with (folder / f"{one.name}{SUFFIX}").open("rb") as file:
                    yield head(f"{one.name}{SUFFIX}", one.bytes)
                    while piece := await asyncio.to_thread(file.read, PIECE):
                        yield piece
                yield padding(one.bytes)
            yield END

    async def _manifest(self, state: CodexState, held: HeldFloor) -> Manifest:
        info = await self._client.ensure_ready()
        found = await self._client.find_floor(held.floor.name)
        if found.tokens < held.floor.tokens:
            told = (
                f"{found.tokens:,} of {held.floor.tokens:,} tokens of the prefix of {state.name} could be kept on disk"
            )
            raise LoreError(told, "lore stats cache shows the disk; storage.checkpoint_disk bounds it")
        folder = self._folder(info)
        sizes = await asyncio.to_thread(lambda: [looked_at(folder / f"{name}{SUFFIX}")[1] for name in found.names])
        return Manifest(
            root=info.fingerprint,
            parts=dict(info.kv_parts),
            model=info.name,
            codex=state.name,
            state=state.generation.label(),
            tier=state.decision.coverage.value,
            identity=held.key.identity.name,
            identity_version=held.key.identity.version,
            tokens=held.floor.tokens,
            segments=tuple(SegmentFile(name=name, bytes=size) for name, size in zip(found.names, sizes, strict=True)),
            order=tuple((one.path, one.digest) for one in state.generation.entries),
        )

    # -- in

    async def imported(self, body: AsyncIterator[bytes]) -> ImportedFloor:
        """What an archive held, once prompts find it. All or nothing. Raises LoreError."""
        if self._importing:
            raise Conflict("another prefix is being imported", "import this one after it")
        self._importing = True
        try:
            with engine_faults():
                return await self._imported(Incoming(body))
        finally:
            self._importing = False

    async def _imported(self, incoming: "Incoming") -> ImportedFloor:
        info, budget = await self._client.ensure_ready(), most_of(self._client.spec.disk_budget)
        folder = self._folder(info)
        manifest = manifest_of(await incoming.manifest())
        if differing := differences(manifest, info):
            raise InvalidRequest(f"the prefix is of no use here: {'; '.join(differing)}", hint_for(manifest, info))
        if manifest.bytes > budget:
            told = f"the prefix takes {manifest.bytes:,} bytes, and checkpoints may take {budget:,} on disk"
            raise OverBudget(told, "raise storage.checkpoint_disk and storage.checkpoint_disk_share")
        with staging(folder, manifest) as paths:
            await staged(incoming, manifest, paths)
            if refusal := await self._client.adopt(list(map(str, paths))):
                raise LoreError(f"the prefix was not taken: {refusal}", "import it again")
            known = await asyncio.to_thread(self._known, manifest.codex)
            if not known:
                await asyncio.to_thread(self._expect, manifest.codex, manifest.order)
        notices = tuple(self._notices(manifest, known=known))
        return ImportedFloor.of(manifest, segments=len(manifest.segments), notices=notices)

    def _notices(self, manifest: Manifest, *, known: bool) -> Iterator[str]:
        if known:
            yield (
                f"a codex {manifest.codex} is loaded here already, and its files may be in another order: "
                f"`lore codex drop {shlex.quote(manifest.codex)}` and import again, if its prefix is computed all the same"
            )
        if manifest.tier != "full":
            yield (
                f"the coverage is {manifest.tier}: which files it shows depends on history and memory, and from the first "
                "one that differs here the prefix is computed"
            )
        here, there = self._identity_here(manifest.identity), manifest.identity_version
        if here != there:
            yield (
                f"identity {manifest.identity} has version {there} there and {here or 'none'} here: the prefix is of use "
                "once its text and tools are the same"
            )

    def _identity_here(self, name: str) -> str:
        try:
            return self._identities.now(None, name).view.version
        except (NotFound, InvalidRequest):
            return ""

    def _folder(self, info: ModelInfo) -> Path:
        """Where this model's checkpoints lie. Raises LoreError where none are kept, or only encrypted ones."""
        spec = self._client.spec
        if spec.key:
            told = "checkpoints are encrypted here with a key that no other machine has"
            raise Conflict(told, 'security.encrypt = "off" lets prefixes be exported and imported')
        if not spec.cache_folder or not spec.disk_budget:
            raise LoreError("no checkpoints are kept on disk", "storage.checkpoint_disk sets how much may be")
        return folder_of(Path(spec.cache_folder), info.fingerprint)


# -- what is refused


def differences(manifest: Manifest, info: ModelInfo) -> list[str]:
    """In words, each part of what KV depends on that is another one here."""
    there, here = shown(manifest.parts, manifest.model), shown(info.kv_parts, info.name)
    found = [
        f"{WORDS.get(name, (name,))[0]} is {there.get(name, 'unknown')} there and {here.get(name, 'unknown')} here"
        for name in different(manifest.parts, info.kv_parts)
    ]
    if not found and manifest.root != info.fingerprint:
        return [f"it was made by {manifest.made_by}, which names checkpoints in another way than {VERSION}"]
    return found


def different(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Names of parts; those that have words come first, in their order."""
    return [name for name in dict.fromkeys((*WORDS, *there, *here)) if there.get(name) != here.get(name)]


def shown(parts: Mapping[str, str], model: str) -> dict[str, str]:
    """The parts for a person to read: beginnings of digests, and the model's name beside that of its weights."""
    digests = {name: value[:SHOWN] for name, value in parts.items()}
    return digests | ({"weights": f"{model} ({parts['weights'][:12]})"} if "weights" in parts else {})


def hint_for(manifest: Manifest, info: ModelInfo) -> str:
    """What makes the first part that differs the same."""
    return next(
        (WORDS[name][1] for name in different(manifest.parts, info.kv_parts) if name in WORDS),
        "export it again with this version",
    )


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
        first = error.errors()[0]
        raise damaged(f"its manifest has a wrong {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


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
    except FileNotFoundError:
        raise LoreError(f"{path} was deleted meanwhile", "try again; `lore load` computes it") from None


def goes_on(header: SegmentHeader, name: str, root: str, parent: str, at: int) -> bool:
    """Whether it is the floor's segment of this name at this place: one of a conversation is named on other ground."""
    place = (header.root, header.name, header.parent, header.start, header.end)
    return place == (root, name, parent, at, at + len(header.ids)) and named(parent, header.ids) == name


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
