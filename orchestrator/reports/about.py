"""What the daemon says of itself: gathers what the reports are made of. Knows no question and no codex's insides."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from formatters.errors import BrokenFormatter
from governor.offload import Offload
from governor.readings import memory_of
from governor.settings import GovernorSettings
from orchestrator.engine.client.client import EngineClient
from orchestrator.errors import NotFound, instead
from orchestrator.machine.machine import Machine
from orchestrator.model.folder import AtHand, FileHeader, at_hand, chosen, header_of, lying_at
from orchestrator.model.model_file import ModelFile
from orchestrator.reports import models, status
from orchestrator.reports.cache import cache_report
from orchestrator.reports.fits import Gpu, MachineMemory
from orchestrator.reports.status import events_between
from orchestrator.wire.replies import CodexReport, ModelReport, ModelRow
from orchestrator.wire.shapes import ReplyShape
from orchestrator.wire.status import CacheReply, EmbeddingModel, NowEvent, PrefillReport, StatusReply

EVENT_CLOCK_S = 0.5


@dataclass(frozen=True)
class About:
    """`folder` is where models lie; `prefill` tells what is computed by the name of its floor; `failures` are the
    formatter plug-ins that could not be taken."""

    model: ModelFile
    machine: Machine
    client: EngineClient
    folder: Path
    chosen: Offload
    governor: GovernorSettings
    version: str
    prefill: Callable[[str], PrefillReport | None]
    failures: Sequence[BrokenFormatter] = field(default=())

    def status(self, codices: Sequence[CodexReport], sessions: int, embedding: EmbeddingModel) -> StatusReply:
        outlook = self.machine.outlook
        window = self.machine.grant.window if outlook.budget else None
        return StatusReply(
            version=self.version,
            model=status.model_report(self.model, window),
            engine=status.engine_report(self.client, self.prefill(self.client.snapshot.prefilling)),
            governor=status.governor_report(outlook),
            codices=tuple(codices),
            sessions=sessions,
            queue=status.queue_report(self.client.snapshot),
            plugins=tuple(str(failure) for failure in self.failures),
            embedding=embedding,
        )

    def cache(self) -> CacheReply:
        info = self.client.info
        on_gpu = info is not None and info.device != "CPU"
        return cache_report(self.client.snapshot, on_gpu=on_gpu, ranges=info is None or info.ranges)

    # -- models

    async def models(self) -> list[ModelRow]:
        """All at hand, the loaded one first. Reads every file's header."""
        found = await asyncio.to_thread(self._read_all)
        ground = self.ground()
        return [models.row(one, head, self.chosen, ground, loaded=self._is_loaded(one)) for one, head in found]

    async def one_model(self, name: str, *, anywhere: bool = False) -> ModelReport:
        """Everything about one; `anywhere`: also of a file outside the models folder, by its full path. Raises NotFound."""
        known = await asyncio.to_thread(self._known)
        found = chosen(known, name) or (await asyncio.to_thread(lying_at, name) if anywhere else None)
        if found is None:
            raise NotFound(f"no model {name}", instead(name, [one.id for one in known], "", "`lore model list`"))
        head = await asyncio.to_thread(header_of, found)
        return await asyncio.to_thread(
            lambda: models.described(
                found, head, self.chosen, self.ground(), gpus=self._gpus(), loaded=self._is_loaded(found)
            )
        )

    def ground(self) -> MachineMemory:
        outlook, info = self.machine.outlook, self.client.info
        memory = memory_of(outlook.snapshot, self.governor.memory.gpu)
        held = info.weight_bytes + self.client.snapshot.kv_bytes if info else 0
        free = outlook.snapshot.host.ram_available or 0
        embedding = self.machine.embedding_bytes
        held += embedding if self.client.embedding.holds else 0
        if memory is not None:
            memory = replace(memory, own=max(memory.own or 0, held))
        return MachineMemory(memory, self.governor.memory, outlook.limit, free, embedding)

    def _gpus(self) -> list[Gpu]:
        info = self.client.info
        used = info is not None and info.device != "CPU"
        return [Gpu(gpu.name, gpu.free or 0) for gpu in self.machine.gpus] if used else []

    def _known(self) -> tuple[AtHand, ...]:
        return at_hand(self.folder, self.model.setting, self.model.path)

    def _read_all(self) -> list[tuple[AtHand, FileHeader]]:
        return [(one, header_of(one)) for one in self._known()]

    def _is_loaded(self, model: AtHand) -> bool:
        return model.path == self.model.path

    # -- what happens

    async def events(self, over: asyncio.Event) -> AsyncIterator[ReplyShape]:
        """What changes from now on, looked at twice a second, until it is over; the first event is how things stand."""
        before = self._now()
        yield before
        while not over.is_set():
            await asyncio.sleep(EVENT_CLOCK_S)
            after = self._now()
            for event in events_between(before, after):
                yield event
            before = after

    def _now(self) -> NowEvent:
        snapshot = self.client.snapshot
        prefill = self.prefill(snapshot.prefilling)
        return status.now_event(self.machine.outlook, snapshot, self.client.state.value, prefill)
