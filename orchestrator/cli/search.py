"""`lore search`: the archive alone."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from orchestrator.cli import options as given
from orchestrator.cli.ask import working_directory
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.options import WHICH
from orchestrator.cli.terminal import Report, listed, note, plural, result, result_json
from orchestrator.wire import faults

Codex = Annotated[str | None, given.option("-c, --codex NAME", WHICH)]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="words or a name to look for")]
Number = Annotated[int, given.option("-n N", "most places to show", min=1, max=1000)]
Definition = Annotated[bool, given.option("--definition", "where QUERY, a name, is defined")]
Callers = Annotated[bool, given.option("--callers", "what calls QUERY, a name")]
Callees = Annotated[bool, given.option("--callees", "what QUERY, a name, calls")]
Implementors = Annotated[bool, given.option("--implementors", "classes derived from QUERY, or what overrides it")]
Members = Annotated[bool, given.option("--members", "what QUERY, a class or a module, has")]
Graph = Annotated[bool, given.option("--graph", "after them the places that call them or are called by them")]


def search(
    query: Query,
    codex: Codex = None,
    number: Number = 10,
    graph: Graph = False,
    definition: Definition = False,
    callers: Callers = False,
    callees: Callees = False,
    implementors: Implementors = False,
    members: Members = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Finds places in a codex; piped, one path:line:text each. Ends with 5 also where nothing holds what is in quotes."""
    if not query.strip():
        raise Failure(faults.USAGE, "the query is empty", 'lore search "words or a name"')
    flags = {
        "definition": definition,
        "callers": callers,
        "callees": callees,
        "implementors": implementors,
        "members": members,
    }
    wanted = [what for what, chosen in flags.items() if chosen]
    if len(wanted) > 1 or (wanted and graph):
        named = listed(*(f"--{what}" for what in (*wanted, *(["graph"] if graph else []))))
        raise Failure(faults.USAGE, f"{named} do not go together", "choose one")
    if wanted:
        show_symbols(socket, wanted[0], query, codex, as_json=as_json)
        return
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


# ---- symbols ---------------------------------------------------------------------------------------------------------


def show_symbols(socket: str | None, what: str, name: str, codex: str | None, *, as_json: bool) -> None:
    """Ends with 5 where nothing is found, and says which names are like it."""
    body = {"name": name, "what": what, "codex": codex, "cwd": working_directory()}
    report = Daemon(socket).call("POST", "/v1/symbols", body)
    if as_json:
        result_json(report)
    else:
        for one in report["symbols"]:
            for line in symbol_lines(one, what) if not sys.stdout.isatty() else [symbol_text(one, what)]:
                result(line)
        for notice in filter(None, (several_meant(report, what), *report.get("notices", ()))):
            note(notice)
    if not report["symbols"]:
        note(none_found(report, what, name))
        raise typer.Exit(faults.NOT_FOUND)


def symbol_text(one: Report, what: str) -> str:
    """`src/a.py:10  class Session(Mixin): A session.`, and the lines of the calls."""
    inner = "  " * one["qualified"].count(".") if what == "outline" else ""
    head = f"{inner}{one.get('signature') or one['name']}"
    said = f": {one['doc']}" if one.get("doc") else ""
    inside = one["qualified"].rpartition(".")[0] if what != "outline" and one["kind"] != "module" else ""
    uses = one.get("uses", ())
    calls = f"{'lines' if len(uses) > 1 else 'line'} {', '.join(map(str, uses))}" if uses else ""
    sure = "" if one.get("certain", True) else "only by its name"
    about = listed(f"in {inside}" if inside else "", calls, sure, f"of {one['which']}" if one.get("which") else "")
    return f"{one['path']}:{one['line']}  {head}{said}{f'  [{about}]' if about else ''}"


def symbol_lines(one: Report, what: str) -> list[str]:
    """As grep would print them: of a caller each call, of another symbol its definition."""
    sure = "" if one.get("certain", True) else "  [only by its name]"
    if what == "callers":
        return [f"{one['path']}:{line}:{one['qualified']}{sure}" for line in one["uses"]]
    return [f"{one['path']}:{one['line']}:{one.get('signature') or one['qualified']}{sure}"]


def several_meant(report: Report, what: str) -> str:
    """The definitions that an ambiguous name may mean."""
    meant = report.get("meant", ())
    if what == "definition" or len(meant) < 2:
        return ""
    places = "\n".join(f"  {one['path']}:{one['line']}  {one['qualified']}" for one in meant)
    return f"the name may mean any of these; PATH:{meant[0]['qualified']} chooses one\n{places}"


def none_found(report: Report, what: str, name: str) -> str:
    if report.get("meant"):
        places = listed(*(f"{one['path']}:{one['line']} {one['qualified']}" for one in report["meant"][:5]))
        return f"no {what} of {name} are found ({places})"
    near = report.get("near", ())
    like = f"; like it: {listed(*near)}" if near else ""
    if what == "outline":
        return f"no file {name} in this codex, or it defines nothing{like}"
    return f"nothing is named {name}{like}"
