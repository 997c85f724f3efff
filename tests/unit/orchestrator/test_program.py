"""The program's start: who waits for the model is told how it went, whatever that was; and whether an answer can be given:
a model that was there says nothing of a process that runs."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from support.fake_engine import FAKE
from support.gpus import gpu
from support.shapes import shape
from support.waiting import SOON

from governor.footprint import KvPlan
from governor.readings import SensorSnapshot
from governor.sensors import HostSensor
from governor.settings import GIB, GovernorSettings, YieldSettings
from orchestrator.codices.loads import Loads
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.engine.model import EngineSpec
from orchestrator.errors import Conflict, EngineFailed
from orchestrator.machine.machine import Machine, ModelCosts
from orchestrator.machine.yielding import Yielding
from orchestrator.program import Program
from orchestrator.service import Principal
from orchestrator.waking import AwaitedModel

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]


class Card:
    def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot:
        return SensorSnapshot(now, (gpu(0, 24 * GIB, 20 * GIB),), HostSensor().read(own_pids, now))


async def unchanged() -> None:
    """What codices do about memory: nothing."""


async def unlimited() -> None:
    """No length was measured."""


def program(make_chat_model: Any, folder: Path) -> Program:
    """Engine and machine are real; there are no codices, and nobody asks."""
    none: Any = SimpleNamespace()
    client = EngineClient(EngineSpec(FAKE))
    machine = Machine(Card(), GovernorSettings(), ModelCosts(shape(), KvPlan()), client)
    yielding = Yielding(client, YieldSettings(), folder / "paused.json", 0.0, machine.busy, machine.look)
    meaning: Any = SimpleNamespace(filling=SimpleNamespace(keep_only=lambda names: None), rest=print)
    codices: Any = SimpleNamespace(reconsider=unchanged)
    library: Any = SimpleNamespace(catalog=SimpleNamespace(codices=list))
    meter: Any = SimpleNamespace(limit=unlimited)
    untended: Any = SimpleNamespace(tend=lambda: None)
    return Program(
        client=client,
        machine=machine,
        yielding=yielding,
        residents=none, lifecycle=codices, library=library, states=none, loads=none, reports=none,
        watchers=none, upkeep=none, loader=none, searcher=none, codex_symbols=none, maps=none, files=none,
        floor_files=none,
        answers=none, texts=none, about=none,
        meaning=meaning, records=none, tending=untended, identity_files=none,
        model_ready=AwaitedModel(), make_chat_model=make_chat_model, import_agent=lambda: None, exchange=none,
        meter=meter,
    )  # fmt: skip


async def test_a_start_that_fails_is_told_to_those_who_wait_for_the_model(tmp_path: Path) -> None:
    def make_chat_model() -> Any:
        raise ValueError("a fault of ours")

    started = program(make_chat_model, tmp_path)
    with anyio.fail_after(SOON):
        await started.start()
        with pytest.raises(EngineFailed, match="a fault of ours"):
            await started.model_ready()
        await started.waking.follow(lambda done, total: None)
    assert started.model_ready().done()
    await started.machine.stop()
    await started.yielding.stop()
    await started.client.stop()


@pytest.mark.parametrize("state", list(ChildState))
async def test_it_is_ready_while_the_engine_s_process_is_and_not_while_it_cannot_start(state):
    spoken = asyncio.get_running_loop().create_future()
    spoken.set_result(object())
    client = SimpleNamespace(state=state, info=object(), reason="no process to spare")
    ready, why = await Program.ready(SimpleNamespace(model_ready=lambda: spoken, client=client))
    assert ready == (state is ChildState.READY)
    assert why == "no process to spare"


async def test_a_load_that_comes_while_its_codex_is_dropped_is_refused():
    loads, forgotten = Loads(), []

    async def own(_, name):
        return name

    async def dropped(name):
        with pytest.raises(Conflict):
            loads.begin(name, lambda load: asyncio.sleep(0))
        forgotten.append(name)

    forgets = SimpleNamespace(forget=forgotten.append)
    codices = SimpleNamespace(drop=dropped, own=own)
    program = SimpleNamespace(loads=loads, watchers=forgets, lifecycle=codices, upkeep=forgets)
    await Program.drop(program, Principal(0, 0, 1), "code")
    assert forgotten == ["code"] * 3
    loads.begin("code", lambda load: asyncio.sleep(0))
    await loads.stop()
