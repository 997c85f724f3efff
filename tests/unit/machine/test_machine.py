"""The governor at work: what the engine holds is told, the embedding model makes room, and a fault ends no watch."""

from dataclasses import replace

import pytest
from support.fake_engine import FAKE
from support.gpus import gpu
from support.shapes import shape
from support.waiting import Told

from codex.errors import CodexError
from governor.embedding import EmbeddingCost
from governor.footprint import KvPlan, binding_bytes
from governor.model_shape import Layer
from governor.readings import SensorSnapshot
from governor.sensors import HostSensor
from governor.settings import GIB, MIB, GovernorSettings, MemorySettings, PressureSettings, SamplerSettings
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.snapshot import EngineSnapshot, PoolState
from orchestrator.errors import OverBudget
from orchestrator.machine.machine import Machine, ModelCosts

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]
SHAPE = shape(
    trained=32_768,
    embedding=512,
    heads=8,
    vocabulary=32_000,
    feed_forward=1_024,
    layers=(Layer(10 * MIB, 512, 512, 64, 64),) * 4,
    input=10 * MIB,
    output=10 * MIB,
)
SETTINGS = GovernorSettings(
    pressure=PressureSettings(worse_s=0.0, better_s=0.0), sampler=SamplerSettings(busy_s=0.01, idle_s=0.02)
)


class Card:
    """A GPU whose free memory and clock reasons the test sets."""

    def __init__(self):
        self.free, self.reasons = 20 * GIB, frozenset()

    def read(self, own_pids, now):
        card = replace(gpu(0, 24 * GIB, self.free), clock_reasons=self.reasons)
        return SensorSnapshot(now, (card,), replace(HostSensor().read(own_pids, now), on_battery=False))


class NoCard:
    """The host's sensors alone."""

    def read(self, own_pids, now):
        return SensorSnapshot(now, (), HostSensor().read(own_pids, now))


class Watched:
    """A machine, what it told the embedding model, and how often codices were to follow it."""

    def __init__(self, embedding=None, fault=None):
        self.card, self.told, self.saved, self.followed, self.fault = Card(), [], [], 0, fault
        self.client = EngineClient(EngineSpec(FAKE))
        self.machine = Machine(self.card, SETTINGS, ModelCosts(SHAPE, KvPlan(), embedding=embedding), self.client)
        self.moved, self.scarcities = Told(), []

    def rest(self, why):
        self.told.append(why)
        self.client.embedding.rest(why)
        self.moved.tell()

    def save_power(self, why):
        self.saved.append(why)
        self.moved.tell()

    def scarce(self, why, *, calm):
        self.scarcities.append((why, calm))
        self.moved.tell()

    async def changed(self):
        self.followed += 1
        self.moved.tell()
        if self.fault:
            raise self.fault

    async def __aenter__(self):
        await self.machine.start(self)
        return self

    async def __aexit__(self, *_):
        await self.machine.stop()


EMBEDDING = EmbeddingCost(layers=0, gpu=0, ram=GIB, weights=GIB // 2, buffers=GIB // 2)


async def test_the_embedding_model_is_planned_for_and_gives_its_bytes_back_while_it_is_away():
    async with Watched(EMBEDDING) as watched:
        assert watched.machine.budget.embedding_bytes == GIB
        watched.card.free = GIB
        await watched.moved.until(lambda: watched.told and watched.machine.budget.embedding_bytes == 0)
        assert "VRAM is scarce (pressure critical)" in watched.told[0]
        watched.card.free = 20 * GIB
        await watched.moved.until(lambda: watched.told[-1] == "" and watched.machine.budget.embedding_bytes == GIB)
        assert len(watched.told) == 2


async def test_without_an_embedding_model_nobody_has_to_make_room():
    async with Watched() as watched:
        watched.card.free = GIB
        await watched.moved.until(lambda: watched.machine.levels.memory == "critical" and watched.followed)
        assert watched.told == []


@pytest.mark.parametrize("fault", [EngineUnavailable("it ended"), CodexError("the disk is full"), ValueError("ours")])
async def test_a_fault_of_who_follows_does_not_end_the_watch(fault):
    async with Watched(EMBEDDING, fault=fault) as watched:
        watched.card.free = GIB
        await watched.moved.until(lambda: watched.told and watched.followed)
        watched.card.free = 20 * GIB
        await watched.moved.until(lambda: watched.told[-1] == "")
        assert watched.followed >= 2


async def test_a_question_is_refused_with_the_numbers_where_the_limit_leaves_no_room_for_the_model():
    watched = Watched()
    limited = replace(SETTINGS, memory=MemorySettings(vram_limit="1"))
    watched.machine = Machine(NoCard(), limited, ModelCosts(SHAPE, KvPlan()), watched.client)
    async with watched:
        assert (watched.machine.grant.cells, watched.machine.grant.window) == (0, 0)
        with pytest.raises(OverBudget, match=r"no token can be held: the model takes .* of RAM beside KV") as refused:
            _ = watched.machine.usable_grant
        assert "governor.vram_limit" in refused.value.hint


class Held(NoCard):
    """All that is ours holds so much RAM."""

    own = 2 * GIB

    def read(self, own_pids, now):
        read = super().read(own_pids, now)
        return replace(read, host=replace(read.host, ram_total=32 * GIB, ram_available=20 * GIB, ram_own=self.own))


@pytest.mark.parametrize("binds", [False, True])
async def test_what_binds_answers_is_counted_once_before_it_is_made_and_afterwards(binds):
    watched = Watched()
    watched.machine = Machine(Held(), SETTINGS, ModelCosts(SHAPE, KvPlan()), watched.client)
    pool = PoolState("codex", 4_096, 4_096, 0, 0, 0, 1, bytes=0, buffers=50 * MIB)
    watched.client.snapshot = EngineSnapshot(1, (pool,), binds=binds)
    async with watched:
        watched.machine.end_window_at(None)  # hears of the pool
        await watched.machine.look()
        bound = binding_bytes(SHAPE)
        assert watched.machine.budget.working == 50 * MIB + bound + Held.own - bound * binds


async def test_while_a_gpu_is_throttled_power_is_saved_and_prompts_get_half_of_their_time_beside_answers():
    async with Watched() as watched:
        before = watched.machine.grant
        watched.card.reasons = frozenset({"thermal"})
        await watched.moved.until(lambda: watched.saved)
        saved = watched.machine.grant
        assert (watched.machine.levels.power, saved.prefill_share) == ("throttled", 0.5)
        assert saved == replace(before, prefill_share=0.5), "no plan that was made is stale"
        watched.card.reasons = frozenset()
        await watched.moved.until(lambda: watched.saved[-1] == "")
        assert watched.machine.grant == before
        assert len(watched.saved) == 2
