"""The condensation ritual: the model's gist where it is complete, in time and keeps what was said; else an extract."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.planning import SmallHouse, asking

from orchestrator.answering.inference import InferenceEvent
from orchestrator.engine.messages import AnswerDelta, Completion, InferenceJob, Outcome, Reason
from orchestrator.errors import EngineFailed
from orchestrator.prompt.situation import Levels
from orchestrator.service import Message
from orchestrator.wire.answers import Lore, Waiting

FIRST = "We must not use threads in src/a.py. " + "Say why. " * 40
EARLIER = (Message("user", FIRST), Message("assistant", "So it is. " * 60)) * 7
GOOD = "The user said not to use threads in src/a.py and asked why; it is so."


@dataclass
class TalkingHouse(SmallHouse):
    """`says`: what the model writes; `reason`: how it ends."""

    window: int = 4_000
    says: str = GOOD
    reason_of_end: Reason = Reason.STOP
    jobs: list[InferenceJob] = field(default_factory=list)

    async def infer(self, job: InferenceJob) -> AsyncIterator[InferenceEvent]:
        self.jobs.append(job)
        if self.says == "nothing":
            await asyncio.Event().wait()
        if self.says == "broken":
            raise EngineFailed("the engine died", "ask again")
        yield AnswerDelta(1, self.says, b"")
        yield Completion(1, Outcome.DONE, self.reason_of_end, prompt=500, cached=480, generated=20)


def asked(house: TalkingHouse, **more: Any) -> Lore:
    return house.ask(asking("And now?", *EARLIER, max_tokens=50, **more)).lore


def waits(house: TalkingHouse) -> list[str]:
    """What is waited for, as it is told."""

    async def told() -> list[str]:
        events = house.answers().ask(asking("And now?", *EARLIER, max_tokens=50))
        return [event.phase async for event in events if isinstance(event, Waiting)]

    return anyio.run(told)


@pytest.fixture(name="house")
def making(tmp_path: Path) -> Any:
    return lambda **more: TalkingHouse(tmp_path, **more)


def test_turns_that_fall_are_condensed_into_what_the_model_says_of_them(house: Any) -> None:
    small = house()
    lore = asked(small)
    (action,) = lore.governor.actions
    assert action.startswith("turns 1 to 3 condensed into a gist of ")
    assert action.endswith(" saved; the model read 500 tokens for it, 480 of them cached")
    assert lore.governor.left_out == "left out: 3 turns (condensed); lore plan shows which"
    (job,) = small.jobs
    assert job.sampling.temperature == 0


@pytest.mark.parametrize(
    "more",
    [
        {"says": "The user said to use threads in src/a.py."},
        {"says": "The user said not to use threads."},
        {"says": "<think>not threads in src/a.py</think>"},
        {"says": ""},
        {"says": GOOD * 20},
        {"reason_of_end": Reason.LENGTH},
        {"says": "broken"},
        {"says": "nothing"},
    ],
)
def test_a_gist_that_may_not_be_used_leaves_the_extract(house: Any, more: dict[str, Any]) -> None:
    small = house(seconds=0.05, **more)
    (action,) = asked(small).governor.actions
    assert action.startswith("turns 1 to 3 condensed into an extract of ")
    assert len(small.jobs) == 1


@pytest.mark.parametrize(("level", "seconds"), [("high", 20.0), ("critical", 20.0), ("calm", 0.0)])
def test_under_pressure_and_without_time_for_it_the_model_is_not_asked(house: Any, level: str, seconds: float) -> None:
    small = house(seconds=seconds)
    small.levels = Levels(level)
    (action,) = asked(small).governor.actions
    assert "an extract of" in action
    assert (small.jobs, waits(small)) == ([], [])


def test_who_waits_for_a_gist_is_told_so(house: Any) -> None:
    assert waits(house()) == ["gist"]


def test_a_plan_tells_of_an_extract_and_asks_no_model(house: Any) -> None:
    small = house()
    (action,) = small.plan(asking("And now?", *EARLIER, max_tokens=50)).governor.actions
    assert "condensed into an extract of" in action
    assert small.jobs == []
