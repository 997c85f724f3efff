"""`lore search`: the archive alone."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from orchestrator.cli import options as given
from orchestrator.cli.ask import working_directory
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.options import WHICH
from orchestrator.cli.terminal import Report, note, plural, result, result_json
from orchestrator.wire import faults

Codex = Annotated[str | None, given.option("-c, --codex NAME", WHICH)]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="words or a name to look for")]
Number = Annotated[int, given.option("-n N", "most places to show", min=1, max=1000)]
Graph = Annotated[bool, given.option("--graph", "after them the places that call them or are called by them")]


def search(
    query: Query,
    codex: Codex = None,
    number: Number = 10,
    graph: Graph = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Finds places in a codex; piped, one path:line:text each. Ends with 5 also where nothing holds what is in quotes."""
    if not query.strip():
        raise Failure(faults.USAGE, "the query is empty", 'lore search "words or a name"')
    body = {"query": query, "codex": codex, "n": number, "graph": graph, "cwd": working_directory()}
    report = Daemon(socket).call("POST", "/v1/search", body)
    if as_json:
        result_json(report)
    else:
        for hit in report["hits"]:
            if sys.stdout.isatty():
                result(hit_text(hit), lead=f"{hit['path']}:{hit['start']}-{hit['end']}")
            else:
                result(hit_line(hit))
        for notice in filter(None, (how_many_hold(report["hits"]), *report.get("notices", ()))):
            note(notice)
    if not report["hits"]:
        note(f"nothing found for {query}")
    if not report["hits"] or report.get("absent"):
        raise typer.Exit(faults.NOT_FOUND)


def how_many_hold(hits: Sequence[Report]) -> str:
    """Of what was quoted; '' where none holds it, or all do. What the graph added was not looked for by it."""
    found = [hit for hit in hits if not hit.get("near")]
    others = [hit for hit in found if not hit.get("exact")]
    holding = len(found) - len(others)
    if not holding or not others:
        return ""
    holds = "holds" if holding == 1 else "hold"
    what = (
        "words of it, or what means the same"
        if any("vector" in hit.get("scores", {}) for hit in others)
        else "words of it"
    )
    return f"{holding} of {plural(len(found), 'place')} {holds} what was asked for as it is; the others only {what}"


def hit_text(hit: Report) -> str:
    """What follows the place's name, and its text below."""
    scores = ", ".join(f"{name} {value:.2f}" for name, value in hit.get("scores", {}).items() if value is not None)
    holds = "holds it as it is" if hit.get("exact") else ""
    score = f"{hit.get('score', 0):.3f} ({scores})"
    near = f"near: {hit['near']}" if hit.get("near") else ""
    about = "  ".join(part for part in (hit.get("symbol") or "", score, holds, near) if part)
    snippet = "\n".join(f"    {text}" for text in hit.get("snippet", "").rstrip().splitlines())
    return f"  {about}\n{snippet}\n"


def hit_line(hit: Report) -> str:
    """The first line of the place that says something, with its own number, as grep would print it; of a neighbour also
    what led to it."""
    near = f"  [near: {hit['near']}]" if hit.get("near") else ""
    for number, text in enumerate(hit.get("snippet", "").splitlines(), start=hit.get("line", hit["start"])):
        if text.strip():
            return f"{hit['path']}:{number}:{text.strip()}{near}"
    return f"{hit['path']}:{hit['start']}:{near}"
