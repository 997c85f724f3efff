"""Next floors: begun when one is due and nobody asks, interrupted by questions, tried again when the engine is back."""

import asyncio
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from orchestrator.codices.successors import Questions, Successors
from orchestrator.codices.transitions import CodexFacts, DiskChanged, DueFloor, IdentityChanged, LoadBegan, LoadEnded
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import LoadInProgress, LoreError, OverBudget

pytestmark = pytest.mark.anyio


@dataclass
class Work:
    """The work on one codex's next floor, in its order."""

    due: str = "50 amended tokens"
    hold: bool = False
    fails: bool = False
    urgent: bool = False
    roomy: bool = False  # memory holds two floors
    ends: int = 0  # so often the engine ends under an attempt
    hindrance: Exception = field(default_factory=lambda: EngineUnavailable("the engine ended (signal 9)"))
    broken: bool = False
    refused: bool = False  # its new floor is larger than all that is granted
    done: list[str] = field(default_factory=list)
    computing: asyncio.Event = field(default_factory=asyncio.Event)
    committed: asyncio.Event = field(default_factory=asyncio.Event)

    def facts(self):
        return {"a": CodexFacts(DueFloor(files=self.due, urgent=self.urgent), roomy=self.roomy)}

    async def prepare(self, name, due):
        assert due.reason == self.due
        self.done.append("prepare")
        if self.fails:
            raise LoreError("no room on disk")
        if self.ends:
            self.ends -= 1
            raise self.hindrance
        return name

    async def compute(self, made):
        self.done.append("compute")
        self.computing.set()
        if self.refused:
            raise OverBudget("5000 tokens of KV are needed, 4000 are granted")
        if self.hold:
            await asyncio.Event().wait()
        return made

    async def commit(self, made):
        assert made == "a"
        self.done.append("commit")
        self.due = ""
        self.committed.set()

    async def engine(self):
        self.done.append("engine")
        if self.broken:
            raise EngineUnavailable("the engine keeps ending", broken=True)


class House:
    """Successors of the codex `a`, and questions that may run."""

    def __init__(self, work, idle_s=0.0, again_s=0.0, patience_s=60.0, long_s=3600.0):
        self.work = work
        self.questions = Questions(time.monotonic)
        self.successors = Successors(work, self.questions, idle_s, again_s, patience_s, long_s)
        self.successors.start()

    def news(self):
        """What is due of the codex is told anew."""
        self.successors.report(DiskChanged(self.work.facts()))

    @contextmanager
    def question(self):
        self.questions.count(1)
        yield
        self.questions.count(-1)


@pytest.fixture
async def house():
    made = []

    def build(**fields):
        limits = {key: fields.pop(key) for key in ("idle_s", "again_s", "patience_s", "long_s") if key in fields}
        made.append(House(Work(**fields), **limits))
        return made[-1]

    yield build
    for one in made:
        await one.successors.stop()


async def steps():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_long_log_becomes_a_new_generation(house):
    one = house()
    one.news()
    await one.work.committed.wait()
    await one.successors.ended("a")
    assert one.work.done == ["prepare", "compute", "commit"]


async def test_a_short_log_stays(house):
    one = house(due="")
    one.news()
    assert not one.successors.under_way("a")


async def test_a_question_interrupts_and_the_next_idle_moment_goes_on(house):
    one = house(hold=True)
    one.news()
    await one.work.computing.wait()
    with one.question():
        await steps()
        assert "commit" not in one.work.done
        one.work.hold = False
    await one.work.committed.wait()
    assert one.work.done == ["prepare", "compute", "prepare", "compute", "commit"]


async def test_one_that_nobody_can_ask_about_waits_for_no_idle_moment(house):
    one = house(urgent=True, idle_s=3600)
    with one.question():
        one.news()
        await one.work.committed.wait()
    assert one.work.done == ["prepare", "commit"]


async def test_one_that_has_waited_long_is_made_beside_the_questions_that_never_end(house):
    one = house(roomy=True, idle_s=3600, long_s=0.01)
    with one.question():
        one.news()
        assert one.work.done == []
        await one.work.committed.wait()
        await one.successors.ended("a")
    assert one.work.done == ["prepare", "compute", "commit"]


async def test_the_wait_of_one_ends_with_its_floor_and_the_next_one_waits_anew(house):
    one = house(roomy=True, idle_s=3600, long_s=0.01)
    with one.question():
        one.news()
        await one.work.committed.wait()
        await one.successors.ended("a")
        one.work.due, one.successors._long_s = "60 amended tokens", 3600.0
        one.news()
        await steps()
        assert one.work.done == ["prepare", "compute", "commit"]
        assert one.successors.under_way("a")


async def test_one_that_becomes_urgent_while_it_waits_begins(house):
    one = house(idle_s=3600)
    with one.question():
        one.news()
        await steps()
        assert one.work.done == []
        one.work.urgent = True
        one.news()
        await one.work.committed.wait()


