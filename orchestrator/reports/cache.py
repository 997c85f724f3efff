"""`lore stats cache`: what the caches held, gave back and saved since the engine started. Pure.

A prompt's tokens are counted once each: standing in the pool's cells, restored from RAM or disk, or computed.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.engine.messages import EngineSnapshot

WHOLE = "this model's memory cannot be cut in ranges: checkpoints end where floors and turns end"


def cache_report(snapshot: EngineSnapshot, *, on_gpu: bool, ranges: bool) -> dict[str, Any]:
    """Tokens, bytes and segments. Without a GPU the cells lie in RAM, and `vram.memory` says so."""
    counted = snapshot.counters
    prompt, cached = figure(counted, "prompt_tokens"), figure(counted, "cached_tokens")
    ram, disk = figure(counted, "ram_tokens"), figure(counted, "disk_tokens")
    saved = cached * counted.get("ms_per_token", 0.0) - counted.get("tier_restored_ms", 0.0)
    return {
        "tiers": {
            "vram": tier(max(0, cached - ram - disk), prompt, snapshot.kv_bytes, "VRAM" if on_gpu else "RAM"),
            "ram": tier(ram, prompt, figure(counted, "tier_ram_bytes"), "RAM"),
            "disk": tier(disk, prompt, figure(counted, "tier_disk_bytes"), "disk"),
        },
        "tokens": {
            "prompt": prompt,
            "cached": cached,
            "computed": figure(counted, "computed_tokens"),
            "generated": figure(counted, "generated_tokens"),
            "padded": figure(counted, "padded_tokens"),
        },
        "hit_rate": share(cached, prompt),
        "segments": figure(counted, "tier_segments"),
        "evictions": {
            "vram_tokens": figure(counted, "evicted_tokens"),
            "ram_segments": figure(counted, "tier_ram_evicted"),
            "disk_segments": figure(counted, "tier_disk_evicted"),
        },
        "restores": {
            "ram_segments": figure(counted, "tier_ram_hits"),
            "disk_segments": figure(counted, "tier_disk_hits"),
            "bytes": figure(counted, "tier_restored_bytes"),
        },
        "faults": {
            **{name: figure(counted, f"tier_{name}") for name in ("misses", "damaged", "write_failures")},
            "broken_pools": figure(counted, "broken_pools"),
            "failed_steps": figure(counted, "pool_failures"),
        },
        "drafts": {
            "answers": figure(counted, "drafts"),
            "drafted": figure(counted, "drafted_tokens"),
            "accepted": figure(counted, "accepted_tokens"),
            "rate": share(figure(counted, "accepted_tokens"), figure(counted, "drafted_tokens")),
        },
        "ms_per_token": round(counted.get("ms_per_token", 0.0), 4),
        "saved_ms": max(0, round(saved)),
        "note": "" if ranges else WHOLE,
    }


def tier(tokens: int, prompt: int, size: int, memory: str) -> dict[str, Any]:
    return {"memory": memory, "tokens": tokens, "hit_rate": share(tokens, prompt), "bytes": size}


def share(part: int, whole: int) -> float | None:
    """None where there was nothing to hit."""
    return round(part / whole, 4) if whole else None


def figure(counted: Mapping[str, float], name: str) -> int:
    return int(counted.get(name, 0))
