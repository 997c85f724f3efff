"""How busy a server is, by what its /metrics says. Pure.

    kind           running                         waiting                        share of its cache in use
    vLLM           vllm:num_requests_running       vllm:num_requests_waiting       vllm:kv_cache_usage_perc (or gpu_cache_…)
    SGLang         sglang:num_running_reqs         sglang:num_queue_reqs           sglang:token_usage
    llama-server   llamacpp:requests_processing    llamacpp:requests_deferred      (none; start it with --metrics)

A gauge with labels is there once for each engine or rank: requests are added up, of caches the fullest counts. SGLang and
llama-server have the page where they were started with it; without one nothing is known of the queue.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.engine.remote.replies import ServerKind

LINE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)")
# Pressure by requests that wait for each that runs. The levels' own thresholds are 0.70, 0.85 and 0.95.
BY_QUEUE = ((4.0, 0.95), (2.0, 0.85), (1.0, 0.70))
BELOW = 0.5  # what less than that comes near to
MOST = 1e12  # of a gauge: more of requests there are not


@dataclass(frozen=True)
class Gauges:
    running: str
    waiting: str
    cache: tuple[str, ...] = ()


NAMES: Mapping[ServerKind, Gauges] = {
    ServerKind.VLLM: Gauges(
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ),
    ServerKind.SGLANG: Gauges("sglang:num_running_reqs", "sglang:num_queue_reqs", ("sglang:token_usage",)),
    ServerKind.LLAMA: Gauges("llamacpp:requests_processing", "llamacpp:requests_deferred"),
}


@dataclass(frozen=True)
class Load:
    """None is what a server does not tell. `cache`: a share, from 0 to 1."""

    running: int | None = None
    waiting: int | None = None
    cache: float | None = None


def load_of(page: str, kind: ServerKind) -> Load:
    names = NAMES.get(kind)
    if names is None or not page:
        return Load()
    found: dict[str, list[float]] = {}
    for name, value in LINE.findall("\n".join(line for line in page.splitlines() if not line.startswith("#"))):
        found.setdefault(name, []).append(number(value))
    cache = next((found[name] for name in names.cache if name in found), None)
    return Load(
        counted(found.get(names.running)), counted(found.get(names.waiting)), min(1.0, max(cache)) if cache else None
    )


def pressure_of(loads: Iterable[Load]) -> float | None:
    """Of servers together, where 1.0 is all that they can take; None where none tells of its queue."""
    told = [one for one in loads if one.waiting is not None]
    if not told:
        return None
    each = sum(one.waiting or 0 for one in told) / max(1, sum(one.running or 0 for one in told))
    return next((pressure for least, pressure in BY_QUEUE if each >= least), BELOW * each)


def counted(values: list[float] | None) -> int | None:
    return None if values is None else round(sum(values))


def number(text: str) -> float:
    """0 for what is none, or cannot be."""
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if 0 < found < MOST else 0.0
