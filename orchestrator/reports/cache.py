"""`lore stats cache`: what the caches held, gave back and saved since the engine started. Pure.

Counts the prompts of answered questions, and each token of them once: resident in the pool's cells, restored from disk, or
computed.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.engine.messages import EngineSnapshot
from orchestrator.wire.memories import MemoryStats
from orchestrator.wire.status import (
    CacheFaults,
    CacheReply,
    CacheTier,
    CacheTiers,
    CacheTokens,
    DraftFigures,
    Evictions,
    Restores,
    StatusReply,
)

FRESH = "no prompt was answered since the model was loaded: the figures begin anew with each load, as after a pause"
WHOLE = "this model's memory cannot be cut in ranges: checkpoints end where floors and turns end"
PREFIX = "lorekeep"
LEVELS = ("calm", "elevated", "high", "critical")
TOKENS = {
    "prompt": "tokens of all prompts",
    "cached": "prompt tokens that were at hand",
    "computed": "prompt tokens that were computed",
    "generated": "tokens of answers",
    "padded": "tokens computed to fill steps",
}
PLACES = {"vram": "the live cache", "ram": "checkpoints in RAM", "disk": "checkpoints on disk"}
FAULTS = {
    "misses": ("checkpoint_misses", "checkpoints that were gone when they were wanted"),
    "damaged": ("checkpoint_damaged", "checkpoints whose checksum was wrong"),
    "write_failures": ("checkpoint_write_failures", "checkpoints that could not be written"),
    "failed_steps": ("failed_steps", "steps that failed, after which a pool was made anew"),
    "broken_pools": ("broken_pools", "pools given up because their cells were not what they should be"),
}


@dataclass(frozen=True)
class Figure:
    """`name` without the prefix; `says` what it counts."""

    name: str
    kind: str
    says: str
    value: float


def cache_report(snapshot: EngineSnapshot, *, on_gpu: bool, ranges: bool, away: str = "") -> CacheReply:
    """Tokens, bytes and segments. Without a GPU the cells lie in RAM, and `vram.memory` says so. `away`: why no model is
    loaded.

    Checkpoints lie on disk alone: the figures of a tier in RAM, and of padding, are zeros that clients may still read.
    """
    count = Counter({name: int(value) for name, value in snapshot.counters.items()})  # 0 for what is not counted yet
    prompt, cached, disk = count["prompt_tokens"], count["cached_tokens"], count["disk_tokens"]
    drafted, accepted = count["drafted_tokens"], count["accepted_tokens"]
    token_ms = snapshot.counters.get("ms_per_token", 0.0)
    return CacheReply(
        tiers=CacheTiers(
            vram=tier(cached - disk, prompt, snapshot.kv_bytes, "VRAM" if on_gpu else "RAM"),
            ram=tier(0, prompt, 0, "RAM"),
            disk=tier(disk, prompt, count["tier_disk_bytes"], "disk"),
        ),
        tokens=CacheTokens(
            prompt=prompt, cached=cached, computed=prompt - cached, generated=count["generated_tokens"], padded=0
        ),
        hit_rate=share(cached, prompt),
        segments=count["tier_segments"],
        evictions=Evictions(
            vram_tokens=count["evicted_tokens"], ram_segments=0, disk_segments=count["tier_disk_evicted"]
        ),
        restores=Restores(ram_segments=0, disk_segments=count["tier_disk_hits"], bytes=count["tier_restored_bytes"]),
        faults=CacheFaults(
            misses=count["tier_misses"],
            damaged=count["tier_damaged"],
            write_failures=count["tier_write_failures"],
            broken_pools=count["broken_pools"],
            failed_steps=count["pool_failures"],
        ),
        drafts=DraftFigures(answers=count["drafts"], drafted=drafted, accepted=accepted, rate=share(accepted, drafted)),
        ms_per_token=round(token_ms, 4),
        saved_ms=max(0, round(cached * token_ms - snapshot.counters.get("restored_ms", 0.0))),
        note="\n".join(filter(None, (_why_empty(prompt, away), "" if ranges else WHOLE))),
    )


def _why_empty(prompt: int, away: str) -> str:
    if away:
        return f"no model is loaded ({away}), and the figures begin anew when one is"
    return "" if prompt else FRESH


def tier(tokens: int, prompt: int, size: int, memory: str) -> CacheTier:
    return CacheTier(memory=memory, tokens=tokens, hit_rate=share(tokens, prompt), bytes=size)


def share(part: int, whole: int) -> float | None:
    """None where there was nothing to hit."""
    return round(part / whole, 4) if whole else None


def metrics(status: StatusReply, cache: CacheReply, memory: MemoryStats | None = None, *, ready: bool) -> str:
    """From the reports. Names end in their unit; what only grows ends in `_total`. What was not measured has no line."""
    return "".join(lines(one) for one in (*now(status, ready=ready), *since_start(cache), *remembered(memory)))


def lines(one: Figure) -> str:
    name = f"{PREFIX}_{one.name}"
    return f"# HELP {name} {one.says}\n# TYPE {name} {one.kind}\n{name} {one.value}\n"


def now(status: StatusReply, *, ready: bool) -> Iterator[Figure]:
    engine, governor = status.engine, status.governor
    yield Figure("ready", "gauge", "1 when an answer can be given", int(ready))
    yield Figure("paused", "gauge", "1 while the model is out of the memory", int(status.paused is not None))
    yield Figure("engine_restarts_total", "counter", "engine processes that ended and were replaced", engine.restarts)
    yield Figure("answering_jobs", "gauge", "questions whose answer is being generated", engine.answering)
    yield Figure(
        "prefilling_jobs",
        "gauge",
        "prompts being computed: of questions, and of codices in advance",
        engine.prefills,
    )
    yield Figure("waiting_jobs", "gauge", "prompts that wait for room in the engine", status.queue.waiting)
    yield Figure("kv_bytes", "gauge", "bytes of the live cache, with what it does not use yet", engine.kv_bytes)
    if governor.level in LEVELS:
        levels = ", ".join(f"{at} {level}" for at, level in enumerate(LEVELS))
        yield Figure("pressure_level", "gauge", levels, LEVELS.index(governor.level))
    if governor.pressure is not None:
        says = "memory in use, as a share of what weights and buffers leave"
        yield Figure("pressure_ratio", "gauge", says, round(governor.pressure, 4))


def remembered(memory: MemoryStats | None) -> Iterator[Figure]:
    """Of the user who asks."""
    for one in () if memory is None else memory.figures:
        if one.value is not None:
            yield Figure(f"memory_{one.name}", "gauge", one.says, one.value)


def since_start(cache: CacheReply) -> Iterator[Figure]:
    """Counters begin anew with every engine process."""
    for name, tokens in cache.tokens:
        yield Figure(f"{name}_tokens_total", "counter", TOKENS[name], tokens)
    for name, tier in cache.tiers:
        yield Figure(f"{name}_hit_tokens_total", "counter", f"prompt tokens from {PLACES[name]}", tier.tokens)
        yield Figure(f"{name}_cache_bytes", "gauge", f"bytes of {PLACES[name]}", tier.bytes)
    for fault, count in cache.faults:
        name, says = FAULTS[fault]
        yield Figure(f"{name}_total", "counter", says, count)
