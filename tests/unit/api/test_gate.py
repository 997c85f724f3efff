"""The gate before the routes: questions are held first, then everything, and who is inside is counted."""

import asyncio

import pytest
from support.waiting import SOON

from orchestrator.api.app import Gate

ASK, LOOK = ("/v1/chat/completions", True), ("/v1/status", False)


async def held(gate, path, asks):
    """Whether such a request is still outside when everything that can go on has gone on."""
    coming = asyncio.create_task(gate.passed(path, asks=asks))
    for _ in range(5):
        await asyncio.sleep(0)
    outside = not coming.done()
    coming.cancel()
    return outside


@pytest.mark.anyio
async def test_an_open_gate_holds_nobody():
    gate = Gate()
    assert [await held(gate, *ASK), await held(gate, *LOOK)] == [False, False]


@pytest.mark.anyio
async def test_closed_to_questions_it_lets_others_in_and_closed_to_all_nobody():
    gate = Gate()
    gate.close_to_questions()
    assert [await held(gate, *ASK), await held(gate, *LOOK)] == [True, False]
    gate.close()
    assert [await held(gate, *ASK), await held(gate, *LOOK)] == [True, True]
    gate.open()
    assert [await held(gate, *ASK), await held(gate, *LOOK)] == [False, False]


@pytest.mark.anyio
async def test_it_is_empty_when_all_who_came_in_have_left():
    gate = Gate()
    await gate.passed("/v1/status", asks=False)
    await gate.passed("/v1/plan", asks=True)
    assert await gate.empty(0.01) is False
    gate.leave()
    waiting = asyncio.create_task(gate.empty(SOON))
    gate.leave()
    assert await waiting is True
