"""What can be told of floors: whose one is, and how long the one that is being computed takes."""

import asyncio
from types import SimpleNamespace

import pytest

from formatters.context import IdentityView
from orchestrator.codices.floors import FloorFigures, Floors
from orchestrator.codices.state import FloorKey
from orchestrator.engine.messages import PrefillProgress
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.prompt.composing import Floor


class Engine:
    """Tells one step of a prefill and then computes on for good; `measured` is what a token takes, by position too."""

    def __init__(self, *measured):
        names = ("ms_per_token_empty", "ms_per_token_cell")
        self.snapshot = EngineSnapshot(0, counters=dict(zip(names, measured, strict=False)))
        self.told = asyncio.Event()

    def put_floor(self, name, ids, *, pool):
        pass

    async def run(self, job):
        yield PrefillProgress(0, 200, 1200)
        self.told.set()
        await asyncio.Event().wait()


def floor(name: str) -> Floor:
    return Floor(name, ())


def place(codex: str) -> FloorKey:
    return FloorKey(codex, 1, "full", IdentityView(name="lorekeep", version="v1"))


@pytest.mark.anyio
async def test_the_rest_of_a_floor_takes_what_was_measured_and_nothing_is_said_before():
    for measured, left in (((30.0,), 30.0), ((30.0, 0.1), 100.0), ((), None)):
        engine = Engine(*measured)
        floors = Floors(engine)
        assert floors.figures("demo") is None
        floors.warm(SimpleNamespace(name="f" * 64, ids=b"", tokens=1200), place("demo"))
        await engine.told.wait()
        assert floors.figures("demo") == FloorFigures(1200, 200, left)
        await floors.stop()


@pytest.mark.anyio
async def test_a_floor_is_known_by_its_codex():
    floors = Floors(Engine(1.0))
    with floors.held(floor("a"), place("demo")), floors.held(floor("b"), place("")):
        assert [floors.codex_of(name) for name in ("a", "b", "unknown")] == ["demo", "", ""]
