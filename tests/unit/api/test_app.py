"""What each request passes: a bound on the questions that wait, their places given back, a stop; the gate."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.waiting import SOON

from orchestrator.api.app import Gate, QuestionQueue
from orchestrator.api.http import while_serving
from orchestrator.errors import EngineFailed, Full, NotReady
from orchestrator.reports.turns import TurnMeter
from orchestrator.service import AskEvent, Text
from orchestrator.wire.answers import Waiting

pytestmark = pytest.mark.anyio

QUEUED, PROMPT, WORD = Waiting("queue", 0, 1), Waiting("prompt", 1, 2), Text("word")


@dataclass
class Asked:
    """An ask whose events the test hands in."""

    script: "asyncio.Queue[AskEvent | Exception | None]" = field(default_factory=asyncio.Queue)
    begun: bool = False
    closed: bool = False

    async def events(self) -> AsyncIterator[AskEvent]:
        self.begun = True
        try:
            while (event := await self.script.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True

    def say(self, *events: AskEvent | Exception | None) -> "Asked":
        for event in events:
            self.script.put_nowait(event)
        return self


def line(most: int = 2) -> tuple[QuestionQueue, asyncio.Event]:
    stopping = asyncio.Event()
    return QuestionQueue(most, stopping, TurnMeter()), stopping


async def test_who_comes_to_a_full_line_is_refused_before_anything_is_done() -> None:
    front, _ = line()
    waiting = [front.through(Asked().say(QUEUED).events()) for _ in range(2)]
    assert [await anext(events) for events in waiting] == [QUEUED, QUEUED]
    refused = Asked().say(WORD)
    with pytest.raises(Full, match="2 questions wait already") as fault:
        await anext(front.through(refused.events()))
    assert (refused.begun, fault.value.code) == (False, "full")


@pytest.mark.parametrize("event", [PROMPT, WORD, Waiting("floor", 0, 1)])
async def test_who_is_computed_or_answered_waits_no_longer(event: AskEvent) -> None:
    front, _ = line(1)
    events = front.through(Asked().say(QUEUED, event).events())
    await anext(events)
    assert front.waiting == 1
    await anext(events)
    assert front.waiting == 0


async def test_a_place_is_given_back_when_the_client_goes_or_the_ask_fails_or_ends() -> None:
    front, _ = line()
    gone, asked = Asked().say(QUEUED), Asked().say(QUEUED, EngineFailed("it died"))
    events = front.through(gone.events())
    await anext(events)
    await events.aclose()
    assert (front.waiting, gone.closed) == (0, True)
    failing = front.through(asked.events())
    await anext(failing)
    with pytest.raises(EngineFailed):
        await anext(failing)
    assert (front.waiting, asked.closed) == (0, True)
    assert [event async for event in front.through(Asked().say(QUEUED, PROMPT, WORD, WORD, None).events())] == [
        QUEUED, PROMPT, WORD, WORD,
    ]  # fmt: skip
    assert front.waiting == 0


async def test_when_the_daemon_stops_who_waits_is_told_and_who_is_answered_goes_on() -> None:
    front, stopping = line()
    waiting, answered = Asked().say(PROMPT), Asked().say(WORD)
    one, other = front.through(waiting.events()), front.through(answered.events())
    assert (await anext(one), await anext(other)) == (PROMPT, WORD)
    stopping.set()
    with pytest.raises(NotReady, match="stopping"):
        await anext(one)
    assert waiting.closed
    answered.say(WORD, None)
    assert [event async for event in other] == [WORD]


@pytest.mark.parametrize("silently", [False, True])
async def test_other_streams_end_when_the_daemon_stops(silently: bool) -> None:
    stopping, told = asyncio.Event(), Asked().say(QUEUED)
    events = while_serving(told.events(), stopping, silently=silently)
    assert await anext(events) == QUEUED
    stopping.set()
    with pytest.raises(StopAsyncIteration if silently else NotReady):
        await anext(events)
    assert told.closed


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["ask", "queue", "prompt", "word", "end", "fail", "go"]), st.integers(0, 7))))
def test_as_many_wait_as_a_naive_count_says_and_never_more_than_may(script: list[tuple[str, int]]) -> None:
    asyncio.run(live(script))


async def live(script: list[tuple[str, int]]) -> None:
    front, _ = line(3)
    asks: dict[int, tuple[Asked, AsyncIterator[AskEvent]]] = {}
    waits: set[int] = set()
    said = {"queue": QUEUED, "prompt": PROMPT, "word": WORD, "end": None, "fail": EngineFailed("x")}
    for action, number in script:
        if action == "ask" and number not in asks:
            asked = Asked().say(QUEUED)
            events = front.through(asked.events())
            if len(waits) == 3:
                with pytest.raises(Full):
                    await anext(events)
            else:
                assert await anext(events) == QUEUED
                asks[number] = asked, events
                waits.add(number)
        elif number in asks and action == "go":
            await asks.pop(number)[1].aclose()  # type: ignore[attr-defined]
            waits.discard(number)
        elif number in asks and action in said:
            asked, events = asks[number]
            asked.say(said[action])
            with suppress(StopAsyncIteration, EngineFailed):
                await anext(events)
            if action != "queue":
                waits.discard(number)
            if action in ("end", "fail"):
                del asks[number]
        assert front.waiting == len(waits) <= 3


# -- the gate: questions are held first, then everything, and who is inside is counted

CHAT, LOOK = ("/v1/chat/completions", True), ("/v1/status", False)


async def held(gate, path, asks):
    """Whether such a request is still outside when everything that can go on has gone on."""
    entered = asyncio.Event()
    coming = asyncio.create_task(come_in(gate, path, asks, entered))
    for _ in range(5):
        await asyncio.sleep(0)
    coming.cancel()
    return not entered.is_set()


async def come_in(gate, path, asks, entered):
    async with gate.inside_for(path, asks=asks):
        entered.set()


async def test_an_open_gate_holds_nobody():
    gate = Gate()
    assert [await held(gate, *CHAT), await held(gate, *LOOK)] == [False, False]


async def test_closed_to_questions_it_lets_others_in_and_closed_to_all_nobody():
    gate = Gate()
    gate.close_to_questions()
    assert [await held(gate, *CHAT), await held(gate, *LOOK)] == [True, False]
    gate.close()
    assert [await held(gate, *CHAT), await held(gate, *LOOK)] == [True, True]
    gate.open()
    assert [await held(gate, *CHAT), await held(gate, *LOOK)] == [False, False]


async def test_it_is_empty_when_all_who_came_in_have_left():
    gate = Gate()
    async with gate.inside_for("/v1/status", asks=False):
        async with gate.inside_for("/v1/plan", asks=True):
            assert await gate.empty(0.01) is False
        waiting = asyncio.create_task(gate.empty(SOON))
    assert await waiting is True
