"""What can never run, as things are, is refused where it arrives: foreign ids, long prompts, wrong settings. Pure.

llama.cpp takes any setting and then draws any token. The daemon's API checks the same for its clients; this is for
whoever else hands jobs in.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.engine.messages import Grant, InferenceJob, Reason, Sampling


@dataclass(frozen=True)
class FloorIds:
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


def refused(job: InferenceJob, floors: Mapping[str, FloorIds], grant: Grant, tokens: int) -> Refusal | None:
    """Why a job can never run under this grant; None when it may wait for its turn. `tokens`: of the vocabulary."""
    if job.floor not in floors:
        return Refusal(Reason.UNKNOWN_FLOOR, f"the engine does not know floor {job.floor[:12]}")
    return _foreign(job, floors[job.floor], tokens) or _too_long(job, floors[job.floor], grant)


def highest(ids: "array[int] | bytes") -> int:
    """The highest of these ids; -1 where there are none."""
    found = np.frombuffer(ids, np.uint32)
    return int(found.max()) if found.size else -1


def _foreign(job: InferenceJob, floor: FloorIds, tokens: int) -> Refusal | None:
    """llama.cpp fails a whole step for an id without a token, and ends the process where it is asked for its text."""
    for what, token in ((f"floor {job.floor[:12]}", floor.highest), ("the prompt", highest(job.tail))):
        if token >= tokens:
            why = f"{what} has token {token}, the vocabulary {tokens} tokens: its ids are damaged or another model's"
            return Refusal(Reason.TOKENS, why)
    return None


def _too_long(job: InferenceJob, floor: FloorIds, grant: Grant) -> Refusal | None:
    prompt = len(floor.ids) + len(job.tail) // 4
    need = prompt + job.max_tokens
    if need > grant.window:
        return Refusal(Reason.WINDOW, f"{prompt} + {job.max_tokens} tokens exceed the window of {grant.window}")
    if need > grant.cells:
        stale = job.grant not in (0, grant.number)
        reason = Reason.STALE if stale else Reason.CELLS
        return Refusal(reason, f"{need} tokens of KV are needed, {grant.cells} are granted")
    return None


# Name, least, most; both are allowed.
RANGES = (
    ("temperature", 0.0, 2.0),
    ("top_k", 0, 2**31 - 1),
    ("top_p", 1e-6, 1.0),
    ("min_p", 0.0, 1.0),
    ("repeat_penalty", 0.1, 10.0),
)
WHOLE = ("top_k", "seed", "logprobs")
MOST_LOGPROBS = 100


def out_of_range(job: InferenceJob) -> Refusal | None:
    """What is wrong with a job's settings, in words; None when nothing is."""
    fault = _sampling_fault(job.sampling) or _ending_fault(job)
    return Refusal(Reason.SAMPLING, fault) if fault else None


def _ending_fault(job: InferenceJob) -> str | None:
    if not isinstance(job.max_tokens, int):
        return f"max_tokens {job.max_tokens!r} is no whole number"
    if job.max_tokens < 0:
        return f"max_tokens {job.max_tokens} is below 0"
    odd = [stop for stop in job.stop if not isinstance(stop, str)]
    return f"the stop string {odd[0]!r} is no text" if odd else None


def _sampling_fault(sampling: Sampling) -> str | None:
    for name, least, most in RANGES:
        value = getattr(sampling, name)
        if not least <= value <= most:  # NaN fails it too; a whole number may be too large for isfinite
            return f"{name} {value} is not between {least} and {most}"
    for name in WHOLE:
        value = getattr(sampling, name)
        if value is not None and not isinstance(value, int):
            return f"{name} {value!r} is no whole number"
    wanted = sampling.logprobs
    if wanted is not None and not 0 <= wanted <= MOST_LOGPROBS:
        return f"logprobs {wanted} is not between 0 and {MOST_LOGPROBS}"
    return None
