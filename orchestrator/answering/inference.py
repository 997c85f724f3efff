"""The port through which an answer is inferred: a composed prompt in, text out. Who computes it is not known here."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.engine.messages import Admitted, AnswerDelta, Completion, PrefillProgress, Sampling, Urgency
from orchestrator.prompt.assembled import Assembled


@dataclass(frozen=True)
class InferenceRequest:
    """One inference. `calls`: the model was told of tools. `thinking`: the template opened a thought at the end."""

    prompt: Assembled
    owner: int
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    urgency: Urgency = Urgency.INTERACTIVE
    calls: bool = False
    thinking: bool = False


InferenceEvent = Admitted | PrefillProgress | AnswerDelta | Completion


class Inference(Protocol):
    """Infers. Contract: at most one Admitted, then any Progress and Delta, and one Completion as the last event.

    Closing the iterator early cancels the ticket within a step. A refusal or failure is raised as LoreError: OverBudget
    where the prompt cannot be held, EngineFailed where it may be tried again; then no Completion comes.
    """

    def infer(self, request: InferenceRequest) -> AsyncIterator[InferenceEvent]: ...
