"""The page of metrics and of the log's events, read from the families and the shapes that the daemon writes them with."""

from collections.abc import Iterator
from typing import Any

HEAD = """\
# Metrics and events

`GET /metrics` gives these in Prometheus' text format, version 0.0.4; [observability](../observability.md) says how they are
collected and what to look at. Labels have the values below and no others: none holds a name that a user gave, so that there
are as many series as on the first day. Keys of events, and metrics, are only ever added.
"""
EVENTS = """
# Events

One line each on stderr: JSON, with the fields below beside `time` (not in systemd's journal, which has its own), `level`,
`part` and `event`, its name. Lines with other words tell in a sentence what happened. No line above the level `debug`
holds a question, an answer, or text of a file or a memory.
"""


def page() -> Iterator[str]:
    from orchestrator.reports import metrics, turns

    yield HEAD
    yield from table("Now", "What is so at the moment.", metrics.NOW)
    yield from table(
        "Since the engine's start", "Counters begin anew with each process of the engine.", metrics.OF_ENGINE
    )
    yield from table("Since the daemon's start", "Of all users together.", (*turns.COUNTERS, *turns.HISTOGRAMS))
    yield from table(
        "Memories", "Of the user who asks, with `memory:read`; those that were measured.", metrics.MEMORY.values()
    )
    yield EVENTS.rstrip()
    for name, shape in turns.EVENTS.items():
        yield from event(name, shape)


def table(title: str, says: str, families: Any) -> Iterator[str]:
    yield from (
        f"## {title}",
        "",
        says,
        "",
        "| metric | type | meaning | labels, or bounds of buckets |",
        "|---|---|---|---|",
    )
    for one in families:
        labels = "; ".join(f"`{name}`: {', '.join(values)}" for name, values in one.labels.items())
        yield f"| `{one.name}` | {one.kind} | {one.says} | {labels or ', '.join(f'{bound:g}' for bound in one.bounds)} |"
    yield ""


def event(name: str, shape: Any) -> Iterator[str]:
    yield from ("", f"## {name}", "", " ".join(shape.__doc__.split()), "", "| field | meaning |", "|---|---|")
    for field, about in shape.model_fields.items():
        yield f"| `{field}` | {about.description} |"
