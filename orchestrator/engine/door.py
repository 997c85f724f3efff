"""What can never run, as things stand, is refused at the door. Pure."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.engine.cells.pools import SCRATCH_CELLS
from orchestrator.engine.messages import Grant, Job, Reason


@dataclass(frozen=True)
class Floor:
    """A floor's ids, and the name of the pool that it stands in."""

    ids: "array[int]"
    pool: str


@dataclass(frozen=True)
class Refusal:
    reason: Reason
    detail: str


def refused(job: Job, floors: Mapping[str, Floor], grant: Grant) -> Refusal | None:
    """Why a job can never run under this grant; None when it may wait for its turn."""
    if job.floor not in floors:
        return Refusal(Reason.UNKNOWN_FLOOR, f"the engine does not know floor {job.floor[:12]}")
    prompt = len(floors[job.floor].ids) + len(job.tail) // 4
    need = prompt + job.max_tokens
    if need > grant.window:
        return Refusal(Reason.WINDOW, f"{prompt} + {job.max_tokens} tokens exceed the window of {grant.window}")
    if need + SCRATCH_CELLS > grant.cells:
        stale = job.grant not in (0, grant.number)
        reason = Reason.STALE if stale else Reason.CELLS
        return Refusal(reason, f"{need} tokens of KV are needed, {grant.cells - SCRATCH_CELLS} are granted")
    return None