async def test_what_fails_leaves_the_amendments_and_is_tried_again_with_news_of_it_alone(house):
    one = house(fails=True)
    one.news()
    await one.successors.ended("a")
    assert (one.work.done, one.successors.fault("a")) == (["prepare"], "no room on disk")
    one.work.fails = False
    one.successors.report(IdentityChanged(one.work.facts()))  # as it was: nothing new is known
    assert not one.successors.under_way("a")
    one.news()
    await one.work.committed.wait()


async def test_a_fault_of_ours_leaves_what_is_resident_and_keeps_nothing_busy(house):
    one = house()

    async def broken(name, due):
        raise ZeroDivisionError

    one.work.prepare = broken
    one.news()
    await one.successors.ended("a")
    assert one.successors.fault("a").startswith("ZeroDivisionError")


@pytest.mark.parametrize("urgent", [True, False])
async def test_one_that_the_engines_end_has_ended_is_tried_again_when_the_engine_is_back(house, urgent):
    one = house(urgent=urgent, ends=2)
    one.news()
    await one.successors.ended("a")
    assert one.work.done[:4] == ["prepare", "engine", "prepare", "engine"]
    assert one.work.done[-1] == "commit"
    assert one.successors.fault("a") == ""


async def test_one_whose_files_another_load_has_is_tried_again(house):
    one = house(ends=2, hindrance=LoadInProgress("a load of /src as 'other' is running"))
    one.news()
    await one.successors.ended("a")
    assert one.work.done == ["prepare", "engine", "prepare", "engine", "prepare", "compute", "commit"]


async def test_an_engine_that_will_not_come_back_is_not_waited_for(house):
    one = house(urgent=True, ends=1, broken=True)
    one.news()
    await one.successors.ended("a")
    assert one.work.done == ["prepare", "engine"]
    assert one.successors.fault("a") == "the engine keeps ending"


async def test_a_question_waits_for_a_hindered_one_only_so_long(house):
    one = house(urgent=True, ends=1, again_s=3600, patience_s=0.1)
    one.news()
    await one.successors.ended("a")
    assert one.successors.under_way("a")
    assert one.successors.fault("a") == "the engine ended (signal 9)"


async def test_one_that_becomes_urgent_while_its_floor_is_computed_is_committed_without_waiting_for_that(house):
    one = house(hold=True)
    one.news()
    await one.work.computing.wait()
    one.work.urgent = True
    one.news()
    await one.work.committed.wait()
    assert one.work.done == ["prepare", "compute", "prepare", "commit"]


async def test_one_that_is_no_longer_wanted_while_its_floor_is_computed_ends(house):
    one = house(hold=True)
    one.news()
    await one.work.computing.wait()
    one.work.due = ""
    one.news()
    await one.successors.ended("a")
    assert one.work.done == ["prepare", "compute"]


async def test_a_floor_larger_than_all_that_is_granted_leaves_what_is_resident_and_says_so(house):
    one = house(refused=True)
    one.news()
    await one.successors.ended("a")
    assert one.work.done == ["prepare", "compute"]
    assert one.successors.fault("a") == "5000 tokens of KV are needed, 4000 are granted"


async def test_an_identity_that_changes_again_while_its_floor_is_computed_is_made_of_the_newest_version(house):
    one, made = house(hold=True), []

    def facts():
        return {"a": CodexFacts(DueFloor(identity=one.work.due))}

    async def prepare(name, due):
        made.append(due.identity)
        return name

    one.work.facts, one.work.prepare = facts, prepare
    for version in ("version 2", "version 3"):
        one.work.due = version
        one.work.computing.clear()
        one.successors.report(IdentityChanged(facts()))
        await one.work.computing.wait()
    one.work.hold = False
    one.work.due = "version 4"
    one.successors.report(IdentityChanged(facts()))
    await one.work.committed.wait()
    assert made == ["version 2", "version 3", "version 4"]
    assert one.work.done == ["compute", "compute", "compute", "commit"]


async def test_a_load_ends_what_is_under_way_and_nothing_begins_until_it_has_ended(house):
    one = house(hold=True)
    one.news()
    await one.work.computing.wait()
    one.successors.report(LoadBegan("a"))
    await one.successors.cancelled("a")
    one.work.hold = False
    one.news()
    await steps()
    assert one.work.done == ["prepare", "compute"]
    one.successors.report(LoadEnded(one.work.facts()))
    await one.work.committed.wait()


async def test_codices_get_their_next_floors_one_by_one_the_one_that_was_asked_about_last_first():
    order, left, done = [], {"a": 1.0, "b": 3.0, "c": 2.0}, asyncio.Event()

    class Works(Work):
        def facts(self):
            due = DueFloor(identity="it is another")
            return {name: CodexFacts(due if name in left else DueFloor(), left.get(name, 0.0)) for name in "abc"}

        async def prepare(self, name, due):
            await asyncio.sleep(0)
            return name

        async def commit(self, made):
            order.append(made)
            del left[made]
            if not left:
                done.set()

    one = House(Works())
    one.successors.report(IdentityChanged(one.work.facts()))
    await done.wait()
    await one.successors.stop()
    assert order == ["b", "c", "a"]
