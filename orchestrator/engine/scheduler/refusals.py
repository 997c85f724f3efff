"""What can never run, as things stand, is refused at the door. Pure."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.engine.messages import Grant, InferenceJob, Reason


@dataclass(frozen=True)
class Floor:
    """A floor's ids, and the name of the pool that it stands in."""

    ids: "array[int]"
    pool: str

    @cached_property
    def highest(self) -> int:
        """Of its ids; -1 where it has none."""
        return highest(self.ids)


@dataclass(frozen=True)
class Refusal:
    reason: Reason
    detail: str


def refused(job: InferenceJob, floors: Mapping[str, Floor], grant: Grant, tokens: int) -> Refusal | None:
    """Why a job can never run under this grant; None when it may wait for its turn. `tokens`: of the vocabulary."""
    if job.floor not in floors:
        return Refusal(Reason.UNKNOWN_FLOOR, f"the engine does not know floor {job.floor[:12]}")
    return _foreign(job, floors[job.floor], tokens) or _too_long(job, floors[job.floor], grant)


def highest(ids: "array[int] | bytes") -> int:
    """The highest of these ids; -1 where there are none."""
    found = np.frombuffer(ids, np.uint32)
    return int(found.max()) if found.size else -1


def _foreign(job: InferenceJob, floor: Floor, tokens: int) -> Refusal | None:
    """llama.cpp fails a whole step for an id without a token, and ends the process where it is asked for its text."""
    for what, token in ((f"floor {job.floor[:12]}", floor.highest), ("the prompt", highest(job.tail))):
        if token >= tokens:
            why = f"{what} has token {token}, the vocabulary {tokens} tokens: its ids are damaged or another model's"
            return Refusal(Reason.TOKENS, why)
    return None


def _too_long(job: InferenceJob, floor: Floor, grant: Grant) -> Refusal | None:
    prompt = len(floor.ids) + len(job.tail) // 4
    need = prompt + job.max_tokens
    if need > grant.window:
        return Refusal(Reason.WINDOW, f"{prompt} + {job.max_tokens} tokens exceed the window of {grant.window}")
    if need > grant.cells:
        stale = job.grant not in (0, grant.number)
        reason = Reason.STALE if stale else Reason.CELLS
        return Refusal(reason, f"{need} tokens of KV are needed, {grant.cells} are granted")
    return None
