"""The servers of an engine, against a server that speaks as told."""

import asyncio

import pytest
from support.stand_in_server import stand_in

from orchestrator.engine.model import RemoteSpec
from orchestrator.engine.remote import routing
from orchestrator.engine.remote.fleet import Fleet
from orchestrator.engine.remote.replies import ServerFault

pytestmark = pytest.mark.anyio


async def test_a_server_that_could_not_answer_is_looked_at_before_it_was_due(monkeypatch):
    monkeypatch.setattr(routing, "LOOK_S", 3600.0)
    monkeypatch.setattr(routing, "FIRST_PAUSE_S", 0.01)
    stood = asyncio.Event()
    with stand_in() as server:
        fleet = Fleet(RemoteSpec((server.url,)), 0, stood.set)
        await fleet.begin(print)
        watching = asyncio.create_task(fleet.watch())
        await asyncio.sleep(0)
        fleet.failed(server.url, ServerFault("it broke off"))
        try:
            async with asyncio.timeout(60):
                while fleet.states[0].state != "up":
                    stood.clear()
                    await stood.wait()
        finally:
            watching.cancel()
            await fleet.close()


async def test_calls_that_one_server_fails_at_once_take_no_other_one_for_down():
    with stand_in() as one, stand_in() as two:
        fleet = Fleet(RemoteSpec((one.url, two.url)), 0)
        served = await fleet.begin(print)
        one.leave()
        found = await asyncio.gather(*(served.tokens.ids(f"text {n}", control=False) for n in range(8)))
        await fleet.close()

    assert [list(ids) for ids in found] == [list(f"text {n}".encode()) for n in range(8)]
    assert [state.state for state in fleet.states] == ["down", "up"]
