"""What kind of work a question asks for, by patterns alone: it decides how much is looked up beside the floor.

Knows no model, no codex and no budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.prompt.phrases import Phrases, shipped


class Task(StrEnum):
    """In the order in which they are tried; UNKNOWN when none matches."""

    RAG_CRITICAL = "rag_critical"
    STUFF_FRIENDLY = "stuff_friendly"
    HYBRID = "hybrid"
    UNKNOWN = "unknown"


TRIED = (Task.RAG_CRITICAL, Task.STUFF_FRIENDLY, Task.HYBRID)


@dataclass(frozen=True)
class TaskMatch:
    """`because` is the phrase, or the frame, that decided; empty for UNKNOWN."""

    task: Task
    because: str = ""


def classify(question: str, frame: str = "", more: Mapping[Task, Phrases] | None = None) -> TaskMatch:
    """The class of a question. Frame debug is always critical; `more`: phrases that settings add to shipped ones."""
    if frame == "debug":
        return TaskMatch(Task.RAG_CRITICAL, "frame debug")
    for task in TRIED:
        found = _phrases(task, more or {}).found_in(question)
        if found is not None:
            return TaskMatch(task, found)
    return TaskMatch(Task.UNKNOWN)


def _phrases(task: Task, more: Mapping[Task, Phrases]) -> Phrases:
    return shipped(task.value).extended(more[task]) if task in more else shipped(task.value)
