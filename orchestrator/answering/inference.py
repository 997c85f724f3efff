"""One inference: a job in, the engine's events out, and what a job that was not answered means to the user."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from formatters.context import TurnView
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import (
    Admitted,
    AnswerDelta,
    Completion,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Reason,
)
from orchestrator.errors import CodexDropped, EngineFailed, InvalidRequest, LoreError, NotReady, OverBudget
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import engine_faults

BUSY_S = 5.0  # after which a server that takes nothing more may take something
STALE_TRIES = 3  # jobs under a grant that is no longer in force

InferenceEvent = Admitted | PrefillProgress | AnswerDelta | Completion


@dataclass(frozen=True)
class Finished:
    """The last event. `text`: what was said to the user, without thoughts and calls.

    `running`: what the turn said since the question, the last text included, as it was generated; what becomes State.
    `completions`: one for each request that ran to its end.
    """

    finish_reason: str  # stop, length, tool_calls
    text: str
    running: tuple[TurnView, ...]
    completions: tuple[Completion, ...]


class Inference:
    """Infers by the engine, which knows the job's floor already, under the machine's grant in force."""

    def __init__(self, engine: EngineClient, machine: Machine) -> None:
        self._engine = engine
        self._machine = machine

    async def infer(self, job: InferenceJob) -> AsyncIterator[InferenceEvent]:
        """At most one Admitted, then any PrefillProgress and AnswerDelta, and one Completion as the last.

        Closing the iterator early cancels the ticket within a step. A refusal or failure is raised as LoreError: OverBudget
        where the prompt cannot be held, EngineFailed where it may be tried again; then no Completion comes.
        """
        for _ in range(STALE_TRIES):
            try:
                async with aclosing(self._run(replace(job, grant=self._machine.grant.number))) as events:
                    async for event in events:
                        yield event
                return
            except _Stale:  # refused at the door: nothing was sent yet
                continue
        raise NotReady("the memory for this question was taken by others meanwhile", "ask again", retry_after=1.0)

    async def _run(self, job: InferenceJob) -> AsyncGenerator[InferenceEvent]:
        with engine_faults():
            async with aclosing(self._engine.run(job)) as events:
                async for event in events:
                    if isinstance(event, Completion) and event.outcome is not Outcome.DONE:
                        raise _Stale if event.reason is Reason.STALE else fault_of(event)
                    yield event


class _Stale(Exception):
    """Planned under a grant that is no longer in force."""


def fault_of(ended: Completion) -> LoreError:
    """What a ticket that was not answered means to the user."""
    what = ended.detail or f"the engine ended the request: {ended.reason}"
    if ended.reason in (Reason.WINDOW, Reason.CELLS):
        return OverBudget(what, "ask something shorter, allow fewer answer tokens, or start a new session")
    if ended.reason is Reason.BUSY:
        return NotReady(what, "ask again", retry_after=BUSY_S)
    if ended.reason is Reason.SAMPLING:
        return InvalidRequest(what, "correct that setting")
    if ended.reason is Reason.SCHEMA:
        return InvalidRequest(what, "correct or simplify what it names: the JSON schema, or the tool")
    if ended.reason is Reason.DROPPED:
        return CodexDropped(f"{what} while this was answered", "`lore codex list` shows those there are")
    if ended.reason is Reason.TOKENS:  # they would be handed over once more
        return EngineFailed(what, "start the daemon again")
    return EngineFailed(what, "ask again", retry_after=1.0)
