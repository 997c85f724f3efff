"""A turn that calls tools, within its limits and the window: what it has said since the question is composed, and what is
left is for the answer.

Results are appended and stay as they are: all behind a text that changes is computed again. Only where the window does not
hold them, the earliest become stubs: which call it was, its size and its first line, so that the model can call again.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from formatters.blocks import Role
from formatters.context import TurnContext, TurnView
from orchestrator.engine.messages import InferenceJob
from orchestrator.prompt.composing import Composed
from orchestrator.prompt.filler import calls_of, result_stub

LEAST_ANSWER = 256  # tokens that are left for what the model says next: a call with its arguments, or a short answer
MOST_REQUESTS = 8  # to the model for one answer: seven rounds of tools, then it has to say something


@dataclass
class TurnLimits:
    """What the calls of one turn may take. `tokens`: that it may generate in all; `seconds`: from its first call on, after
    which it makes no further ones. `now` gives seconds."""

    tokens: int
    seconds: float
    now: Callable[[], float] = time.monotonic
    _ends: float = math.inf

    def called(self) -> None:
        """A call is carried out."""
        self._ends = min(self._ends, self.now() + self.seconds)

    def is_last(self, requests: int, generated: int) -> bool:
        """Whether the next request to the model is the last one. So many were made, which generated so many tokens."""
        spent = requests >= MOST_REQUESTS - 1 or self.tokens - generated < LEAST_ANSWER
        return requests > 0 and (spent or self.now() >= self._ends)


async def within_window(
    turn: TurnContext, compose: Callable[[TurnContext], Awaitable[Composed]], window: int, answer: int = LEAST_ANSWER
) -> Composed:
    """The prompt of a running turn, which leaves room for an answer if stubs can make it."""
    composed = await compose(turn)
    for running in with_stubs(turn.running):
        if composed.assembled.tokens + answer <= window:
            break
        composed = await compose(turn.model_copy(update={"running": running}))
    return composed


def with_stubs(running: Sequence[TurnView]) -> Iterator[tuple[TurnView, ...]]:
    """The same with one result more in short, the earliest first; a result that is no longer than its stub stays."""
    now = tuple(running)
    for at, call in enumerate(calls_of(running)):
        one = running[at]
        stub = result_stub(call, one.text) if one.role is Role.TOOL else one.text
        if len(stub) < len(one.text):
            now = (*now[:at], one.model_copy(update={"text": stub}), *now[at + 1 :])
            yield now


def job_within(job: InferenceJob, composed: Composed, window: int, generated: int = 0) -> InferenceJob:
    """The job for this prompt; its answer has at most what the window leaves, and what the turn has not `generated` yet."""
    room = window - composed.assembled.tokens
    return replace(job_of(job, composed), max_tokens=max(1, min(job.max_tokens - generated, room)))


def job_of(job: InferenceJob, composed: Composed) -> InferenceJob:
    """The job for another prompt."""
    prompt = composed.assembled
    return replace(job, floor=prompt.floor.name, tail=prompt.tail, marks=prompt.marks)
