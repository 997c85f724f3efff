"""Loads that run beside those who watch them: how they end is never mistaken."""

import asyncio

import pytest

from codex.errors import LoadCancelled
from codex.progress import progress_at
from orchestrator.codices.loads import ALLOWED, AT_ONCE, Loads, LoadState, RunningLoad
from orchestrator.errors import Conflict, LoreError, NotFound, translated
from orchestrator.wire.replies import LoadReport

pytestmark = pytest.mark.anyio


async def seen(load):
    try:
        return [event async for event in load.watch()]
    except LoreError as fault:
        return [fault.message]


async def test_events_reach_whoever_watches_and_the_end_is_the_end():
    async def work(load):
        await asyncio.sleep(0)
        load.emit({"event": "loaded"})

    loads = Loads()
    assert await seen(loads.begin("a", work)) == [{"event": "loaded"}]
    assert loads.failed("a") == ""
    assert loads.find("a") is None


async def test_so_many_work_at_once_and_one_that_is_cancelled_in_line_takes_no_turn():
    going, at_work, most = asyncio.Event(), set(), []

    async def work(load):
        async with load.holding(loads.turns):
            at_work.add(load.name)
            most.append(len(at_work))
            await going.wait()
            at_work.discard(load.name)

    loads = Loads()
    running = [loads.begin(name, work) for name in "abcdef"]
    watching = [asyncio.ensure_future(seen(load)) for load in running]
    await asyncio.sleep(0)
    await loads.find("c").cancel()
    going.set()
    await asyncio.gather(*watching)
    assert max(most) == AT_ONCE
    assert len(most) == len(running) - 1
    assert not loads.turns.locked()


async def test_a_fault_is_told_and_remembered_until_the_next_load():
    async def fails(load):
        await asyncio.sleep(0)
        raise LoreError("no room left")

    async def works(load):
        await asyncio.sleep(0)

    loads = Loads()
    assert await seen(loads.begin("a", fails)) == ["no room left"]
    assert loads.failed("a") == "no room left"
    await seen(loads.begin("a", works))
    assert loads.failed("a") == ""
    await seen(loads.begin("a", fails))
    loads.forget("a")
    assert loads.failed("a") == ""


async def test_how_far_each_load_is_and_how_it_ended_can_be_read_off():
    async def fails(load):
        load.report(progress_at("index", 3, 12, 1.5))
        await asyncio.sleep(0)
        raise LoreError("no room left")

    async def works(load):
        await asyncio.sleep(0)

    loads = Loads()
    begun = loads.begin("a", fails)
    assert loads.reports() == (loads.report("a"),) == (reported("a"),)
    events = begun.watch()
    await anext(events)
    indexing = {"phase": "index", "done": 3, "total": 12, "rate": 2.0, "eta_s": 4.5}
    assert loads.report("a") == reported("a", **indexing)
    with pytest.raises(LoreError, match="no room left"):
        await anext(events)
    await seen(loads.begin("b", works))
    assert loads.report("a") is None
    ended = reported("a", **indexing, ended=True, failed="no room left")
    assert loads.reports() == (ended, reported("b", number=2, ended=True))


def reported(codex, **known):
    start = {"number": 1, "phase": None, "done": 0, "total": 0, "rate": 0, "eta_s": None, "ended": False, "failed": ""}
    return LoadReport(codex=codex, **start | known)


async def test_while_a_codex_is_dropped_no_load_of_it_begins():
    async def work(load):
        await asyncio.sleep(0)

    loads = Loads()
    with loads.dropping("a"):
        with pytest.raises(Conflict, match="is being dropped"):
            loads.begin("a", work)
        assert await seen(loads.begin("b", work)) == []
    load = loads.begin("a", work)
    with pytest.raises(Conflict, match="is running"), loads.dropping("a"):
        pass
    assert await seen(load) == []


async def test_a_load_that_is_refused_because_of_another_codex_is_no_failure_of_this_one():
    async def taken(load):
        await asyncio.sleep(0)
        raise Conflict("codex name 'a' is taken by /other")

    async def fails(load):
        await asyncio.sleep(0)
        raise LoreError("no room left")

    loads = Loads()
    assert await seen(loads.begin("a", taken)) == ["codex name 'a' is taken by /other"]
    assert loads.failed("a") == ""
    await seen(loads.begin("a", fails))
    await seen(loads.begin("a", taken))
    assert loads.failed("a") == "no room left"


async def test_a_load_that_breaks_off_is_not_taken_for_one_that_ended_and_the_log_says_why(caplog):
    async def breaks(load):
        await asyncio.sleep(0)
        raise RuntimeError("a mistake")

    loads = Loads()
    load = loads.begin("a", breaks)
    assert await seen(load) == ["the load of a broke off"]
    assert "RuntimeError: a mistake" in caplog.text
    with pytest.raises(RuntimeError):
        await load._task


