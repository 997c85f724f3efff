"""Our engine behind the ports: floors cross once, outcomes become faults, leaving cancels."""

from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from orchestrator.answering.inference import (
    STALE_TRIES,
    Inference,
    InferenceEvent,
    fault_of,
)
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.messages import AnswerDelta, Completion, Grant, InferenceJob, Outcome, Reason
from orchestrator.errors import CodexDropped, EngineFailed, InvalidRequest, LoreError, NotReady, OverBudget
from orchestrator.model.chat_model import EngineEncoder

pytestmark = pytest.mark.anyio


@dataclass
class SmallEngine:
    """Answers each job with one word and an outcome; remembers floors and jobs."""

    ended: Completion = field(default_factory=lambda: Completion(1, Outcome.DONE, Reason.STOP))
    fault: EngineUnavailable | None = None
    word: str = "Yes."
    jobs: list[InferenceJob] = field(default_factory=list)
    closed: int = 0

    async def encode(self, texts: Sequence[str], *, control: bool = False) -> list["array[int]"]:
        if self.fault:
            raise self.fault
        return [array("I", [len(text), control]) for text in texts]

    async def run(self, job: InferenceJob) -> AsyncGenerator[InferenceEvent]:
        self.jobs.append(job)
        try:
            if self.fault:
                raise self.fault
            if self.word:
                yield AnswerDelta(1, self.word, b"")
            yield self.ended
        finally:
            self.closed += 1


def inference(engine: SmallEngine) -> Inference:
    return Inference(engine, SimpleNamespace(grant=Grant(3, cells=1_000, window=1_000)))


@pytest.fixture
def job() -> InferenceJob:
    return InferenceJob(ticket=0, floor="f", tail=b"tail", owner=1000, max_tokens=64, stop=("END",))


async def test_a_job_is_run_under_the_grant_that_is_in_force(job: InferenceJob) -> None:
    engine = SmallEngine()
    events = [event async for event in inference(engine).infer(job)]
    assert engine.jobs == [replace(job, grant=3)]
    assert [type(event) for event in events] == [AnswerDelta, Completion]


@pytest.mark.parametrize(
    ("outcome", "reason", "fault"),
    [
        (Outcome.REFUSED, Reason.WINDOW, OverBudget),
        (Outcome.REFUSED, Reason.CELLS, OverBudget),
        (Outcome.REFUSED, Reason.SCHEMA, InvalidRequest),
        (Outcome.REFUSED, Reason.UNKNOWN_FLOOR, EngineFailed),
        (Outcome.FAILED, Reason.ENGINE, EngineFailed),
        (Outcome.CANCELLED, Reason.CANCELLED, EngineFailed),
        (Outcome.CANCELLED, Reason.DROPPED, CodexDropped),
    ],
)
async def test_a_ticket_that_was_not_answered_is_a_fault_with_its_detail(
    job: InferenceJob, outcome: Outcome, reason: Reason, fault: type[LoreError]
) -> None:
    engine = SmallEngine(ended=Completion(1, outcome, reason, detail="needs 9,000 of 8,000"))
    with pytest.raises(fault, match="needs 9,000 of 8,000"):
        [event async for event in inference(engine).infer(job)]
    assert engine.closed == 1


async def test_a_plan_under_an_old_grant_is_handed_in_three_times(job: InferenceJob) -> None:
    engine = SmallEngine(ended=Completion(1, Outcome.REFUSED, Reason.STALE), word="")
    with pytest.raises(NotReady, match="taken by others"):
        [event async for event in inference(engine).infer(job)]
    assert len(engine.jobs) == engine.closed == STALE_TRIES


def test_a_ticket_without_detail_still_says_why() -> None:
    assert "cells" in fault_of(Completion(1, Outcome.REFUSED, Reason.CELLS)).message


async def test_leaving_early_closes_the_ticket(job: InferenceJob) -> None:
    engine = SmallEngine()
    async with aclosing(inference(engine).infer(job)) as events:
        async for _ in events:
            break
    assert engine.closed == 1


@pytest.mark.parametrize(("broken", "hint"), [(True, "see what is wrong with: lore doctor"), (False, "ask again")])
async def test_an_engine_that_is_gone_is_told_with_what_to_do(job: InferenceJob, broken: bool, hint: str) -> None:
    engine = SmallEngine(fault=EngineUnavailable("it ended five times", broken=broken))
    with pytest.raises(EngineFailed) as refusal:
        [event async for event in inference(engine).infer(job)]
    assert (refusal.value.message, refusal.value.hint) == ("it ended five times", hint)
    with pytest.raises(EngineFailed):
        await EngineEncoder(engine).encode(["x"], control=False)


async def test_the_encoder_gives_ids_as_they_travel() -> None:
    assert await EngineEncoder(SmallEngine()).encode(["abc"], control=True) == [array("I", [3, 1]).tobytes()]


def test_nobody_is_told_to_ask_again_with_ids_that_the_vocabulary_does_not_have() -> None:
    fault = fault_of(Completion(1, Outcome.REFUSED, Reason.TOKENS, "floor f has token 9"))
    assert (fault.hint, fault.retry_after) == ("start the daemon again", None)
