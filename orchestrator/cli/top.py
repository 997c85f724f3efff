"""`lore top`: the live view of the daemon. Here: one page, lines of JSON, and how the replies are gathered.

    GET /v1/events ──▶ something changed ──┐
    every few seconds ─────────────────────┼─▶ gathered ─▶ picture ─▶ the view, a line of JSON
    a key ─────────────────────────────────┘

What costs the daemon something is asked again only when it can be another: files of a codex with a new generation, a
trace once, the status when a job came or went. The view (`top_view`, with textual) is imported when it is opened.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from orchestrator.cli import options as given
from orchestrator.cli.client import HANGS_S, Daemon, Failure, route_part
from orchestrator.cli.terminal import Report, is_terminal, note, result, written
from orchestrator.cli.top_page import page, plain
from orchestrator.wire import faults
from orchestrator.wire.picture import DaemonAway, Picture, Replies, picture

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
NO_TERMINAL = "no terminal to draw on: one page, as with --once"


def top(
    once: Annotated[bool, given.option("--once", "print one page and end")] = False,
    codex: Annotated[
        str | None, given.option("-c, --codex NAME", "whose files are shown; left out: the first with a prefix")
    ] = None,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows live what fills the memory, what runs and waits, what was cached, and what each file costs.

    With --json a line for each change, until Ctrl-C; with --once, or without a terminal, one page.
    """
    first = gathered(Daemon(socket, silent_s=HANGS_S), Known(codex=codex))
    if once:
        shown(first.picture, as_json=as_json)
    elif as_json:
        for told in followed(socket, codex):
            written(json.dumps(told) + "\n")
    elif is_terminal(sys.stdout) and os.environ.get("TERM", "dumb") != "dumb":
        from orchestrator.cli.top_view import view

        raise SystemExit(view(socket, first))
    else:
        note(NO_TERMINAL)
        shown(first.picture, as_json=False)


def shown(now: Picture, *, as_json: bool) -> None:
    columns = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal(sys.stdout) else 0
    written(json.dumps(asdict(now)) + "\n") if as_json else result("\n".join(map(plain, page(now, columns or 100))))


def followed(socket: str | None, codex: str | None) -> Iterator[dict[str, Any]]:
    """A picture where it differs from the last one; why there is none while the daemon is away."""
    known, last = Known(codex=codex), None
    while True:
        try:
            known = gathered(Daemon(socket, silent_s=HANGS_S), known)
            told, pause = asdict(known.picture), known.pause_s
        except Failure as failure:
            told, pause = asdict(DaemonAway(failure.message)), AWAY_S
        if told != last:
            yield told
        last = told
        time.sleep(pause)


# ---- gathering -------------------------------------------------------------------------------------------------------


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
