"""The same figures for Prometheus: its text format, version 0.0.4. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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


def metrics(status: Mapping[str, Any], cache: Mapping[str, Any], *, ready: bool) -> str:
    """From the reports of status and cache. Names end in their unit; what only grows ends in `_total`."""
    return "".join(lines(one) for one in (*now(status, ready=ready), *since_start(cache)))


def lines(one: Figure) -> str:
    name = f"{PREFIX}_{one.name}"
    return f"# HELP {name} {one.says}\n# TYPE {name} {one.kind}\n{name} {one.value}\n"


def now(status: Mapping[str, Any], *, ready: bool) -> Iterator[Figure]:
    engine, governor, queue = status["engine"], status["governor"], status["queue"]
    yield Figure("ready", "gauge", "1 when an answer can be given", int(ready))
    yield Figure(
        "engine_restarts_total", "counter", "engine processes that ended and were replaced", engine["restarts"]
    )
    yield Figure("answering_jobs", "gauge", "questions whose answer is being generated", engine["answering"])
    yield Figure(
        "prefilling_jobs",
        "gauge",
        "prompts being computed: of questions, and of codices in advance",
        engine["prefills"],
    )
    yield Figure("waiting_jobs", "gauge", "prompts that wait for room in the engine", queue["waiting"])
    yield Figure("kv_bytes", "gauge", "bytes of the live cache, with what it does not use yet", engine["kv_bytes"])
    if governor["level"] in LEVELS:
        levels = ", ".join(f"{at} {level}" for at, level in enumerate(LEVELS))
        yield Figure("pressure_level", "gauge", levels, LEVELS.index(governor["level"]))
    if governor["pressure"] is not None:
        says = "memory in use, as a share of what may be used"
        yield Figure("pressure_ratio", "gauge", says, round(governor["pressure"], 4))


def since_start(cache: Mapping[str, Any]) -> Iterator[Figure]:
    """Counters begin anew with every engine process."""
    for name, tokens in cache["tokens"].items():
        yield Figure(f"{name}_tokens_total", "counter", TOKENS[name], tokens)
    for name, tier in cache["tiers"].items():
        yield Figure(f"{name}_hit_tokens_total", "counter", f"prompt tokens from {PLACES[name]}", tier["tokens"])
        yield Figure(f"{name}_cache_bytes", "gauge", f"bytes of {PLACES[name]}", tier["bytes"])
    for fault, count in cache["faults"].items():
        name, says = FAULTS[fault]
        yield Figure(f"{name}_total", "counter", says, count)