async def test_stopping_ends_a_load_that_only_waits_at_once():
    waiting = asyncio.Event()

    async def waits(load):
        waiting.set()
        await asyncio.Event().wait()

    loads = Loads()
    loads.begin("a", waits)
    await waiting.wait()
    await loads.stop()
    assert loads.find("a") is None


async def test_a_load_that_the_program_ends_says_why_and_that_it_goes_on_where_it_was():
    async def waits(load):
        await asyncio.Event().wait()

    async def finds_out(load):
        await asyncio.to_thread(load.cancelled.wait)
        load.check()

    for work in (waits, finds_out):
        loads = Loads()
        watching = asyncio.ensure_future(seen(loads.begin("a", work)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await loads.stop("the model was changed")
        assert await watching == ["the load of a was cut off: the model was changed"]


async def test_cancelling_ends_what_is_waited_for_and_returns_when_the_load_has_tidied_up():
    begun, steps = asyncio.Event(), []

    async def forever():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("the wait ended")

    async def works(load):
        try:
            await load.unless_cancelled(forever())
        except LoadCancelled as cancelled:
            assert load.state is LoadState.CANCELLED
            await asyncio.sleep(0)
            steps.append("taken back")
            raise LoreError("the load was cancelled") from cancelled

    loads = Loads()
    load = loads.begin("a", works)
    await begun.wait()
    await loads.cancel("a")
    assert steps == ["the wait ended", "taken back"]
    assert (loads.find("a"), loads.failed("a")) == (None, "the load was cancelled")
    with pytest.raises(LoadCancelled):
        load.commit()


async def test_the_end_of_the_daemon_is_nobody_s_wish_to_take_a_load_back():
    begun, seen = asyncio.Event(), []

    async def works(load):
        begun.set()
        try:
            await load.unless_cancelled(asyncio.Event().wait())
        finally:
            seen.append(load.state)

    loads = Loads()
    loads.begin("a", works)
    await begun.wait()
    await loads.stop()
    assert seen == [LoadState.CUT]


@pytest.mark.parametrize("end", ["cancel", "stop"])
async def test_a_lock_that_a_load_waits_for_is_free_again_however_it_ends(end):
    lock, waiting = asyncio.Lock(), asyncio.Event()

    async def works(load):
        waiting.set()
        with translated():  # as every load; what is not is a fault of the program, which its task would report later
            async with load.holding(lock):
                load.emit({"event": "loaded"})

    loads = Loads()
    for gets_it in (True, False):
        await lock.acquire()
        waiting.clear()
        load = loads.begin("a", works)
        await waiting.wait()
        await asyncio.sleep(0)
        if gets_it:  # in the very moment in which it is ended
            lock.release()
        ending = asyncio.create_task(loads.cancel("a") if end == "cancel" else load.stop())
        await asyncio.wait([ending])
        if not gets_it:
            lock.release()
        assert not lock.locked()
        async with lock:
            pass
        ending.exception()


async def test_what_is_committed_can_no_longer_be_cancelled():
    committed, ending = asyncio.Event(), asyncio.Event()

    async def works(load):
        load.commit()
        committed.set()
        await ending.wait()

    loads = Loads()
    load = loads.begin("a", works)
    await committed.wait()
    with pytest.raises(Conflict, match="'a' is loaded already"):
        await loads.cancel("a")
    ending.set()
    assert await seen(load) == []
    assert loads.failed("a") == ""


async def test_only_what_runs_can_be_cancelled():
    with pytest.raises(NotFound, match="no load of 'a' is running"):
        await Loads().cancel("a")


async def test_the_thread_that_takes_in_has_ended_before_a_load_that_the_program_cuts():
    steps, begun = [], asyncio.Event()

    async def works(load):
        loop = asyncio.get_running_loop()

        def takes_in():
            loop.call_soon_threadsafe(begun.set)
            load.cancelled.wait()
            steps.append("the thread ended")

        try:
            await load.in_thread(asyncio.to_thread(takes_in))
        finally:
            steps.append("the load ended")

    loads = Loads()
    watching = asyncio.ensure_future(seen(loads.begin("a", works)))
    await begun.wait()
    await loads.stop()
    assert steps == ["the thread ended", "the load ended"]
    assert await watching == ["the load of a was cut off: the daemon is stopping"]


async def test_a_fault_of_the_thread_is_the_load_s():
    async def nothing(load):
        pass

    async def fails():
        raise LoreError("no room left")

    with pytest.raises(LoreError, match="no room left"):
        await RunningLoad("a", nothing).in_thread(fails())


def test_nothing_follows_the_program_s_end_and_nothing_leads_back():
    assert ALLOWED[LoadState.CUT] == set()
    assert all(LoadState.RUNNING not in followers for followers in ALLOWED.values())
    assert set(ALLOWED) == set(LoadState)
