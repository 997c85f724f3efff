"""Who waits for a model is told how far it is, and why nobody is answered yet."""

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from support.waiting import SOON

from orchestrator.answering.waiting import until_first, within
from orchestrator.errors import NotReady
from orchestrator.model.chat_model import arriving, why_waiting

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.model.chat_model.LOOK_SECONDS", 0.001)


def client(loaded: float = 0.0, reason: str = "") -> Any:
    return SimpleNamespace(loaded=loaded, reason=reason)


async def test_each_percent_is_told_once_until_the_model_speaks() -> None:
    ready, engine, told = asyncio.get_running_loop().create_future(), client(), []
    steps = iter((0.1, 0.109, 0.43))
    with anyio.fail_after(SOON):
        async for percent in arriving(ready, engine):
            told.append(percent)
            engine.loaded = next(steps, 0.43)
            if percent == 43:
                ready.set_result("the chat model")
            elif percent == 10:
                asyncio.get_running_loop().call_later(0.01, setattr, engine, "loaded", 0.43)
    assert told == [0, 10, 43]


async def test_a_model_that_speaks_or_cannot_is_not_waited_for() -> None:
    ready = asyncio.get_running_loop().create_future()
    ready.set_exception(ValueError("no model"))
    assert [percent async for percent in arriving(ready, client())] == []
    ready.exception()


async def test_another_reason_is_told_too() -> None:
    ready, engine, told = asyncio.get_running_loop().create_future(), client(reason="the model is loading"), []
    with anyio.fail_after(SOON):
        async for percent in arriving(ready, engine):
            told.append((percent, engine.reason))
            if len(told) == 2:
                ready.set_result("the chat model")
            asyncio.get_running_loop().call_soon(setattr, engine, "reason", "it cannot be started now")
    assert told == [(0, "the model is loading"), (0, "it cannot be started now")]


async def test_nobody_waits_beyond_their_own_time_and_they_are_told_what_was_lacking_then() -> None:
    ready, engine = asyncio.get_running_loop().create_future(), client(0.43, "the model is loading, 43 %")
    clock = asyncio.get_running_loop().time
    with anyio.fail_after(SOON):
        assert [percent async for percent in arriving(ready, engine, clock() + 0.01)] == [43]
        engine.reason = "the engine's process cannot be started now"
        with pytest.raises(NotReady, match="not ready in time: the engine's process cannot be started now"):
            await within(clock(), ready, lambda: f"not ready in time: {why_waiting(engine)}")


async def test_a_question_that_no_engine_takes_in_time_is_told_why() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()
        yield

    for reason, words in (("", r"no answer began in time$"), ("it cannot start", "in time: it cannot start")):
        with pytest.raises(NotReady, match=words):
            await anext(until_first(never(), 0.0, lambda: False, lambda why=reason: why))  # type: ignore[misc]


def test_between_a_loaded_model_and_its_voice_it_is_still_loading() -> None:
    assert why_waiting(client()) == "the model is loading"
    assert why_waiting(client(reason="the model is loading again, 7 %")) == "the model is loading again, 7 %"
