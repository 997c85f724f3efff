"""Floors in the engine: which are kept for whom, and when they go."""

import asyncio
from dataclasses import dataclass, field

import pytest

from formatters.context import IdentityView
from orchestrator.codices.floors import MOST_EARLIER, Floors
from orchestrator.codices.state import FloorKey
from orchestrator.prompt.composing import Floor

pytestmark = pytest.mark.anyio


@dataclass
class Engine:
    """Knows floors, computes nothing: a prefill lasts until it is let go."""

    floors: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)

    def put_floor(self, name, ids, pool=""):
        self.floors[name] = pool

    def drop_floor(self, name):
        del self.floors[name]
        self.dropped.append(name)

    async def run(self, job):
        await asyncio.Event().wait()
        yield None


def floor(name: str) -> Floor:
    return Floor(name, ())


def place(codex="a", generation=1, version="v1", identity="lorekeep") -> FloorKey:
    return FloorKey(codex, generation, "full", IdentityView(name=identity, version=version))


async def test_a_floor_that_is_used_is_not_dropped_under_its_answer():
    engine = Engine()
    floors = Floors(engine)
    floors.warm(floor("old"), place())
    with floors.held(floor("old"), place()):
        floors.warm(floor("new"), place(generation=2), to_stay=True)
        assert engine.dropped == []
    assert engine.dropped == ["old"]
    assert engine.floors == {"new": place().pool}
    await floors.stop()


async def test_versions_of_an_identity_have_pools_of_their_own_and_the_old_one_goes_with_its_floors():
    engine = Engine()
    floors = Floors(engine)
    floors.warm(floor("old"), place())
    with floors.held(floor("named"), place(identity="reviewer")):
        pass
    floors.warm(floor("new"), place(version="v2"), to_stay=True)
    floors.release_earlier("a")
    with floors.held(floor("new"), place(version="v2")):
        pass
    assert engine.floors == {"new": "lorekeep@v2/a", "named": "reviewer@v1/a"}
    await floors.stop()


async def test_a_new_generation_releases_the_floors_of_named_identities_too():
    engine = Engine()
    floors = Floors(engine)
    with floors.held(floor("named"), place(identity="reviewer")):
        pass
    with floors.held(floor("of another codex"), place("b", identity="reviewer")):
        pass
    floors.warm(floor("new"), place(generation=2), to_stay=True)
    with floors.held(floor("new"), place(generation=2)):
        pass
    assert engine.dropped == ["named"]
    await floors.stop()


async def test_a_bare_identity_keeps_the_floor_of_its_newest_version_alone():
    engine = Engine()
    floors = Floors(engine)
    for version in ("v1", "v2"):
        with floors.held(floor(version), place("", 0, version)):
            pass
    assert engine.floors == {"v2": "lorekeep@v2/"}


async def test_a_few_earlier_floors_are_kept_for_conversations_that_go_on():
    engine = Engine()
    floors = Floors(engine)
    for number in range(MOST_EARLIER + 3):
        with floors.held(floor(f"f{number}"), place()):
            pass
    assert engine.dropped == ["f0", "f1", "f2"]
