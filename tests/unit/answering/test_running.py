"""What a turn has called and was told stays as it is while the window holds it; then the earliest results become stubs."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.blocks import Role
from formatters.context import CallView, TurnContext, TurnView
from orchestrator.answering.running import (
    LEAST_ANSWER,
    MOST_REQUESTS,
    TurnLimits,
    job_within,
    with_stubs,
    within_window,
)
from orchestrator.engine.messages import InferenceJob
from orchestrator.prompt.composing import Composed, Composer

pytestmark = pytest.mark.anyio
Turns = Callable[..., TurnContext]


def called(name: str, result: str) -> tuple[TurnView, TurnView]:
    call = CallView(id=name, name=name, arguments='{"query": "x"}')
    return TurnView(role=Role.ASSISTANT, text=f"I call {name}."), TurnView(role=Role.TOOL, text=result, calls=(call,))


LONG = "".join(f"a line of code {n}\n" for n in range(100))
THREE = (*called("first", LONG), *called("second", LONG), *called("third", LONG))
STUB = (
    '[{} {{"query": "x"}}: 100 lines, 1,790 characters, first line: a line of code 0; '
    "left out to save room, re-fetchable]"
)


async def composed_in(composer: Composer, turn: TurnContext, window: int) -> Composed:
    return await within_window(turn, composer.compose, window)


async def test_what_the_window_holds_is_composed_as_it_is(composer: Composer, a_turn: Turns) -> None:
    turn = a_turn("Where?").model_copy(update={"running": THREE})
    assert (await composed_in(composer, turn, 100_000)).text == (await composer.compose(turn)).text


async def test_the_earliest_results_become_stubs_as_far_as_it_is_needed(composer: Composer, a_turn: Turns) -> None:
    turn = a_turn("Where?").model_copy(update={"running": THREE})
    whole = (await composer.compose(turn)).assembled.tokens
    found = await composed_in(composer, turn, whole + LEAST_ANSWER - 1)
    assert STUB.format("first") in found.text
    assert found.text.count(LONG) == 2
    least = await composed_in(composer, turn, 1)
    assert [STUB.format(name) in least.text for name in ("first", "second", "third")] == [True] * 3
    assert LONG not in least.text


async def test_the_answer_has_at_most_what_the_window_leaves(composer: Composer, a_turn: Turns) -> None:
    found = await composer.compose(a_turn("Where?").model_copy(update={"running": THREE}))
    tokens, job = found.assembled.tokens, InferenceJob(0, "", b"", 1, 300)
    assert [job_within(job, found, tokens + room).max_tokens for room in (1_000, 300, 40, 0, -9)] == [
        300,
        300,
        40,
        1,
        1,
    ]
    assert job_within(job, found, tokens).tail == found.assembled.tail


async def test_the_requests_of_a_turn_share_the_tokens_of_its_answer(composer: Composer, a_turn: Turns) -> None:
    found = await composer.compose(a_turn("Where?"))
    job, window = InferenceJob(0, "", b"", 1, 300), found.assembled.tokens + 250
    assert [job_within(job, found, window, had).max_tokens for had in (0, 100, 299, 300, 400)] == [250, 200, 1, 1, 1]


@pytest.mark.parametrize(
    ("requests", "generated", "seconds", "last"),
    [
        (0, 0, 999, False),  # whoever has called nothing may call
        (1, 0, 59, False),
        (1, 0, 60, True),
        (MOST_REQUESTS - 2, 0, 0, False),
        (MOST_REQUESTS - 1, 0, 0, True),
        (1, 1_000 - LEAST_ANSWER, 0, False),
        (1, 1_001 - LEAST_ANSWER, 0, True),
    ],
)
def test_a_turn_has_a_last_request_by_its_number_its_tokens_and_its_seconds_from_the_first_call_on(
    requests: int, generated: int, seconds: float, last: bool
) -> None:
    now = [1_000.0]
    limits = TurnLimits(1_000, 60.0, lambda: now[0])
    now[0] += 500.0  # before its first call
    limits.called()
    now[0] += seconds
    limits.called()
    assert limits.is_last(requests, generated) is last


RESULTS = st.lists(st.text("ab \n", max_size=400), max_size=5)


@given(RESULTS)
def test_stubs_come_one_by_one_from_the_earliest_on_and_touch_nothing_else(results: list[str]) -> None:
    running = tuple(turn for number, text in enumerate(results) for turn in called(f"tool_{number}", text))
    before = running
    last = -1
    for now in with_stubs(running):
        (changed,) = [at for at in range(len(now)) if now[at] != before[at]]
        assert changed > last
        assert len(now[changed].text) < len(running[changed].text)
        assert now[changed].text.startswith(f"[tool_{changed // 2} ")
        before, last = now, changed
