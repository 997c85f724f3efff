"""Which settings a job may have. Checked where it arrives: llama.cpp takes any number and then draws any token.

The daemon's API checks the same for its clients; this is for whoever else hands jobs in.
"""

from orchestrator.engine.messages import InferenceJob, Reason, Sampling
from orchestrator.engine.scheduler.refusals import Refusal

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
