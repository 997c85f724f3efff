"""`lore stats cache`: what the caches held, gave back and saved since the engine started. Pure.

Counts the prompts of answered questions, and each token of them once: resident in the pool's cells, restored from disk, or
computed.
"""

from collections import Counter

from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.wire.status import (
    CacheFaults,
    CacheReply,
    CacheTier,
    CacheTiers,
    CacheTokens,
    DraftFigures,
    Evictions,
    Restores,
)

FRESH = "no prompt was answered since the model was loaded: the figures begin anew with each load, as after a pause"
WHOLE = "this model's memory cannot be cut in ranges: checkpoints end where floors and turns end"


def cache_report(snapshot: EngineSnapshot, *, on_gpu: bool, ranges: bool, away: str = "") -> CacheReply:
    """Tokens, bytes and segments. Without a GPU the cells lie in RAM, and `vram.memory` says so. `away`: why no model is
    loaded."""
    count = Counter({name: int(value) for name, value in snapshot.counters.items()})  # 0 for what is not counted yet
    prompt, cached, disk = count["prompt_tokens"], count["cached_tokens"], count["disk_tokens"]
    drafted, accepted = count["drafted_tokens"], count["accepted_tokens"]
    token_ms = snapshot.counters.get("ms_per_token", 0.0)
    return CacheReply(
        tiers=CacheTiers(
            vram=tier(cached - disk, prompt, snapshot.kv_bytes, "VRAM" if on_gpu else "RAM"),
            disk=tier(disk, prompt, count["tier_disk_bytes"], "disk"),
        ),
        tokens=CacheTokens(prompt=prompt, cached=cached, computed=prompt - cached, generated=count["generated_tokens"]),
        hit_rate=share(cached, prompt),
        segments=count["tier_segments"],
        evictions=Evictions(vram_tokens=count["evicted_tokens"], disk_segments=count["tier_disk_evicted"]),
        restores=Restores(disk_segments=count["tier_disk_hits"], bytes=count["tier_restored_bytes"]),
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
