"""`lore purge`: what the daemon and `lore chat` keep of you, with its size, and its deletion. Asks first."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.terminal import Report, count, done, is_terminal, listed, note, output, size, table
from orchestrator.wire import faults

HISTORY = "history"
STAY = "memories and codices stay: lore memory forget, lore codex drop NAME --memories"
Yes = Annotated[bool, given.option("--yes", "do not ask")]


def purge(
    traces: Annotated[bool, given.option("--traces", "what the model saw in your turns")] = False,
    sessions: Annotated[bool, given.option("--sessions", "your conversations")] = False,
    cache: Annotated[
        bool, given.option("--cache", "checkpoints of computed prompts, of all users; needs admin")
    ] = False,
    history: Annotated[bool, given.option("--history", "what you typed in lore chat")] = False,
    everything: Annotated[bool, given.option("--all", "all of these that you may delete")] = False,
    yes: Yes = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Deletes for good what is kept of you; without an option lists it."""
    daemon = Daemon(socket)
    kept = {one["name"]: one for one in (*daemon.call("GET", "/v1/kept")["kept"], history_row(local.chat_history()))}
    options = {"traces": traces, "sessions": sessions, "cache": cache, HISTORY: history}
    named = [name for name, wanted in options.items() if wanted]
    chosen = list(kept) if everything else named
    if not chosen:
        output({"kept": list(kept.values())}, kept_page, as_json=as_json)
        if not as_json:
            note(STAY)
        return
    rows = [kept.get(name) or {"name": name, "count": 0, "bytes": 0, "what": name} for name in chosen]
    if not yes:
        note(kept_page({"kept": rows}))
    insist(f"delete {listed(*chosen)} for good?", yes=yes)
    # The cache first: files go on a disk without room, while a database needs some to delete.
    in_order = sorted(chosen, key=lambda name: name != "cache")
    purged = [deleted(daemon, name) for name in in_order]
    place = daemon.archive_place()
    there = f"; so does the archive at {place}" if place else ""
    done({"purged": purged}, f"deleted {listed(*map(words, purged))}; {STAY}{there}", as_json=as_json)


def deleted(daemon: Daemon, name: str) -> Report:
    """What there was of a kind, which is gone. Raises Failure."""
    if name != HISTORY:
        purged: Report = daemon.call("DELETE", f"/v1/kept/{name}")["purged"]
        return purged
    file = local.chat_history()
    was = history_row(file)
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise Failure(faults.FAILED, f"{file} cannot be deleted: {error.strerror}", "delete it yourself") from error
    return was


def history_row(file: Path) -> Report:
    """As the daemon tells of what it keeps. A question is several lines, and the first begins with #."""
    try:
        text = file.read_bytes()
    except OSError:
        text = b""  # none was kept, or not for this user to read
    return {
        "name": HISTORY,
        "what": "what you typed in lore chat here",
        "count": text.count(b"\n# "),
        "bytes": len(text),
    }


def kept_page(report: Report) -> str:
    rows = [(one["name"], count(one["count"]), size(one["bytes"]), one["what"]) for one in report["kept"]]
    return table(("kept", "number", "size", "what it is"), rows)


def words(one: Report) -> str:
    return f"{count(one['count'])} of {one['name']} ({size(one['bytes'])})"


def insist(question: str, *, yes: bool) -> None:
    """Asks on a terminal. Raises Failure where nobody says yes."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise Failure(faults.USAGE, f"nobody was asked: {question}", "--yes deletes without asking")
    if not typer.confirm(question, err=True):
        raise Failure(faults.FAILED, "nothing was deleted")
