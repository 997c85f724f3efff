"""The program's start: who waits for the model is told how it went, whatever that was."""

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from support.gpus import gpu
from support.shapes import shape
from support.waiting import SOON

from governor.footprint import KvPlan
from governor.readings import SensorSnapshot
from governor.sensors import HostSensor
from governor.settings import GIB, GovernorSettings
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.model import EngineSpec
from orchestrator.errors import EngineFailed
from orchestrator.machine.machine import Machine, ModelCosts
from orchestrator.program import AwaitedModel, Program

pytestmark = pytest.mark.anyio


class Card:
    def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot:
        return SensorSnapshot(now, (gpu(0, 24 * GIB, 20 * GIB),), HostSensor().read(own_pids, now))


async def unchanged() -> None:
    """What codices do about memory: nothing."""


def program(make_chat_model: Any) -> Program:
    """Engine and machine are real; there are no codices, and nobody asks."""
    none: Any = SimpleNamespace()
    client = EngineClient(EngineSpec("fake"))
    meaning: Any = SimpleNamespace(filling=SimpleNamespace(keep_only=lambda names: None), rest=print)
    codices: Any = SimpleNamespace(reconsider=unchanged)
    service: Any = SimpleNamespace(silenced=asyncio.Event())
    library: Any = SimpleNamespace(codices=list)
    return Program(
        service=service, client=client,
        machine=Machine(Card(), GovernorSettings(), ModelCosts(shape(), KvPlan()), client),
        shelf=codices, watching=none, tending=none,
        meaning=meaning, library=library, session_store=none, model_ready=AwaitedModel(), make_chat_model=make_chat_model,
        libraries=lambda: None,
    )  # fmt: skip


async def test_a_start_that_fails_is_told_to_those_who_wait_for_the_model() -> None:
    def make_chat_model() -> Any:
        raise ValueError("a fault of ours")

    started = program(make_chat_model)
    with anyio.fail_after(SOON):
        await started.start()
        with pytest.raises(EngineFailed, match="a fault of ours"):
            await started.model_ready()
        await started.waking.follow(lambda done, total: None)
    assert started.model_ready().done()
    await started.machine.stop()
    await started.client.stop()
