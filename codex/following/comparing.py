"""Comparisons with the disk of codices that nobody follows: made in the background when somebody asks, kept for a while.

    asked ─▶ what is kept is told at once ─▶ older than `KEPT_S`? ─▶ compared anew beside the answer

A comparison of 100,000 files takes seconds, which no question waits for. One at a time, and no more than a twentieth of
the time.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from codex.errors import CodexError
from codex.following.differences import Differences
from codex.progress import Cancelled

log = logging.getLogger("lorekeep.codex.comparing")

KEPT_S = 30.0
LONGEST_S = 60.0  # of a comparison: beyond it the disk is too slow, and nothing is told
_SHARE = 20

Compare = Callable[[str, Cancelled], Differences]


@dataclass(frozen=True)
class Compared:
    """What was found, of which state of the codex; `due`: when it is too old."""

    state: object
    found: Differences
    due: float


class Comparing:
    """`compare` runs in a thread of its own and may raise CodexError or OSError: nothing is then told. Thread-safe."""

    def __init__(self, compare: Compare, clock: Callable[[], float] = time.monotonic) -> None:
        self._compare = compare
        self._clock = clock
        self._kept: dict[str, Compared] = {}
        self._running: threading.Thread | None = None
        self._lock = threading.Lock()

    def known(self, name: str, state: object) -> Differences:
        """What was found last of a codex in this state, which is told apart by `==`; nothing where nobody looked."""
        kept = self._kept.get(name)
        return kept.found if kept is not None and kept.state == state else Differences()

    def want(self, name: str, state: object) -> None:
        """Have it compared, unless what is known is young, or something is being compared."""
        with self._lock:
            kept = self._kept.get(name)
            young = kept is not None and kept.state == state and self._clock() < kept.due
            if young or self._running is not None:
                return
            # A daemon thread: no process waits at its end for a comparison that nobody will read.
            self._running = threading.Thread(
                target=self._run, args=(name, state), name=f"codex-compare {name}", daemon=True
            )
            self._running.start()

    def wait(self) -> None:
        """Until nothing is being compared."""
        running = self._running
        if running is not None:
            running.join()

    def _run(self, name: str, state: object) -> None:
        began, found = self._clock(), Differences()
        try:
            found = self._compare(name, lambda: self._clock() > began + LONGEST_S)
        except (CodexError, OSError) as fault:
            log.info("codex %s was not compared with the disk: %s", name, fault)
        finally:
            ended = self._clock()
            with self._lock:
                self._kept[name] = Compared(state, found, ended + max(KEPT_S, _SHARE * (ended - began)))
                self._running = None
