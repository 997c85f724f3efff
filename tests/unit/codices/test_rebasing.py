"""New generations: begun when the log is long and nobody asks, interrupted by questions."""

import asyncio
from dataclasses import dataclass, field

import pytest

from formatters.context import IdentityView
from orchestrator.codices.floors import MOST_EARLIER, Floors
from orchestrator.codices.rebasing import Due, Rebasing, Steps
from orchestrator.codices.state import FloorKey
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import LoreError, OverBudget
from orchestrator.prompt.assembly import Floor

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

    due: str = "50 amended tokens"
    used: float = 0.0
    hold: bool = False
    fails: bool = False
    urgent: bool = False
    ends: int = 0  # so often the engine ends under an attempt
    broken: bool = False
    refused: bool = False  # its new floor is larger than all that is granted
    told: list[str] = field(default_factory=list)
    growing: asyncio.Event = field(default_factory=asyncio.Event)
    installed: asyncio.Event = field(default_factory=asyncio.Event)

    def steps(self):
        return Steps(
            lambda name: Due("generation", self.due) if self.due else Due(),
            lambda name: self.used,
            lambda name: self.urgent,
            self.prepare,
            self.grow,
            self.install,
            self.back,
        )

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
        if self.refused:
            raise OverBudget("5000 tokens of KV are needed, 4000 are granted")
        if self.hold:
            await asyncio.Event().wait()
        return name

    async def install(self, name):
        self.told.append("install")
        self.due = ""
        self.installed.set()


def floor(name: str) -> Floor:
    return Floor(name, ())


def place(codex="a", generation=1, version="v1", identity="lorekeep") -> FloorKey:
    return FloorKey(codex, generation, "full", IdentityView(name=identity, version=version))


@pytest.fixture
def floors():
    return Floors(Engine())  # type: ignore[arg-type]


async def test_a_long_log_becomes_a_new_generation(floors):
    codex = Codex()
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await codex.installed.wait()
    assert codex.told == ["prepare", "grow", "install"]
    assert rebasing.reason("a") == "50 amended tokens"


async def test_a_short_log_stays(floors):
    rebasing = Rebasing(floors.questions, Codex(due="").steps(), idle_s=0)
    rebasing.consider("a")
    assert not rebasing.running("a")


async def test_a_question_interrupts_and_the_next_idle_moment_goes_on(floors):
    codex = Codex(hold=True)
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await codex.growing.wait()
    with floors.held(floor("f"), place()):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "install" not in codex.told
        codex.hold = False
    await codex.installed.wait()
    assert codex.told == ["prepare", "grow", "prepare", "grow", "install"]


async def test_one_that_nobody_can_ask_about_waits_for_no_idle_moment(floors):
    codex = Codex(urgent=True)
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=3600)
    with floors.held(floor("f"), place()):
        rebasing.consider("a")
        await codex.installed.wait()
    assert codex.told == ["prepare", "install"]


async def test_one_that_becomes_urgent_while_it_waits_begins(floors):
    codex = Codex()
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=3600)
    with floors.held(floor("f"), place()):
        rebasing.consider("a")
        await asyncio.sleep(0)
        codex.urgent = True
        await codex.installed.wait()


async def test_what_fails_leaves_the_amendments_and_may_be_tried_again(floors):
    codex = Codex(fails=True)
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert codex.told == ["prepare"]
    codex.fails = False
    rebasing.consider("a")
    await codex.installed.wait()


@pytest.mark.parametrize("urgent", [True, False])
async def test_one_that_the_engines_end_has_ended_is_tried_again_when_the_engine_is_back(floors, urgent):
    codex = Codex(urgent=urgent, ends=2)
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=0, again_s=0)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert codex.told[:4] == ["prepare", "back", "prepare", "back"]
    assert codex.told[-1] == "install"
    assert rebasing.hindered("a") == ""


async def test_an_engine_that_will_not_come_back_is_not_waited_for(floors):
    codex = Codex(urgent=True, ends=1, broken=True)
    rebasing = Rebasing(floors.questions, codex.steps(), again_s=0)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert codex.told == ["prepare", "back"]
    assert rebasing.hindered("a") == "the engine keeps ending"


async def test_a_question_waits_for_a_hindered_one_only_so_long(floors):
    codex = Codex(urgent=True, ends=1)
    rebasing = Rebasing(floors.questions, codex.steps(), again_s=3600, patience_s=0.1)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert rebasing.running("a")
    assert rebasing.hindered("a") == "the engine ended (signal 9)"
    await rebasing.stop()


async def test_one_that_becomes_urgent_while_its_floor_grows_is_installed_without_waiting_for_that(floors):
    codex = Codex(hold=True)
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await codex.growing.wait()
    codex.urgent = True
    await codex.installed.wait()
    assert codex.told == ["prepare", "grow", "prepare", "install"]


async def test_one_that_is_no_longer_wanted_while_its_floor_grows_ends(floors):
    codex = Codex(hold=True)
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await codex.growing.wait()
    codex.due = ""
    await rebasing.ended("a")
    assert codex.told == ["prepare", "grow"]


async def test_a_floor_larger_than_all_that_is_granted_leaves_what_stands_and_says_so(floors):
    codex = Codex(refused=True)
    rebasing = Rebasing(floors.questions, codex.steps(), idle_s=0)
    rebasing.consider("a")
    await rebasing.ended("a")
    assert codex.told == ["prepare", "grow"]
    assert rebasing.hindered("a") == "5000 tokens of KV are needed, 4000 are granted"


async def test_codices_get_their_new_floors_one_by_one_the_one_that_was_asked_about_last_first(floors):
    order, left = [], {"a": 1.0, "b": 3.0, "c": 2.0}
    done = asyncio.Event()

    async def step(name):
        await asyncio.sleep(0)
        return name

    async def install(name):
        order.append(name)
        del left[name]
        if not left:
            done.set()

    steps = Steps(
        lambda name: Due("identity", "it is another") if name in left else Due(),
        left.__getitem__,
        lambda name: False,
        step,
        step,
        install,
        lambda: step(""),
    )
    rebasing = Rebasing(floors.questions, steps, idle_s=0)
    for name in "abc":
        rebasing.consider(name)
    await done.wait()
    assert order == ["b", "c", "a"]


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
    floors.settle("a")
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
