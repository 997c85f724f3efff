"""What `lore top` shows, gathered beside the view: nothing that the daemon does, or fails to do, holds up a key.

    the view ── choose, refresh ──▶ one thread asks ── Known or Failure ──▶ the view
                                    the other listens to /v1/events and wakes the first

Both are daemonic threads: a daemon that hangs does not keep the process when the view is closed.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from orchestrator.cli.client import HANGS_S, Daemon, Failure
from orchestrator.cli.top import AWAY_S, BUSY_S, Known, gathered

Told = Callable[[Known | Failure], object]


class Feed:
    """`tell` is called in a thread of its own, never after `stop`. `known`: what was gathered before."""

    def __init__(self, socket: str | None, known: Known, tell: Told) -> None:
        self._socket = socket
        self._known = known
        self._tell = tell
        self._codex = known.codex
        self._wake = threading.Event()
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._open: dict[str, Daemon] = {}  # by what it is open for

    def start(self) -> None:
        for work in (self._ask, self._listen):
            threading.Thread(target=work, daemon=True).start()

    def choose(self, codex: str | None) -> None:
        """Whose files are wanted."""
        self._codex = codex
        self._wake.set()

    def refresh(self) -> None:
        """Asks for everything now."""
        self._changed.set()
        self._wake.set()

    def stop(self) -> None:
        """What waits for the daemon ends; so does the daemon's stream."""
        self._stopped.set()
        self._wake.set()
        for daemon in tuple(self._open.values()):
            daemon.leave()

    def _daemon(self, use: str, silent_s: float | None = None) -> Daemon:
        """A new connection. Raises Failure, also when nothing is wanted of it any more."""
        daemon = self._open[use] = Daemon(self._socket, quiet=True, silent_s=silent_s)
        if self._stopped.is_set():  # `stop` did not see it
            daemon.leave()
        return daemon

    def _ask(self) -> None:
        pause = self._known.pause_s
        while not self._stopped.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            changed = self._changed.is_set()
            self._changed.clear()
            known = replace(self._known, codex=self._codex, stale=self._known.stale or changed)
            told, pause = self._asked(known)
            if not self._stopped.is_set():
                self._tell(told)
            self._stopped.wait(BUSY_S / 2)  # events may come twice a second, keys faster

    def _asked(self, known: Known) -> tuple[Known | Failure, float]:
        """What there is to show, and when to ask again."""
        try:
            known = gathered(self._daemon("asking", HANGS_S), known)
            known.picture  # noqa: B018 - a daemon of another shape is away
        except Failure as failure:
            self._known = replace(known, stale=True)
            return failure, AWAY_S
        self._known = known
        return known, known.pause_s

    def _listen(self) -> None:
        """What changes rarely is told by events; where there are none, the slow look finds it."""
        while not self._stopped.is_set():
            with suppress(Failure):
                for _ in self._daemon("listening").stream("/v1/events", method="GET"):
                    self.refresh()
            self.refresh()  # it has gone: the view learns that at once
            self._stopped.wait(AWAY_S)
