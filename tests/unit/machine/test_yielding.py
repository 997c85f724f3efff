"""The engine follows the table: a real child process around the fake backend leaves and comes back."""

from contextlib import asynccontextmanager

import anyio
import pytest
from support.fake_engine import FAKE
from support.waiting import SOON

from governor.settings import YieldSettings
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.engine.model import EngineSpec
from orchestrator.machine.clock import SteadyClock
from orchestrator.machine.yielding import Cause, Pause, Yielding, read_pauses, write_pauses

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]


class Running:
    """`looked`: how often the machine was read before a return."""

    def __init__(self, folder, settings, clock=None):
        self.client, self.looked, self.asked = EngineClient(EngineSpec(FAKE)), 0, []
        self.file = folder / "paused.json"
        self.yielding = Yielding(self.client, settings, self.file, 1.0, self.asked.append, self.look, clock)

    async def look(self):
        self.looked += 1

    async def gone(self):
        await self.yielding._until(lambda: self.yielding.gone)


@asynccontextmanager
async def running(folder, clock=None, **settings):
    run = Running(folder, YieldSettings(**{"idle_s": 0.0, **settings}), clock)
    with anyio.fail_after(SOON):
        run.yielding.begin()
        run.yielding.start()
        try:
            yield run
        finally:
            await run.yielding.stop()
            await run.client.stop()


async def test_an_idle_engine_leaves_and_a_question_brings_it_back(tmp_path):
    async with running(tmp_path, idle_s=0.01) as run:
        await run.gone()
        assert (run.yielding.away.cause, run.yielding.paused, run.client.pid) == (Cause.IDLE, None, None)
        assert "nobody asked" in run.client.reason
        with run.yielding.question():
            await run.client.encode(["x"])
            assert (run.yielding.gone, run.asked[-1], run.looked > 0) == (False, True, True)
        await run.gone()
        assert run.asked[-1] is False


async def test_an_engine_that_works_without_a_question_is_not_idle(tmp_path, monkeypatch):
    monkeypatch.setattr(EngineClient, "busy", True)
    async with running(tmp_path, idle_s=0.01) as run:
        await run.client.ensure_ready()
        with anyio.move_on_after(0.1):
            await run.gone()
        assert not run.yielding.gone


async def test_others_growth_ends_it_politely_and_a_calm_level_brings_it_back(tmp_path):
    async with running(tmp_path) as run:
        run.yielding.memory_read("others hold 7 GiB", False)
        await run.gone()
        assert "others hold 7 GiB" in run.client.reason
        run.yielding.memory_read("", True)
        await run.client.ensure_ready()
    async with running(tmp_path, polite=False) as run:
        run.yielding.memory_read("others hold 7 GiB", False)
        await run.client.ensure_ready()
        assert run.yielding.away is None


async def test_a_pause_that_is_ended_while_the_engine_leaves_is_over_for_all_who_wait_for_it(tmp_path):
    async with running(tmp_path) as run, anyio.create_task_group() as tasks:
        await run.client.ensure_ready()
        tasks.start_soon(run.yielding.pause, "one")
        while not run.yielding.paused:
            await anyio.lowlevel.checkpoint()
        assert run.yielding.end() != ()
        await run.client.ensure_ready()
        assert not run.file.exists()


async def test_a_daemon_that_begins_paused_has_no_engine_until_the_pause_is_over(tmp_path):
    write_pauses(tmp_path / "paused.json", (Pause("1", 0.0, "lore pause"),))
    async with running(tmp_path) as run:
        assert (run.client.state, run.yielding.gone, run.client.pid) == (ChildState.PAUSED, True, None)
        await run.yielding.pause("another")
        assert "lore pause, another" in run.client.reason
        assert len(run.yielding.end()) == 2
        await run.client.ensure_ready()
        assert read_pauses(run.file, 0.0) == ()


async def test_a_pause_that_cannot_be_written_is_none(tmp_path):
    async with running(tmp_path) as run:
        run.file.with_name("paused.json.new").mkdir()
        with pytest.raises(OSError, match=r"paused\.json"):
            await run.yielding.pause("one")
        assert run.yielding.away is None


class Clocks:
    """The time that passes, and a wall clock that somebody sets."""

    def __init__(self):
        self.passed, self.wall = 0.0, 1_000_000.0
        self.clock = SteadyClock(lambda: self.wall + self.passed, lambda: self.passed)


@pytest.mark.parametrize("by", [365 * 86_400.0, -365 * 86_400.0])
async def test_a_wall_clock_that_is_set_neither_ends_a_pause_nor_makes_it_longer(tmp_path, by):
    clocks = Clocks()
    async with running(tmp_path, clocks.clock) as run:
        await run.yielding.pause("training", 3600.0)
        clocks.wall += by
        clocks.passed = 3599.0
        run.yielding.memory_read("", True)
        away = run.yielding.away
        assert (away.since, away.until) == (clocks.wall, clocks.wall + 3600.0), "as the wall clock has it now"
        clocks.passed = 3601.0
        run.yielding.memory_read("", True)
        assert run.yielding.away is None
        await run.client.ensure_ready()


@pytest.mark.parametrize("by", [365 * 86_400.0, -365 * 86_400.0])
async def test_a_wall_clock_that_is_set_makes_nobody_idle_and_keeps_no_idle_engine(tmp_path, by):
    clocks = Clocks()
    async with running(tmp_path, clocks.clock, idle_s=600.0) as run:
        await run.client.ensure_ready()
        clocks.wall += by
        clocks.passed = 599.0
        run.yielding.memory_read("", False)
        assert run.yielding.away is None
        clocks.passed = 601.0
        run.yielding.memory_read("", False)
        assert run.yielding.away.cause is Cause.IDLE
        await run.gone()


async def test_a_pause_is_kept_in_the_times_of_the_wall_clock_that_the_next_daemon_has(tmp_path):
    clocks = Clocks()
    async with running(tmp_path, clocks.clock) as run:
        clocks.wall += 5000.0
        await run.yielding.pause("training", 60.0)
        (kept,) = read_pauses(run.file, clocks.wall)
        assert (kept.since, kept.until) == (clocks.wall, clocks.wall + 60.0)


async def test_questions_that_come_and_go_wake_nobody_who_waits_for_the_memory(tmp_path):
    async with running(tmp_path, idle_s=600.0) as run:
        await run.client.ensure_ready()
        with run.yielding.question():  # the first is looked at by who follows
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        moved = run.yielding._moved
        for _ in range(3):
            with run.yielding.question():
                await anyio.lowlevel.checkpoint()
        assert run.yielding._moved is moved
