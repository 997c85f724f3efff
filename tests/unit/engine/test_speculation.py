"""Drafts change how fast an answer comes and never what it says; where they do not pay they stop."""

from itertools import count
from pathlib import Path

import pytest

from orchestrator.engine.costs import Costs
from orchestrator.engine.drafts import Drafting
from orchestrator.engine.llama import LlamaBackend
from orchestrator.engine.loop import Loop
from orchestrator.engine.messages import Completion, Delta, Grant, Job, PutFloor, Sampling, ids_to_bytes
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.plan import Draft, Limits, plan_round

CODE = "".join(
    f"def area_{name}(width, height, depth, unit): return convert(width * height * depth + {name}, unit)\n"
    for name in range(40)
)
ASKED = "\nWhat does area_17 return?\ndef area_17(width, height, depth"


class Asked:
    """One answer on a fresh loop, and how it was made."""

    def __init__(self, backend: LlamaBackend, floor: list[int], tail: list[int], *, drafts: bool, most: int) -> None:
        ticks = count()
        self.text, self.end = "", Completion
        self.loop = Loop(backend, 4, Limits(512, drafts=drafts), self._hear, lambda: next(ticks) / 1000, None)
        self.loop.handle(Grant(1, cells=8192, window=8192))
        self.loop.handle(PutFloor("code", ids_to_bytes(floor)))
        self.loop.handle(Job(1, "code", ids_to_bytes(tail), owner=0, max_tokens=most, sampling=Sampling()))
        while self.loop.busy():
            self.loop.round()
            self.loop.check()
        for name in list(self.loop.admission.pools):
            self.loop.admission.close(name)

    def _hear(self, messages: list[object]) -> None:
        for message in messages:
            if isinstance(message, Delta):
                self.text += message.text
            elif isinstance(message, Completion):
                self.end = message


@pytest.fixture(scope="module")
def quoter(quoter_model: Path):
    backend = LlamaBackend(EngineSpec(str(quoter_model), threads=1, gpu_layers=0))
    yield backend
    backend.close()


def test_an_answer_that_quotes_is_the_same_with_drafts_and_takes_fewer_steps(quoter: LlamaBackend) -> None:
    floor, tail = quoter.encode([CODE, ASKED], control=False)
    plain, drafted = (Asked(quoter, floor, tail, drafts=drafts, most=40) for drafts in (False, True))
    assert drafted.text == plain.text
    assert "height" in plain.text
    assert (plain.end.drafted, plain.end.accepted) == (0, 0)
    assert drafted.end.accepted > 5
    assert drafted.loop.counters.steps < plain.loop.counters.steps


def drafts_planned(expected: float) -> tuple[tuple[int, int], ...]:
    (step,) = plan_round({0: [1]}, (), {0: 1000}, Limits(512), Costs(1), {1: Draft(8, expected)})
    return step.drafts


def test_drafts_that_are_never_right_stop() -> None:
    drafting = Drafting((), accepted=8.0)
    assert drafts_planned(drafting.expected)
    for _ in range(20):
        drafting.learn(drafted=8, accepted=0)
    assert not drafts_planned(drafting.expected)
