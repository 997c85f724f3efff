"""New generations: begun when the log is long and nobody asks, interrupted by questions."""

import asyncio
from dataclasses import dataclass, field

import pytest

from codex.amendments import RebaseCase
from orchestrator.context.assembled import Floor
from orchestrator.engine.parent.supervisor import EngineUnavailable
from orchestrator.errors import LoreError
from orchestrator.shelf.floors import MOST_EARLIER, Floors, pool_name
from orchestrator.shelf.rebasing import Rebasing, Steps

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


@dataclass
class Codex:
    """The steps of one codex, told in order."""

    amended: int = 50
    hold: bool = False
    fails: bool = False
    urgent: bool = False
    ends: int = 0  # so often the engine ends under an attempt
    broken: bool = False
    told: list[str] = field(default_factory=list)
    growing: asyncio.Event = field(default_factory=asyncio.Event)
    installed: asyncio.Event = field(default_factory=asyncio.Event)

    def steps(self):
        return Steps(
            self.case, lambda name: 0.1, lambda name: self.urgent, self.prepare, self.grow, self.install, self.back
        )

    def case(self, name):
        return RebaseCase(idle=True, codex=100, amendments=self.amended, to_compute=100, questions=0)

    async def prepare(self, name):
        self.told.append("prepare")
        if self.fails:
            raise LoreError("no room on disk")
        if self.ends:
            self.ends -= 1
            raise EngineUnavailable("the engine ended (signal 9)")
        return name

    async def back(self):
        self.told.append("back")
        if self.broken:
            raise EngineUnavailable("the engine keeps ending", broken=True)

    async def grow(self, name):
        self.told.append("grow")
        self.growing.set()
        if self.hold:
            await asyncio.Event().wait()
        return True

    async def install(self, name):
        self.told.append("install")
        self.amended = 0
        self.installed.set()


def floor(name: str) -> Floor:
    return Floor(name, ())


@pytest.fixture
def floors():
    return Floors(Engine())  # type: ignore[arg-type]


async def test_a_long_log_becomes_a_new_generation(floors):
    codex = Codex()
    rebasing = Rebasing(floors, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await codex.installed.wait()
    assert codex.told == ["prepare", "grow", "install"]
    assert rebasing.reason("a") == "50 amended tokens are more than 10% of 100"


async def test_a_short_log_stays(floors):
    rebasing = Rebasing(floors, Codex(amended=5).steps(), idle_s=0)
    rebasing.consider("a")
    assert not rebasing.running("a")


async def test_a_question_interrupts_and_the_next_idle_moment_goes_on(floors):
    codex = Codex(hold=True)
    rebasing = Rebasing(floors, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await codex.growing.wait()
    with floors.held(floor("f"), "p"):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "install" not in codex.told
        codex.hold = False
    await codex.installed.wait()
    assert codex.told == ["prepare", "grow", "prepare", "grow", "install"]


async def test_one_that_nobody_can_ask_about_waits_for_no_idle_moment(floors):
    codex = Codex(urgent=True)
    rebasing = Rebasing(floors, codex.steps(), idle_s=3600)
    with floors.held(floor("f"), "p"):
        rebasing.consider("a")
        await codex.installed.wait()
    assert codex.told == ["prepare", "install"]


async def test_one_that_becomes_urgent_while_it_waits_begins(floors):
    codex = Codex()
    rebasing = Rebasing(floors, codex.steps(), idle_s=3600)
    with floors.held(floor("f"), "p"):
        rebasing.consider("a")
        await asyncio.sleep(0)
        codex.urgent = True
        await codex.installed.wait()


async def test_what_fails_leaves_the_amendments_and_may_be_tried_again(floors):
    codex = Codex(fails=True)
    rebasing = Rebasing(floors, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert codex.told == ["prepare"]
    codex.fails = False
    rebasing.consider("a")
    await codex.installed.wait()


@pytest.mark.parametrize("urgent", [True, False])
async def test_one_that_the_engines_end_has_ended_is_tried_again_when_the_engine_is_back(floors, urgent):
    codex = Codex(urgent=urgent, ends=2)
    rebasing = Rebasing(floors, codex.steps(), idle_s=0, again_s=0)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert codex.told[:4] == ["prepare", "back", "prepare", "back"]
    assert codex.told[-1] == "install"
    assert rebasing.hindered("a") == ""


async def test_an_engine_that_will_not_come_back_is_not_waited_for(floors):
    codex = Codex(urgent=True, ends=1, broken=True)
    rebasing = Rebasing(floors, codex.steps(), again_s=0)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert codex.told == ["prepare", "back"]
    assert rebasing.hindered("a") == "the engine keeps ending"


async def test_a_question_waits_for_a_hindered_one_only_so_long(floors):
    codex = Codex(urgent=True, ends=1)
    rebasing = Rebasing(floors, codex.steps(), again_s=3600, patience_s=0.1)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert rebasing.running("a")
    assert rebasing.hindered("a") == "the engine ended (signal 9)"
    await rebasing.stop()


async def test_a_floor_that_is_used_is_not_dropped_under_its_answer():
    engine = Engine()
    floors = Floors(engine)  # type: ignore[arg-type]
    pool = pool_name("lorekeep", "a")
    floors.warm("a", floor("old"), pool)
    with floors.held(floor("old"), pool):
        floors.warm("a", floor("new"), pool, new_generation=True)
        assert engine.dropped == []
    assert engine.dropped == ["old"]
    assert engine.floors == {"new": pool}
    await floors.stop()


async def test_a_few_earlier_floors_are_kept_for_conversations_that_go_on():
    engine = Engine()
    floors = Floors(engine)  # type: ignore[arg-type]
    for number in range(MOST_EARLIER + 3):
        with floors.held(floor(f"f{number}"), "p"):
            pass
    assert engine.dropped == ["f0", "f1", "f2"]
