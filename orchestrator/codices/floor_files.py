"""Floors as files: what was computed on one machine is read on another that has the same model.

The manifest says what the KV depends on, part by part, and how the codex was laid out; the other members are the
checkpoints of the floor, in order, none of a conversation (`floor_archive`). The parts are compared with those of the model
that runs. Whether the KV is what the model would compute cannot be seen: who imports trusts who made it.

    body ─▶ manifest compared ─▶ NAME.tmp beside its place, synced ─▶ checked, chained ─▶ the engine takes all, or none

The order of the codex's files, and how much of each its coverage shows, are kept for the first load under its name: the
same files in the same coverage are then the same prefix.
"""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.codices.floor_archive import (
    AGAIN,
    END,
    MANIFEST,
    PIECE,
    Incoming,
    Manifest,
    SegmentFile,
    head,
    looked_at,
    manifest_of,
    padding,
    staged,
    staging,
    written,
)
from orchestrator.codices.floors import Floors, HeldFloor
from orchestrator.codices.serving_identities import ServingIdentities
from orchestrator.codices.state import CodexState
from orchestrator.codices.state_store import BroughtLevels, CodexStateStore, FrozenLevels
from orchestrator.engine.checkpoints.file import SUFFIX, folder_of
from orchestrator.engine.checkpoints.store import most_of
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.model import ModelInfo
from orchestrator.errors import Conflict, InvalidRequest, LoreError, NotFound, OverBudget, translated
from orchestrator.model.chat_model import engine_faults
from orchestrator.prompt.coverage import Coverage
from orchestrator.wire.places import VERSION
from orchestrator.wire.replies import ImportedFloor

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
ALWAYS_ALIKE = (Coverage.FULL, Coverage.NONE)  # coverages that choose among no files


class FloorFiles:
    """`expect` keeps the order of a codex's files for its first load, `states` their levels; `known` says whether a codex
    of a name is loaded."""

    def __init__(
        self,
        client: EngineClient,
        floors: Floors,
        identities: ServingIdentities,
        states: CodexStateStore,
        expect: Callable[[str, Sequence[tuple[str, str]]], None],
        known: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._floors = floors
        self._identities = identities
        self._states = states
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
        if held is None or (held.key.generation, held.key.tier) != (state.generation.number, state.view.tier):
            raise Conflict(
                f"the prefix of {state.name} is being laid out", "export it when `lore codex show` has no other"
            )
        with engine_faults():
            folder = self._folder(await self._client.ensure_ready())
            await self._floors.grow(held.floor, held.key)
            manifest = await self._manifest(state, held)
        raw = await asyncio.to_thread(written, manifest)
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
        coverage = state.decision.coverage
        frozen = await asyncio.to_thread(self._states.frozen, state.name, state.generation.number)
        made = frozen.get(coverage, FrozenLevels("", 0))
        return Manifest(
            root=info.fingerprint,
            parts=dict(info.kv_parts),
            model=info.name,
            codex=state.name,
            state=state.generation.label(),
            tier=coverage.value,
            identity=held.key.identity.name,
            identity_version=held.key.identity.version,
            tokens=held.floor.tokens,
            segments=tuple(SegmentFile(name=name, bytes=size) for name, size in zip(found.names, sizes, strict=True)),
            order=tuple((one.path, one.digest) for one in state.generation.entries),
            levels=made.levels,
            level_tokens=made.tokens,
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
        manifest = await asyncio.to_thread(manifest_of, await incoming.manifest())
        if differing := differences(manifest, info):
            raise InvalidRequest(f"the prefix is of no use here: {'; '.join(differing)}", hint_for(manifest, info))
        if manifest.bytes > budget:
            told = f"the prefix takes {manifest.bytes:,} bytes, and checkpoints may take {budget:,} on disk"
            raise OverBudget(told, "raise storage.checkpoint_disk and storage.checkpoint_disk_share")
        with staging(folder, manifest) as paths:
            await staged(incoming, manifest, paths)
            if refusal := await self._client.adopt(list(map(str, paths))):
                raise LoreError(f"the prefix was not taken: {refusal}", AGAIN)
            known = await asyncio.to_thread(self._known, manifest.codex)
            if not known:
                await asyncio.to_thread(self._expect_the_same, manifest)
        notices = tuple(self._notices(manifest, known=known))
        return ImportedFloor.of(manifest, segments=len(manifest.segments), notices=notices)

    def _expect_the_same(self, manifest: Manifest) -> None:
        """The next load under its name is laid out as it was there. Raises OSError and LoreError."""
        self._expect(manifest.codex, manifest.order)
        made = FrozenLevels(manifest.levels, manifest.level_tokens)
        with translated():
            self._states.expect(manifest.codex, BroughtLevels.of(manifest.order, manifest.tier, made))

    def _notices(self, manifest: Manifest, *, known: bool) -> Iterator[str]:
        if known:
            yield (
                f"a codex {manifest.codex} is loaded here already, and its files may be in another order: "
                f"`lore codex drop {shlex.quote(manifest.codex)}` and import again, if its prefix is computed all the same"
            )
        if manifest.tier not in ALWAYS_ALIKE and not manifest.levels:
            yield (
                f"the coverage is {manifest.tier}, and the file does not list what it shows of each file, which depends on "
                "history and memory: from the first difference here the prefix is computed"
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
