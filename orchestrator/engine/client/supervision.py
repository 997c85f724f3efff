"""What to do when the child ends: the states of the child process, and how long to wait before the next one.

    STOPPED ──▶ STARTING ──ready──▶ READY
                  │  ▲ │                │
      load failed │  │ └──── ended ──┬──┘
                  │  │ after a pause ▼
                  │  └──────────── BACKOFF
                  ▼                  │ five ends in a minute of service, or a fault of ours
                BROKEN ◀─────────────┘

A machine that has no process to spare says nothing of the model: that is waited for, however long it takes.
Pure: times are handed in. What ran in the child is not this file's business.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class ChildState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    BROKEN = "broken"


ALLOWED = {
    ChildState.STOPPED: {ChildState.STARTING},
    ChildState.STARTING: {ChildState.READY, ChildState.BACKOFF, ChildState.BROKEN, ChildState.STOPPED},
    ChildState.READY: {ChildState.BACKOFF, ChildState.STOPPED},
    ChildState.BACKOFF: {ChildState.STARTING, ChildState.BROKEN, ChildState.STOPPED},
    ChildState.BROKEN: {ChildState.STARTING, ChildState.STOPPED},
}

MOST_ENDS = 5
WITHIN_SECONDS = 60.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
# Of a process that cannot be started: a file that is not there, or may not be run. All else is lacked for a while.
LASTING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOEXEC})


@dataclass(frozen=True)
class Restart:
    """Start the next child after `pause` seconds."""

    pause: float


@dataclass(frozen=True)
class GiveUp:
    """The model is broken: a further start would only loop."""

    why: str


def after_end(ends: Sequence[float], now: float) -> Restart | GiveUp:
    """`ends`: when children ended that counted against the model, this one included, in seconds that they served.

    What loading takes is not counted: of a large model five ends would never be within a minute.
    """
    recent = [end for end in ends if now - end < WITHIN_SECONDS]
    if len(recent) >= MOST_ENDS:
        return GiveUp(f"the engine ended {len(recent)} times within {WITHIN_SECONDS:.0f} s of service")
    return Restart(pause_after(len(recent)))


def pause_after(times: int) -> float:
    """Seconds before the next start, after so many that came to nothing."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 3.0 ** min(max(0, times - 1), 30)))


def is_lasting(refusal: OSError) -> bool:
    """Whether a process cannot be started however often that is tried, and not only for now."""
    return refusal.errno in LASTING


def loading_words(fraction: float, *, again: bool) -> str:
    """Why nobody is answered yet. What follows the weights takes a moment too, so it never says that all is loaded."""
    words = "the model is loading again" if again else "the model is loading"
    return f"{words}, {min(99, percent)} %" if (percent := int(100 * fraction)) else words


def is_model_fault(running: Sequence[int], seen_before: Sequence[int]) -> bool:
    """Whether an end counts against the model: not when a ticket ran that was there at an earlier one."""
    return not set(running) & set(seen_before)
