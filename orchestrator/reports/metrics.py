"""`GET /metrics`: every metric there is, and its value from the reports and from the turns since the daemon's start. Pure.

No label holds what a user named or wrote: whoever may read one figure may read all, and sees those of all users together.
Only the figures of memories are the asking user's own.
"""

from collections.abc import Iterable, Iterator

from orchestrator.engine.snapshot import STEP_BOUNDS_S
from orchestrator.karma.figures import Growth, TurnCounts, figures_of
from orchestrator.reports.exposition import Distribution, Family, Metric, text
from orchestrator.reports.turns import COUNTERS, HISTOGRAMS
from orchestrator.wire.memories import MemoryStats
from orchestrator.wire.status import CacheReply, EngineReport, StatusReply

LEVELS = ("calm", "elevated", "high", "critical")
TOKENS = {
    "prompt": "tokens of all prompts",
    "cached": "prompt tokens that were at hand",
    "computed": "prompt tokens that were computed",
    "generated": "tokens of answers",
}
PLACES = {"vram": "the live cache", "disk": "checkpoints on disk"}
FAULTS = {
    "misses": ("checkpoint_misses", "checkpoints that were gone when they were wanted"),
    "damaged": ("checkpoint_damaged", "checkpoints whose checksum was wrong"),
    "write_failures": ("checkpoint_write_failures", "checkpoints that could not be written"),
    "failed_steps": ("failed_steps", "steps that failed, after which a pool was made anew"),
    "broken_pools": ("broken_pools", "pools given up because their cells were not what they should be"),
}


def gauge(name: str, says: str) -> Family:
    return Family(f"lorekeep_{name}", "gauge", says)


def counter(name: str, says: str) -> Family:
    return Family(f"lorekeep_{name}_total", "counter", says)


READY = gauge("ready", "1 when an answer can be given")
PAUSED = gauge("paused", "1 while the model is out of the memory")
RESTARTS = counter("engine_restarts", "engine processes that ended and were replaced")
ANSWERING = gauge("answering_jobs", "questions whose answer is being generated")
PREFILLING = gauge("prefilling_jobs", "prompts being computed: of questions, and of codices in advance")
WAITING = gauge("waiting_jobs", "prompts that wait for room in the engine")
KV_BYTES = gauge("kv_bytes", "bytes of the live cache, with what it does not use yet")
LEVEL = gauge("pressure_level", ", ".join(f"{at} {level}" for at, level in enumerate(LEVELS)))
PRESSURE = gauge("pressure_ratio", "memory in use, as a share of what weights and buffers leave")
STEP_SECONDS = Family(
    "lorekeep_step_seconds", "histogram", "steps of the engine: one call of the model for all that runs", {},
    STEP_BOUNDS_S,
)  # fmt: skip
OF_TOKENS = {name: counter(f"{name}_tokens", says) for name, says in TOKENS.items()}
HITS = {name: counter(f"{name}_hit_tokens", f"prompt tokens from {place}") for name, place in PLACES.items()}
BYTES = {name: gauge(f"{name}_cache_bytes", f"bytes of {place}") for name, place in PLACES.items()}
OF_FAULTS = {fault: counter(name, says) for fault, (name, says) in FAULTS.items()}
MEMORY = {
    one.name: gauge(f"memory_{one.name}", f"{one.says}; of the user who asks")
    for one in figures_of(TurnCounts(), 0, 0, Growth(0, 0.0), ())
}

NOW = (READY, PAUSED, RESTARTS, ANSWERING, PREFILLING, WAITING, KV_BYTES, LEVEL, PRESSURE)
OF_ENGINE = (STEP_SECONDS, *OF_TOKENS.values(), *HITS.values(), *BYTES.values(), *OF_FAULTS.values())
"""Counters of these begin anew with every engine process."""
FAMILIES = (*NOW, *OF_ENGINE, *COUNTERS, *HISTOGRAMS, *MEMORY.values())


def metrics(
    status: StatusReply, cache: CacheReply, memory: MemoryStats | None, counted: Iterable[Metric], *, ready: bool
) -> str:
    """`counted`: what was counted of turns and requests. What was not measured has no line."""
    return text((*now(status, ready=ready), *steps(status.engine), *since_start(cache), *counted, *remembered(memory)))


def now(status: StatusReply, *, ready: bool) -> Iterator[Metric]:
    engine, governor = status.engine, status.governor
    yield READY, int(ready)
    yield PAUSED, int(status.paused is not None)
    yield RESTARTS, engine.restarts
    yield ANSWERING, engine.answering
    yield PREFILLING, engine.prefills
    yield WAITING, status.queue.waiting
    yield KV_BYTES, engine.kv_bytes
    if governor.level in LEVELS:
        yield LEVEL, LEVELS.index(governor.level)
    if governor.pressure is not None:
        yield PRESSURE, round(governor.pressure, 4)


def steps(engine: EngineReport) -> Iterator[Metric]:
    if engine.steps is not None:
        yield STEP_SECONDS, Distribution(engine.steps.counts, engine.steps.seconds)


def since_start(cache: CacheReply) -> Iterator[Metric]:
    yield from ((OF_TOKENS[name], tokens) for name, tokens in cache.tokens)
    for name, tier in cache.tiers:
        yield HITS[name], tier.tokens
        yield BYTES[name], tier.bytes
    yield from ((OF_FAULTS[fault], count) for fault, count in cache.faults)


def remembered(memory: MemoryStats | None) -> Iterator[Metric]:
    for one in () if memory is None else memory.figures:
        if one.value is not None:
            yield MEMORY[one.name], one.value
