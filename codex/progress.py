"""Progress of a load: items done, rate, and time left.

Knows no terminal and no wire; the clock is passed in.
"""

from collections.abc import Callable
from dataclasses import dataclass

from codex.errors import LoadCancelled

_REPORT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class CodexProgress:
    """`done` of `total` (0: not known yet) in the phase's unit; `rate` per second; `eta_s` seconds, None: not known."""

    phase: str  # walk, rules, read, index
    done: int
    total: int
    rate: float
    eta_s: float | None


OnProgress = Callable[[CodexProgress], None]
Cancelled = Callable[[], bool]
Step = Callable[[], None]
"""One more item of the phase is done."""


def silent(progress: CodexProgress) -> None:
    """A report that is dropped."""


def uncounted() -> None:
    """A step that nobody counts."""


def never() -> bool:
    """A load that nobody cancels."""
    return False


def insist(cancelled: Cancelled) -> None:
    """Raises LoadCancelled when the load was cancelled before a file was read."""
    if cancelled():
        raise LoadCancelled("the load was cancelled while its files were listed; the next one begins again")


class Meter:
    """Counts one phase and reports it at most ten times a second, and always its beginning and its end."""

    def __init__(self, phase: str, total: int, report: OnProgress, clock: Callable[[], float]) -> None:
        self._phase = phase
        self._total = total
        self._report = report
        self._clock = clock
        self._started = self._reported = clock()
        self._done = 0
        report(progress_at(phase, 0, total, 0.0))

    def advance(self, count: int = 1) -> None:
        self._done += count
        now = self._clock()
        if now - self._reported >= _REPORT_EVERY_S:
            self._reported = now
            self._report(progress_at(self._phase, self._done, self._total, now - self._started))

    def finish(self) -> None:
        self._report(progress_at(self._phase, self._done, self._done, self._clock() - self._started))


def progress_at(phase: str, done: int, total: int, elapsed_s: float) -> CodexProgress:
    """The progress after `elapsed_s` seconds at a steady rate."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    left = max(0, total - done)
    eta = left / rate if total and rate > 0 else None
    return CodexProgress(phase, done, total, rate, 0.0 if total and not left else eta)
