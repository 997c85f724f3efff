"""`lore top`: the live view of the daemon. Here: one page, and lines of JSON. The view (`top_view`, with textual) is
imported when it is opened.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

from orchestrator.cli import options as given
from orchestrator.cli.client import HANGS_S, Daemon, Failure
from orchestrator.cli.terminal import is_terminal, note, result, written
from orchestrator.cli.top_feed import AWAY_S, Known, gathered
from orchestrator.cli.top_page import page, plain
from orchestrator.wire.picture import DaemonAway, Picture

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
