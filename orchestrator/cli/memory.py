"""`lore memory`: what is remembered of you and of your codebases."""

import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from orchestrator.cli import options as given
from orchestrator.cli.ask import working_directory
from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.terminal import Report, day, done, facts, is_terminal, moment, output, plural, table
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="What is remembered.")
Id = Annotated[str, typer.Argument(metavar="ID", help="the memory, or the beginning of its id")]
Codex = Annotated[str | None, given.option("-c, --codex NAME", "its codex; left out: by your folder; none: no codex")]
KINDS = "decision, fact, procedure, episode, censor, or a kind of a package"
KEPT = (  # in an exported file
    *("kind", "codex", "subject", "attribute", "verbatim", "created"),
    *("confidence", "domain", "outcome", "evidence", "state", "pinned"),
    *("trigger", "watches", "severity"),
)
_EXPORTED = re.compile(r".+-[0-9a-f]{10}\.md")
_PLACE = re.compile(r"^(unknown field )?memories\.(\d+)[.:]\s*")
_COMMIT = "commit:"
SHORT = 12  # digits of a commit that a person reads
_CITED = re.compile(r"(.+?)(?::(\d+)(?:-(\d+))?)?")


@app.command(
    "list", epilog=given.examples("lore memory list --kind decision", "lore memory list --codex none --state proposed")
)
def list_(
    kind: Annotated[str | None, given.option("--kind KIND", KINDS)] = None,
    codex: Annotated[str | None, given.option("-c, --codex NAME", "of this codex; none: of no codex")] = None,
    state: Annotated[str | None, given.option("--state STATE", "in this state alone")] = None,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Lists them, the newest first."""
    asked = {"kind": kind, "codex": codex, "state": state}
    report = Daemon(socket).call("GET", route_with({name: value for name, value in asked.items() if value}))
    output(report, page, as_json=as_json, empty='none yet; lore memory add "…" makes one')


@app.command()
def review(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists what a person should look at: proposals, and what may be outdated."""
    report = Daemon(socket).call("GET", route_with({"review": "1"}))
    output(report, review_page, as_json=as_json, empty="nothing to review")


@app.command(epilog=given.examples("lore memory show 3f2a"))
def show(memory: Id, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows one memory in full."""
    report = Daemon(socket).call("GET", f"/v1/memories/{route_part(memory, 'memory')}")
    output(report, whole_page, as_json=as_json)


@app.command(
    epilog=given.examples(
        'lore memory add "The cache is Redis." --about cache --attribute engine',
        'lore memory add "We chose SQLite, because it is one file." --kind decision --cite src/store.py:10-40',
        'lore memory add "Never push to main." --kind censor',
        "git show HEAD:RELEASING.md | lore memory add - --kind procedure",
    )
)
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="what is to be remembered; - reads standard input")],
    kind: Annotated[str, given.option("--kind KIND", KINDS)] = "fact",
    codex: Codex = None,
    about: Annotated[str, given.option("--about SUBJECT", "what a fact is about; me: you")] = "",
    attribute: Annotated[str, given.option("--attribute NAME", "what of it; another value supersedes the former")] = "",
    list_name: Annotated[str, given.option("--list NAME", "an entry of this list")] = "",
    cite: Annotated[
        list[str] | None,
        given.option("--cite PLACE", "code that it is about: PATH, PATH:START-END or commit:HASH"),
    ] = None,
    verbatim: Annotated[bool, given.option("--verbatim", "never shortened")] = False,
    confidence: Annotated[float, given.option("--confidence P", "how sure it is", min=0, max=1)] = 1.0,
    trigger: Annotated[
        str, given.option("--trigger WORDS", "of a censor: what a sentence must hold; else what its text forbids")
    ] = "",
    watches: Annotated[
        str | None, given.option("--watch TEXT", "of a censor: question or answer (the default)")
    ] = None,
    domain: Annotated[
        str,
        given.option(
            "--domain PLACE",
            "of a censor: the folder, file or frame (as debug) where alone it holds; of a procedure: words that find it",
        ),
    ] = "",
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Remembers something. The same again confirms it."""
    body: dict[str, Any] = {
        "kind": kind,
        "text": sys.stdin.read() if text == "-" else text,
        "codex": codex,
        "cwd": working_directory(),
        "subject": f"list:{list_name}" if list_name else "user" if about == "me" else about,
        "attribute": attribute,
        "verbatim": verbatim,
        "confidence": confidence,
        "trigger": trigger,
        "watches": watches,
        "domain": domain,
        "evidence": [cited(place) for place in cite or ()],
    }
    report = Daemon(socket).call("POST", "/v1/memories", body)
    done(report, added_words(report["memory"]), as_json=as_json)


@app.command(epilog=given.examples("lore memory rate 3f2a down"))
def rate(
    memory: Id,
    vote: Annotated[str, typer.Argument(metavar="up|down", help="whether it helped")],
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Moves its trust: 0.05 up, 0.10 down. Of a procedure or a censor it also says whether it was right."""
    if vote not in ("up", "down"):
        raise Failure(faults.USAGE, f"{vote!r} is neither up nor down")
    changed(memory, {"do": vote}, f"rated {vote}, trust is now {{trust:.2f}}", as_json=as_json, socket=socket)


@app.command(epilog=given.examples("lore memory confirm 3f2a"))
def confirm(memory: Id, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Says that it is true."""
    changed(memory, {"do": "confirm"}, "{state}", as_json=as_json, socket=socket)


@app.command()
def consecrate(memory: Id, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Never shortens it; it is the last to go."""
    changed(memory, {"do": "consecrate"}, "consecrated", as_json=as_json, socket=socket)


@app.command()
def retire(memory: Id, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows it to no model any more, and keeps it."""
    changed(memory, {"do": "retire"}, "{state}", as_json=as_json, socket=socket)


@app.command(epilog=given.examples("lore memory become 3f2a core"))
def become(
    memory: Id,
    state: Annotated[str, typer.Argument(metavar="STATE", help="a state that its own leads to")],
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Puts it into another state of its kind."""
    changed(memory, {"do": "become", "state": state}, "{state}", as_json=as_json, socket=socket)


@app.command(epilog=given.examples("lore memory outcome 3f2a success"))
def outcome(
    memory: Id,
    came: Annotated[str, typer.Argument(metavar="OUTCOME", help="pending, success, partial or failure")],
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Says what became of a decision."""
    changed(memory, {"do": "outcome", "outcome": came}, "{outcome}", as_json=as_json, socket=socket)


@app.command(epilog=given.examples("lore memory forget 3f2a"))
def forget(
    memory: Id,
    yes: Annotated[bool, given.option("--yes", "do not ask")] = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Deletes it for good. Asks before it deletes a decision."""
    daemon = Daemon(socket)
    route = f"/v1/memories/{route_part(memory, 'memory')}"
    found = daemon.call("GET", route)["memory"]
    if found["kind"] == "decision" and not yes:
        asked_again(found)
    done(daemon.call("DELETE", route), f"forgot {found['id']}: {found['micro']}", as_json=as_json)


@app.command(
    epilog=given.examples('lore memory search "which cache?"', "lore memory search storage --kind decision -n 3")
)
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="words, or a question")],
    kind: Annotated[str | None, given.option("--kind KIND", KINDS)] = None,
    codex: Codex = None,
    most: Annotated[int, given.option("-n N", "most memories", min=1, max=100)] = 10,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Finds memories that hold words of the query."""
    body = {"query": query, "kind": kind, "codex": codex, "cwd": working_directory(), "n": most}
    report = Daemon(socket).call("POST", "/v1/memories/search", body)
    if not report["memories"]:
        raise Failure(faults.NOT_FOUND, f"no memory holds words of {query!r}", "lore memory list shows all")
    output(report, found_page, as_json=as_json)


@app.command(epilog=given.examples("lore memory export notes/memories"))
def export(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="a folder; made where there is none")],
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Writes each memory as a text file, fit for version control. Files of memories that are forgotten are removed."""
    memories = Daemon(socket).call("GET", "/v1/memories")["memories"]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = {target / f"{one['kind']}-{one['id']}.md": as_file(one) for one in memories}
    old = [path for path in target.glob("*.md") if path not in files and is_exported(path)]
    for path, text in files.items():
        replace_with(path, text)
    for path in old:  # an import would bring it back
        path.unlink()
    report = {"exported": len(memories), "removed": len(old), "folder": str(target)}
    removed = f", {plural(len(old), 'file')} of forgotten ones removed" if old else ""
    done(report, f"{plural(len(memories), 'memory', 'memories')} in {target}{removed}", as_json=as_json)


@app.command("import", epilog=given.examples("lore memory import notes/memories"))
def import_(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="what lore memory export wrote")],
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Reads what export wrote, all or nothing. What is remembered already is not doubled."""
    files = sorted(Path(folder).glob("*.md"))
    if not files:
        raise Failure(faults.NOT_FOUND, f"{folder} holds no memories", "lore memory export DIR writes them")
    bodies = [from_file(path) for path in files]
    try:
        report = Daemon(socket).call("POST", "/v1/memories/import", {"memories": bodies})
    except Failure as failure:
        named = _PLACE.sub(lambda found: f"{files[int(found[2])]}: {found[1] or ''}", failure.message)
        raise Failure(failure.status, named, failure.hint or "nothing was imported") from None
    done(report, f"{report['imported']} new, {report['known']} known already", as_json=as_json)


def replace_with(path: Path, text: str) -> None:
    """A file that a kill or a full disk leaves as it was: a shorter one would be imported as a shorter memory."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(path)
    except OSError as fault:
        with suppress(OSError):
            part.unlink()
        raise OSError(fault.errno, fault.strerror, str(path)) from fault  # a write's own names no file


# -- pages


def page(report: Report) -> str:
    heads = ("id", "kind", "state", "codex", "trust", "made", "memory")
    return table(heads, [row(one) for one in report["memories"]])


def row(one: Report) -> tuple[str, ...]:
    state = f"{one['state']}, suspect" if one["suspect"] else one["state"]
    return one["id"], one["kind"], state, one["codex"] or "", f"{one['trust']:.2f}", day(one["created"]), one["micro"]


def review_page(report: Report) -> str:
    lines = [f"{one['id']}  {one['micro']}\n            {why(one)}" for one in report["memories"]]
    return "\n".join([*lines, "lore memory confirm ID, or lore memory retire ID"] if lines else [])


def why(one: Report) -> str:
    if one["suspect"]:
        return f"may be outdated: {one['suspect']}"
    if one["suggested"]:
        return f"its outcome may be {one['suggested']}; another one: lore memory outcome {one['id']} OUTCOME"
    if one["kind"] == "censor" and one["state"] == "active":
        return (
            f"triggered {one['activations']} times; confirm makes it block, lore memory rate {one['id']} down says no"
        )
    return f"{one['state']}, from {one['source']}"


def whole_page(report: Report) -> str:
    one = report["memory"]
    about = f"{one['subject']} {one['attribute']}".strip()
    rows = (
        ("memory", f"{one['id']}, {one['kind']}, {one['state']}"),
        ("about", ", ".join(filter(None, (about, one["codex"])))),
        ("made", f"{moment(one['created'])}, by {one['source']}"),
        ("trust", f"{one['trust']:.2f}, confidence {one['confidence']:.2f}, confirmed {one['confirmations']} times"),
        ("watches", f"{one['watches']}s for {one['trigger']!r}: {one['severity']}" if one["trigger"] else ""),
        ("shown", f"{plural(one['showings'], 'time')}, last {moment(one['used'])}" if one["showings"] else "never"),
        ("used by" if one["kind"] != "censor" else "broken by", plural(one["activations"], "answer")),
        ("judged", f"{plural(one['judged'], 'time')}, {one['effectiveness']:.0%} right" if one["judged"] else ""),
        ("outcome", one["outcome"] or ""),
        ("outdated", one["suspect"]),
        ("replaced by", one["successor"]),
        ("cites", ", ".join(place(each) for each in one["evidence"])),
    )
    return f"{facts([pair for pair in rows if pair[1]])}\n\n{one['text']}"


def found_page(report: Report) -> str:
    rows = [(one["id"], one["kind"], f"{one['score']:.2f}", one["summary"]) for one in report["memories"]]
    few = "" if report["enough"] else "\nnone of these is near enough to be shown to a model"
    return table(("id", "kind", "score", "memory"), rows) + few


def added_words(one: Report) -> str:
    """What became of what was added."""
    confirmed = one["confirmations"] > 0
    return f"{'confirmed' if confirmed else 'remembered'} {one['id']} ({one['kind']}, {one['state']}): {one['micro']}"


# -- files of export: a head of JSON lines, an empty line, the text


def as_file(one: Report) -> str:
    head = {name: one[name] for name in KEPT}
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}" for name, value in sorted(head.items())]
    return "\n".join([*lines, "", one["text"], ""])


def from_file(path: Path) -> dict[str, Any]:
    """The body of its memory. Raises Failure for a file that export did not write."""
    try:
        if not path.is_file():  # to read a pipe would wait for whoever writes to it
            raise OSError("it is no file")
        head, _, text = path.read_bytes().decode().partition("\n\n")
        body = {name: json.loads(value) for name, _, value in (line.partition(": ") for line in head.split("\n"))}
    except (OSError, ValueError, RecursionError) as error:
        raise Failure(
            faults.USAGE, f"{path} is no memory: {error}", "nothing was imported; move the file away"
        ) from None
    return body | {"text": text.removesuffix("\n"), "codex": body.get("codex") or "none", "imported": True}


def is_exported(path: Path) -> bool:
    """Whether an export wrote it: by its name, and what is in it."""
    if not _EXPORTED.fullmatch(path.name):
        return False
    try:
        return from_file(path).keys() >= {"kind", "text", "created"}
    except Failure:
        return False


# -- within


def route_with(asked: dict[str, str]) -> str:
    return f"/v1/memories?{urlencode(asked)}" if asked else "/v1/memories"


def changed(memory: str, body: dict[str, str], words: str, *, as_json: bool, socket: str | None) -> None:
    report = Daemon(socket).call("PATCH", f"/v1/memories/{route_part(memory, 'memory')}", body)
    one = report["memory"]
    done(report, f"{one['id']} {words.format(**one)}: {one['micro']}", as_json=as_json)


def cited(given_place: str) -> dict[str, Any]:
    """PATH, PATH:LINE, PATH:START-END or commit:HASH."""
    if given_place.startswith(_COMMIT):
        return {"path": "", "commit": given_place.removeprefix(_COMMIT)}
    found = _CITED.fullmatch(given_place)
    if found is None:
        hint = "PATH, PATH:LINE, PATH:START-END or commit:HASH"
        raise Failure(faults.USAGE, f"--cite {given_place!r} is no place", hint)
    start = int(found[2] or 0)
    return {"path": found[1], "start": start, "end": int(found[3] or start)}


def place(one: Report) -> str:
    if not one["path"]:
        return f"commit {one['commit'][:SHORT]}"
    return f"{one['path']}:{one['start']}-{one['end']}" if one["start"] else one["path"]


def asked_again(one: Report) -> None:
    """Raises Failure where nobody says yes."""
    if not is_terminal(sys.stdin):
        raise Failure(
            faults.USAGE, f"{one['id']} is a decision, which is kept", "lore memory forget ID --yes deletes it"
        )
    if not typer.confirm(f"delete the decision {one['micro']!r} for good?", err=True):
        raise Failure(faults.FAILED, "nothing was deleted")
