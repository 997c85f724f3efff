"""The servers of an engine, against a server that speaks as told."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.stand_in_server import Script, StandIn, stand_in
from support.waiting import Told

from orchestrator.engine.model import RemoteSpec
from orchestrator.engine.remote import fleet as fleets
from orchestrator.engine.remote import routing
from orchestrator.engine.remote.fleet import Fleet
from orchestrator.engine.remote.replies import ServerFault

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def watched(*servers: StandIn) -> AsyncIterator[tuple[Fleet, Told]]:
    """A fleet that looks at its servers, and what tells when one stands otherwise."""
    told = Told()
    fleet = Fleet(RemoteSpec(tuple(one.url for one in servers)), 0, told.tell)
    await fleet.begin(print)
    watching = asyncio.create_task(fleet.watch())
    try:
        yield fleet, told
    finally:
        watching.cancel()
        await fleet.close()


def states(fleet: Fleet) -> list[str]:
    return [one.state for one in fleet.states]


async def begun(server: StandIn) -> None:
    """Until a request is held."""
    assert await asyncio.to_thread(server.begun.wait, 60)


async def test_a_server_that_could_not_answer_is_looked_at_before_it_was_due(monkeypatch):
    monkeypatch.setattr(routing, "LOOK_S", 3600.0)
    monkeypatch.setattr(routing, "FIRST_PAUSE_S", 0.01)
    with stand_in() as server:
        async with watched(server) as (fleet, told):
            await asyncio.sleep(0)
            fleet.failed(server.url, ServerFault("it broke off"))
            await told.until(lambda: states(fleet) == ["up"])


async def test_a_server_that_is_slow_delays_no_look_at_another_one(monkeypatch):
    monkeypatch.setattr(routing, "LOOK_S", 0.01)
    with stand_in() as slow, stand_in() as other:
        async with watched(slow, other):
            slow.script.held["/health"] = held = threading.Event()
            await begun(slow)
            for _ in range(2):  # the first look may have begun with that at the slow one
                other.begun.clear()
                other.script.held["/health"] = seen = threading.Event()
                await begun(other)
                seen.set()
            held.set()


async def test_a_start_waits_a_moment_for_the_looks_at_the_others_and_who_says_nothing_is_down_until_then(monkeypatch):
    monkeypatch.setattr(fleets, "LOOKS_S", 0.2)
    held = threading.Event()
    with stand_in() as one, stand_in(Script(held={"/v1/models": held})) as slow:
        async with watched(one, slow) as (fleet, told):
            assert states(fleet) == ["up", "down"]
            assert "has not said yet" in fleet.states[1].reason
            held.set()
            await told.until(lambda: states(fleet) == ["up", "up"])


async def test_what_a_server_failed_during_a_look_is_newer_than_what_the_look_saw():
    with stand_in() as server:
        fleet = Fleet(RemoteSpec((server.url,)), 0)
        await fleet.begin(print)
        server.script.held["/health"] = held = threading.Event()
        looking = asyncio.create_task(fleet.look(server.url))
        await begun(server)
        fleet.failed(server.url, ServerFault("it broke off"))
        held.set()
        await looking
        await fleet.close()
    assert (fleet.states[0].state, fleet.states[0].reason) == ("down", "it broke off")


async def test_a_mistake_of_ours_in_a_look_does_not_end_the_looking(monkeypatch):
    def mistaken(*_):
        raise ValueError("no page")

    monkeypatch.setattr(routing, "LOOK_S", 0.01)
    monkeypatch.setattr(routing, "FIRST_PAUSE_S", 0.01)
    with stand_in() as server:
        async with watched(server) as (fleet, told):
            with monkeypatch.context() as patched:
                patched.setattr(fleets, "load_of", mistaken)
                await told.until(lambda: "ValueError: no page" in fleet.states[0].reason)
            await told.until(lambda: states(fleet) == ["up"])


async def test_a_first_server_that_is_slow_is_told_of_and_one_word_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(fleets, "SLOW_S", 0.01)
    monkeypatch.setattr(fleets, "AGAIN_S", 0.01)
    monkeypatch.setattr(fleets, "PROBE_S", 0.2)
    held, told, heard = threading.Event(), Told(), list[str]()

    def hear(why: str) -> None:
        heard.append(why)
        told.tell()

    with stand_in(Script("llama-server", held={"/v1/completions": held})) as server:
        fleet = Fleet(RemoteSpec((server.url,)), 0)
        beginning = asyncio.create_task(fleet.begin(hear))
        await told.until(lambda: any("computed no token" in why for why in heard))
        held.set()
        await beginning
        await fleet.close()
    assert heard[0] == f"{server.url} has not said yet what it serves"
    assert states(fleet) == ["up"]


async def test_calls_that_one_server_fails_at_once_take_no_other_one_for_down():
    with stand_in() as one, stand_in() as two:
        fleet = Fleet(RemoteSpec((one.url, two.url)), 0)
        served = await fleet.begin(print)
        one.leave()
        found = await asyncio.gather(*(served.tokens.ids(f"text {n}", control=False) for n in range(8)))
        await fleet.close()

    assert [list(ids) for ids in found] == [list(f"text {n}".encode()) for n in range(8)]
    assert [state.state for state in fleet.states] == ["down", "up"]
