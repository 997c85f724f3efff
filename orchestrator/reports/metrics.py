"""The same figures for Prometheus: its text format, version 0.0.4. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

PREFIX = "lorekeep"
LEVELS = ("calm", "elevated", "high", "critical")


def metrics(status: Mapping[str, Any], cache: Mapping[str, Any], *, ready: bool) -> str:
    """From the reports of status and cache. Names end in their unit; what only grows ends in `_total`."""
    return "".join(f"# TYPE {name} {kind}\n{name} {value}\n" for name, kind, value in figures(status, cache, ready))


def figures(status: Mapping[str, Any], cache: Mapping[str, Any], ready: bool) -> Iterator[tuple[str, str, float]]:
    engine, governor, queue = status["engine"], status["governor"], status["queue"]
    yield f"{PREFIX}_ready", "gauge", int(ready)
    yield f"{PREFIX}_engine_restarts_total", "counter", engine["restarts"]
    yield f"{PREFIX}_running_answers", "gauge", queue["running"]
    yield f"{PREFIX}_waiting_answers", "gauge", queue["waiting"]
    yield f"{PREFIX}_kv_bytes", "gauge", engine["kv_bytes"]
    if governor["level"] in LEVELS:
        yield f"{PREFIX}_pressure_level", "gauge", LEVELS.index(governor["level"])
    if governor["pressure"] is not None:
        yield f"{PREFIX}_pressure_ratio", "gauge", round(governor["pressure"], 4)
    for name, tokens in cache["tokens"].items():
        yield f"{PREFIX}_{name}_tokens_total", "counter", tokens
    for name, tier in cache["tiers"].items():
        yield f"{PREFIX}_{name}_hit_tokens_total", "counter", tier["tokens"]
        yield f"{PREFIX}_{name}_cache_bytes", "gauge", tier["bytes"]
    for name, count in cache["faults"].items():
        yield f"{PREFIX}_checkpoint_{name}_total", "counter", count
