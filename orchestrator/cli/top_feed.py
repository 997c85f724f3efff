"""What `lore top` and `lore dash` show, gathered beside the view: nothing that the daemon does, or fails to do, holds up a
key.

    GET /v1/events ──▶ something changed ──┐
    every few seconds ─────────────────────┼─▶ one thread asks ─▶ Known or Failure ─▶ the view
    the view: choose, refresh ─────────────┘

What costs the daemon something is asked again only when it can be another: files of a codex with a new generation, a
trace once, the status when a job came or went. Both threads are daemonic: a daemon that hangs does not keep the process
when the view is closed.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.cli.client import HANGS_S, Daemon, Failure, route_part
from orchestrator.cli.terminal import Report
from orchestrator.wire import faults
from orchestrator.wire.picture import Picture, Replies, picture

TURNS = 8  # last questions
FILES = 200  # of a codex
BUSY_S, IDLE_S = 1.0, 2.0  # between two looks at the engine's work
STATUS_S = 10.0  # between two looks at all else, where nothing says that it changed
SETTLED_S = 1.5  # between two at the least: questions may come many a second
AWAY_S = 2.0  # between two tries to reach a daemon that is away
LACKING = (
    faults.NOT_FOUND,
    faults.NOT_PERMITTED,
    faults.NOT_READY,
    faults.PAUSED,
)  # a part of the picture is not to be had


@dataclass(frozen=True)
class Known:
    """What the daemon has told, when by this process's clock, and the picture of it. `codex`: whose files are wanted; None:
    the first that has a prefix. `stale`: something changed since the status was asked."""

    codex: str | None = None
    stale: bool = True
    status: Report = field(default_factory=dict)
    status_at: float = float("-inf")
    engine: Report | None = None
    cache: Report | None = None
    traces: tuple[Report, ...] = ()
    files: Report | None = None
    files_of: tuple[Any, ...] = ()

    @property
    def picture(self) -> Picture:
        """Raises Failure for replies of a daemon whose shapes are others."""
        try:
            return picture(Replies(self.status, self.engine, self.cache, self.traces, self.files))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            hint = "lore and the daemon are of different versions: restart the daemon"
            raise Failure(faults.FAILED, f"the daemon's reply has another shape: {error!r}", hint) from error

    @property
    def pause_s(self) -> float:
        """Until the next look."""
        return BUSY_S if tickets(self.engine) else IDLE_S


def gathered(daemon: Daemon, before: Known) -> Known:
    """Asks for what may have changed. Raises Failure where the daemon is away."""
    now, engine = time.monotonic(), optional(daemon, "/v1/engine")
    stale = before.stale or (tickets(engine), answered(engine)) != (tickets(before.engine), answered(before.engine))
    known, age = replace(before, engine=engine, stale=stale), now - before.status_at
    if age > STATUS_S or (stale and age > SETTLED_S):
        status, cache = daemon.call("GET", "/v1/status"), optional(daemon, "/v1/stats/cache")
        known = replace(known, status=status, cache=cache, status_at=now, stale=False)
        known = replace(known, traces=turns(daemon, known.traces))
    return with_files(daemon, known)


def optional(daemon: Daemon, route: str) -> Report | None:
    """None where this daemon, or this user's sigil, has no such reply now."""
    try:
        reply: Report = daemon.call("GET", route)
    except Failure as failure:
        if failure.status not in LACKING:
            raise
        return None
    return reply


def tickets(engine: Report | None) -> frozenset[int]:
    return frozenset(one["ticket"] for one in (engine or {}).get("tickets", ()))


def answered(engine: Report | None) -> int:
    """Another number: some question was answered, however quickly."""
    return int((engine or {}).get("prompt_tokens", 0))


def turns(daemon: Daemon, known: tuple[Report, ...]) -> tuple[Report, ...]:
    """The last ones, each asked for once: a turn that is traced does not change."""
    have = {one["id"]: one for one in known}
    rows = (optional(daemon, f"/v1/traces?n={TURNS}") or {}).get("traces", ())
    whole = (have.get(row["id"]) or turn(daemon, row["id"]) for row in rows)
    return tuple(one for one in whole if one is not None)


def turn(daemon: Daemon, name: str) -> Report | None:
    return (optional(daemon, f"/v1/traces/{name}") or {}).get("trace")


def with_files(daemon: Daemon, known: Known) -> Known:
    """The files of the chosen codex, asked anew where its prefix is another."""
    chosen = chosen_codex(known)
    if chosen is None:
        return replace(known, files=None, files_of=())
    which = tuple(chosen.get(name) for name in ("name", "generation", "tier", "floor_tokens", "amended_tokens"))
    if which == known.files_of and known.files is not None:
        return known
    return replace(
        known, files=optional(daemon, f"/v1/codices/{route_part(chosen['name'])}/files?n={FILES}"), files_of=which
    )


def chosen_codex(known: Known) -> Report | None:
    codices = known.status.get("codices", ())
    named = [one for one in codices if one["name"] == known.codex]
    return next((one for one in named or codices if one.get("tier")), None)


def next_codex(known: Known, step: int = 1) -> str | None:
    """The one after the chosen one, of those with a prefix."""
    names = [one["name"] for one in known.status.get("codices", ()) if one.get("tier")]
    chosen = chosen_codex(known)
    return names[(names.index(chosen["name"]) + step) % len(names)] if chosen else None


# ---- beside the view -------------------------------------------------------------------------------------------------

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
