"""`lore session`: conversations."""

from typing import Annotated, Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.terminal import Report, done, moment, output, table
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="Your conversations.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="the conversation")]
New = Annotated[str, typer.Argument(metavar="NEW", help="its new name")]


@app.command("list")
def list_(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists them, the last used first."""
    report = Daemon(socket).call("GET", "/v1/sessions")
    output(report, sessions_page, as_json=as_json, empty='none yet; lore ask "…" begins one')


def sessions_page(report: Report) -> str:
    return table(("name", "codex", "messages", "used", "title"), [row(session) for session in report["sessions"]])


def row(session: Report) -> tuple[str, ...]:
    used = session.get("used")
    when = moment(used) if used else ""
    name, codex, turns = session["name"], session.get("codex") or "none", session.get("turns", 0)
    return name, codex, str(turns), when, session.get("title", "")


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="words that were said")],
    most: Annotated[int, given.option("-n N", "most messages", min=1, max=1000)] = 10,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Finds messages of all your conversations that hold words of the query."""
    report = Daemon(socket).call("POST", "/v1/sessions/search", {"query": query, "n": most})
    if not report["hits"]:
        raise Failure(faults.NOT_FOUND, f"no conversation holds words of {query!r}", "lore session list shows all")
    output(report, hits_page, as_json=as_json)


def hits_page(report: Report) -> str:
    heads = ("session", "codex", "who", "when", "words")
    return table(heads, [hit_row(one) for one in report["hits"]])


def hit_row(one: Report) -> tuple[str, ...]:
    return one["session"], one["codex"] or "none", one["role"], moment(one["created"]), " ".join(one["snippet"].split())


@app.command()
def show(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows what was asked and answered."""
    output(fetched(name, socket), turns_page, as_json=as_json, as_it_is=True)


@app.command()
def export(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Writes a conversation as Markdown to stdout, or as JSON."""
    output(fetched(name, socket), markdown, as_json=as_json, as_it_is=True)


@app.command()
def rename(name: Name, new: New, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Gives it another name."""
    report = Daemon(socket).call("PATCH", f"/v1/sessions/{route_part(name, 'session')}", {"name": new})
    done(report, f"{name} is now {new}", as_json=as_json)


@app.command()
def drop(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Forgets a conversation."""
    report = Daemon(socket).call("DELETE", f"/v1/sessions/{route_part(name, 'session')}")
    done(report, f"dropped {name}", as_json=as_json)


def fetched(name: str, socket: str | None) -> Any:
    return Daemon(socket).call("GET", f"/v1/sessions/{route_part(name, 'session')}")


def turns_page(report: Report) -> str:
    session = report["session"]
    turns = [f"{turn['role']}: {turn.get('text', '')}".rstrip() for turn in session["turns"]]
    return "\n\n".join([*turns, *map(gist_part, session.get("gists", ()))])


def gist_part(gist: Report) -> str:
    """Below all that was said: prompts have it in the place of the first turns."""
    turns = f"turn {gist['first']}" if gist["first"] == gist["last"] else f"turns {gist['first']} to {gist['last']}"
    return f"prompts have {turns} in short: {gist['text']}"


def markdown(report: Report) -> str:
    session = report["session"]
    heads = [f"# {session.get('title') or session['name']}", f"Codex: {session.get('codex') or 'none'}"]
    turns = [f"## {turn['role']}\n\n{turn.get('text', '')}".rstrip() for turn in session["turns"]]
    return "\n\n".join([*heads, *turns])
