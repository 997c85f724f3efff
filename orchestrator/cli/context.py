"""`lore doctor --context`: measures how long a text the running model follows, and shows what came of it."""

import sys

import typer

from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.terminal import (
    Report,
    clear_progress,
    count,
    duration,
    note,
    plural,
    progress,
    result_json,
    result_page,
    step,
    table,
)
from orchestrator.wire import faults

LONG_S = 600.0  # whoever starts what takes longer has to agree
AGAIN = "`lore doctor --context` goes on where it ended"


def context(socket: str | None, *, again: bool, yes: bool, as_json: bool) -> None:
    """Goes on with what is missing, or measures everything `again`. Ctrl-C keeps what was measured."""
    found = Daemon(socket).call("GET", "/v1/model/context")["context"]
    if again or not found["complete"]:
        agree(found, again=again, yes=yes)
        found = measured(Daemon(socket), again=again)
    result_json(found) if as_json else result_page(page(found))


def agree(found: Report, *, again: bool, yes: bool) -> None:
    """Says what it takes. Where that is long or not known, somebody has to agree. Raises Failure where nobody can."""
    todo = found["whole" if again else "left"]
    seconds, work = todo["seconds"], f"{count(todo['tokens'])} tokens and {plural(todo['answers'], 'question')}"
    about = "it is not known yet how long that takes" if seconds is None else f"at most about {duration(seconds)}"
    note(f"measuring the context of {found['model']}: {work}, {about}; Ctrl-C keeps what was measured")
    if yes or (seconds is not None and seconds <= LONG_S):
        return
    if not sys.stdin.isatty():
        raise Failure(faults.USAGE, f"this may take long: {about}", "say --yes to begin without being asked")
    typer.confirm("begin?", abort=True, err=True)


def measured(daemon: Daemon, *, again: bool) -> Report:
    try:
        for event in daemon.stream("/v1/model/context", {"again": again}):
            if not event.aside and event.data["event"] == "measured":
                done: Report = event.data["context"]
                return done
            if not event.aside:
                progress(step(event.data))
    except KeyboardInterrupt:
        note(f"\nwhat was measured is kept: {AGAIN}")
        raise
    finally:
        clear_progress()
    raise Failure(faults.FAILED, "the daemon broke off the measurement", AGAIN)


def page(found: Report) -> str:
    """A row for each length that was asked, a column for each depth and each kind."""
    kinds = list(found["lengths"][0]["kinds"]) if found["lengths"] else []
    heads = ("tokens", *(f"at {percent(depth)}" for depth in found["depths"]), "right", *kinds)
    rows = [
        (
            count(row["length"]),
            *map(percent, row["depths"]),
            percent(row["share"]),
            *map(percent, row["kinds"].values()),
        )
        for row in found["lengths"]
        if any(share is not None for share in row["kinds"].values())
    ]
    return "\n\n".join(filter(None, (table(heads, rows), f"{found['model']}, KV {found['kv']}: {found['words']}")))


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
