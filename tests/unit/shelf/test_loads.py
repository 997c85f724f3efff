"""Loads that run beside those who watch them: how they end is never mistaken."""

import asyncio

import pytest

from orchestrator.errors import Conflict, LoreError, NotFound
from orchestrator.shelf.loads import Loads

pytestmark = pytest.mark.anyio


async def seen(load):
    try:
        return [event async for event in load.watch()]
    except LoreError as fault:
        return [fault.message]


async def test_events_reach_whoever_watches_and_the_end_is_the_end():
    async def work(load, emit):
        await asyncio.sleep(0)
        emit({"event": "loaded"})

    loads = Loads()
    assert await seen(loads.begin("a", work)) == [{"event": "loaded"}]
    assert loads.failed("a") == ""
    assert loads.find("a") is None


async def test_a_fault_is_told_and_remembered_until_the_next_load():
    async def fails(load, emit):
        await asyncio.sleep(0)
        raise LoreError("no room left")

    async def works(load, emit):
        await asyncio.sleep(0)

    loads = Loads()
    assert await seen(loads.begin("a", fails)) == ["no room left"]
    assert loads.failed("a") == "no room left"
    await seen(loads.begin("a", works))
    assert loads.failed("a") == ""
    await seen(loads.begin("a", fails))
    loads.forget("a")
    assert loads.failed("a") == ""


async def test_a_load_that_breaks_off_is_not_taken_for_one_that_ended():
    async def breaks(load, emit):
        await asyncio.sleep(0)
        raise RuntimeError("a mistake")

    loads = Loads()
    load = loads.begin("a", breaks)
    assert await seen(load) == ["the load of a broke off"]
    with pytest.raises(RuntimeError):
        await load._task


async def test_stopping_ends_a_load_that_only_waits_at_once():
    waiting = asyncio.Event()

    async def waits(load, emit):
        load.stored = True
        waiting.set()
        await asyncio.Event().wait()

    loads = Loads()
    loads.begin("a", waits)
    await waiting.wait()
    with pytest.raises(Conflict, match="taken in already"):
        loads.cancel("a")
    await loads.stop()
    assert loads.find("a") is None


async def test_only_what_runs_can_be_cancelled():
    with pytest.raises(NotFound, match="no load of 'a' is running"):
        Loads().cancel("a")


async def test_a_search_hears_how_far_the_load_is():
    going = asyncio.Event()

    async def work(load, emit):
        emit({"event": "progress", "phase": "index", "done": 1000, "total": 2000})
        going.set()
        await load_ends.wait()

    load_ends, loads = asyncio.Event(), Loads()
    load = loads.begin("a", work)
    await going.wait()
    assert loads.blind("a").startswith("a is being indexed (index 1,000 of 2,000)")
    load_ends.set()
    await load.stop()
    assert loads.blind("a") == ""
