"""`lore load` and `lore codex`: directories, files or git URLs as codices. The daemon works; the command watches."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from textwrap import indent
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from orchestrator.cli import floor_files
from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Event, Failure, route_part, told_of_waiting
from orchestrator.cli.footer import code_state
from orchestrator.cli.purge import Yes, insist
from orchestrator.cli.search import show_symbols
from orchestrator.cli.status import files, notes_of, roots, state
from orchestrator.cli.terminal import (
    Report,
    clear_progress,
    count,
    done,
    duration,
    facts,
    is_terminal,
    listed,
    note,
    output,
    plural,
    progress,
    result_json,
    result_page,
    size,
    step,
    table,
)
from orchestrator.wire import faults
from orchestrator.wire.places import is_url, path_of

app = typer.Typer(
    no_args_is_help=True,
    help="What is loaded.\n\n`lore load` loads a codex, `lore load --cancel NAME` stops that.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="the codex")]
OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="the codex; default: the only one")]
Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH]...", help="directories, files, git URLs; default: where you are"),
]
LoadName = Annotated[str | None, given.option("--name NAME", "the codex's name; default: the path's last part")]
Follow = Annotated[bool | None, given.option("--watch/--no-watch", "follow changes on disk")]
Include = Annotated[list[str] | None, given.option("--include GLOB", "take only files that match")]
Exclude = Annotated[list[str] | None, given.option("--exclude GLOB", "leave out files that match")]
Revision = Annotated[str | None, given.option("--revision REV", "a branch, tag or commit instead of the files on disk")]
Secrets = Annotated[bool, given.option("--with-secrets", "load also what holds keys or tokens")]
Replace = Annotated[bool, given.option("--replace", "take the name from the source that has it now")]
Tier = Annotated[str | None, given.option("--tier COVERAGE", "full, skeleton+hot, map or none; auto decides")]
DryRun = Annotated[bool, given.option("--dry-run", "count and decide, load nothing")]
Wait = Annotated[bool, given.option("--wait", "return only when the prefix is in the cache")]
Cancel = Annotated[str | None, given.option("--cancel NAME", "stop the load of this codex")]

STOPPED = {
    "load": "stopped the load of {name}; the next load continues from what was read",
    "floor": "{name} is loaded; the rest of its prefix is no longer computed until a question needs it",
}


def load(
    paths: Paths = None,
    name: LoadName = None,
    revision: Revision = None,
    watch: Follow = None,
    include: Include = None,
    exclude: Exclude = None,
    with_secrets: Secrets = False,
    replace: Replace = False,
    tier: Tier = None,
    dry_run: DryRun = False,
    wait: Wait = False,
    cancel: Cancel = None,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Loads directories, files or a git URL under one name, or brings a loaded codex up to date."""
    daemon = Daemon(socket)
    if cancel is not None:
        stopped = daemon.call("POST", f"/v1/codices/{route_part(cancel)}/cancel")
        done(stopped, STOPPED[stopped["what"]].format(name=cancel), as_json=as_json)
        return
    first, *more = [load_source(path) for path in paths or ["."]]
    body = {
        "path": first,
        "more": more,
        "name": name,
        "revision": revision,
        "secrets": with_secrets,
        "replace": replace,
        "watch": watch,
        "include": include or [],
        "exclude": exclude or [],
        "tier": tier,
        "dry_run": dry_run,
        "wait": wait,
    }
    try:
        Watch(socket, as_json).until_loaded(daemon.stream("/v1/codices", body))
    except Failure as failure:
        if failure.code != "files_wanted":
            raise
        send(socket, body, as_json=as_json)


def send(socket: str | None, body: Report, *, as_json: bool) -> None:
    """Loads what the daemon opens no path of for this user."""
    from orchestrator.cli import sending

    sender = sending.sender_of(socket, body)
    Watch(socket, as_json).until_loaded(sending.load_events(sender, body))
    if body["watch"]:
        sending.follow(sender)


@dataclass
class Watch:
    """Watches a load of the daemon behind `socket`."""

    socket: str | None
    as_json: bool
    name: str = ""  # of what is loaded, as the daemon reports it

    def until_loaded(self, events: Iterator[Event]) -> dict[str, Any]:
        """The codex. Ctrl-C ends the watching; the load only where somebody says so."""
        try:
            with told_of_waiting(self.socket):
                codex = self.codex_of(events)
        except KeyboardInterrupt:
            name = self.name or "NAME"
            note(f"\nthe daemon goes on loading; `lore status` shows it, `lore load --cancel {name}` stops it")
            if self.name and may_be_asked():
                with suppress(typer.Abort):  # a second Ctrl-C says no
                    self.offer_to_stop()
            raise
        if not self.as_json:
            show_loaded(codex)
        return codex

    def offer_to_stop(self) -> None:
        if typer.confirm("stop it now?", default=False, err=True):
            stopped = Daemon(self.socket).call("POST", f"/v1/codices/{route_part(self.name)}/cancel")
            note(STOPPED[stopped["what"]].format(name=self.name))

    def codex_of(self, events: Iterator[Event]) -> dict[str, Any]:
        codex: dict[str, Any] | None = None
        for event in events:
            if event.aside:
                continue
            if self.as_json:
                result_json(event.data)
            if event.data.get("event") == "loaded":
                codex = event.data.get("codex", {})
            else:
                self.name = event.data.get("name", self.name)
            if codex is None and not self.as_json:
                progress(step(event.data))
        clear_progress()
        if codex is None:
            raise Failure(faults.FAILED, "the daemon broke off the load", "load again; what was done is kept")
        return codex


def may_be_asked() -> bool:
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


@app.command("list")
def list_(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists the codices."""
    report = Daemon(socket).call("GET", "/v1/codices")
    output(report, codices_page, as_json=as_json, empty="none is loaded; lore load PATH")


@app.command()
def show(name: OptionalName = None, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows one codex."""
    daemon = Daemon(socket)
    report = daemon.call("GET", f"/v1/codices/{route_part(only(daemon) if name is None else name)}")
    if as_json:
        result_json(report)
        return
    codex = report["codex"]
    since = (
        ("taken in", taken_in(codex)),
        ("because", codex.get("generation_reason")),
        ("identity", identity(codex)),
        ("state", state(codex)),
    )
    show_loaded(codex, since)
    for notice in notes_of(codex):
        note(notice)


@app.command("outline")
def outline_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="a file of the codex, by its path or the end of it")],
    codex: Annotated[str | None, given.option("-c, --codex NAME", given.WHICH)] = None,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Lists what a file of a codex defines; piped, one path:line:text each."""
    show_symbols(socket, "outline", file, codex, as_json=as_json)


def only(daemon: Daemon) -> str:
    """The name of the one codex that is loaded. Raises Failure where it is not the only one."""
    names = [codex["name"] for codex in daemon.call("GET", "/v1/codices")["codices"]]
    if not names:
        raise Failure(faults.USAGE, "no codex is loaded", "load one with: lore load PATH")
    if len(names) > 1:
        raise Failure(faults.USAGE, "several codices are loaded and none is named", f"name one: {listed(*names)}")
    return str(names[0])


@app.command()
def reload(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Loads a codex anew from its directory."""
    Watch(socket, as_json).until_loaded(Daemon(socket).stream(f"/v1/codices/{route_part(name)}/reload"))


app.command("export", epilog=given.examples("lore codex export work work.floor"))(floor_files.export)
app.command("import", epilog=given.examples("lore codex import work.floor"))(floor_files.import_)


@app.command()
def drop(
    name: Name,
    memories: Annotated[bool, given.option("--memories", "delete your memories of it, too; asks first")] = False,
    yes: Yes = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Forgets a codex. The directory is not touched, and memories stay without --memories."""
    daemon, route = Daemon(socket), f"/v1/codices/{route_part(name)}"
    if not memories:
        done(daemon.call("DELETE", route), f"dropped {name}{stays_there(daemon)}", as_json=as_json)
        return
    mine = daemon.call("GET", f"/v1/memories?{urlencode({'codex': name})}")["memories"]
    told = plural(len(mine), "memory", "memories")
    if mine:
        insist(f"drop {name} and delete {told} of it for good?", yes=yes)
    report = daemon.call("DELETE", f"{route}?memories=1")
    gone = plural(report.get("memories", 0), "memory", "memories")
    done(report, f"dropped {name}, and {gone} of it{stays_there(daemon)}", as_json=as_json)


def stays_there(daemon: Daemon) -> str:
    """What a drop leaves on object storage, which others read; '' where the archive is in a folder."""
    place = daemon.archive_place()
    return (
        f"; its archive at {place} stays, others may read it: delete it there with the storage's own tools"
        if place
        else ""
    )


# ---- words -----------------------------------------------------------------------------------------------------------


def codices_page(report: Report) -> str:
    rows = [(codex["name"], coverage(codex), files(codex), roots(codex)) for codex in report["codices"]]
    return table(("name", "coverage", "files", "root"), rows)


def coverage(codex: Report) -> str:
    """The one that is resident, or why none is: `none` is one too."""
    return codex.get("tier") or codex.get("fresh") or "not built yet"


def identity(codex: Report) -> str:
    """`lorekeep 1a2b3c4d5e6f, 6f5e4d3c2b1a is being prepared`."""
    found = codex.get("identity") or {}
    if not found:
        return ""
    coming = f", {found['preparing']} is being prepared" if found["preparing"] else ""
    fault = f"; {found['fault']}" if found["fault"] else ""
    return f"{found['name']} {found['version']}{coming}{fault}"


def taken_in(codex: Report) -> str:
    """`generation 3, main@1a2b3c4 + 1 changed, 1 removed file`."""
    since = {"amendments": codex.get("changed_files", ()), "removed": codex.get("removed_files", ())}
    return listed(f"generation {codex['generation']}", code_state({**codex, **since}))


def show_loaded(codex: Report, more: Sequence[tuple[str, str]] = ()) -> None:
    result_page(summary(codex, more))
    if prefill := codex.get("prefill"):
        note(being_computed(prefill.get("left_s")))
    for notice in codex.get("notices") or ():
        note(notice)


def being_computed(left_s: float | None) -> str:
    time = f", {duration(left_s)} left" if left_s is not None else ""
    return f"computing the codex{time}; a first question waits for it, as `lore load --wait` does"


def summary(codex: Report, more: Sequence[tuple[str, str]] = ()) -> str:
    """Counts, tokens per coverage, the coverage and why."""
    skipped, estimated = codex.get("skipped", {}), codex.get("estimated") or ()
    reasons = listed(*(f"{count(number)} {reason}" for reason, number in sorted(skipped.items())))
    # A folder that is left out counts once, whatever it holds.
    left_out = plural(sum(skipped.values()), "file or folder", "files or folders")
    tokens = (
        f"{name} {'≈' if name in estimated else ''}{count(number)}"
        for name, number in codex.get("tokens", {}).items()
        if number is not None
    )
    roots = listed(*(codex.get("roots") or [codex.get("root", "")]))
    rows = (
        ("skipped", f"{left_out}: {reasons}" if skipped else ""),
        ("tokens", listed(*tokens, before_changes(codex.get("amended_tokens", 0)))),
        ("coverage", coverage_and_why(codex)),
        ("", codex.get("hint", "")),
        ("disk", size(codex["disk_bytes"]) if codex.get("disk_bytes") else ""),
        ("KV", size(codex["kv_bytes"]) if codex.get("kv_bytes") else ""),
        ("archive", plural(codex["indexed_chunks"], "chunk") if codex.get("indexed_chunks") else ""),
        *more,
    )
    head = f"{codex.get('name', '')}: {plural(codex.get('files', 0), 'file')} of {roots}"
    return "\n".join([head, indent(facts(rows, 10), "  ")])


def before_changes(tokens: int) -> str:
    return f"before the changes, which take {count(tokens)}" if tokens else ""


def coverage_and_why(codex: Report) -> str:
    name, reason = codex.get("tier", ""), codex.get("reason", "")
    return reason if reason.startswith(name) else f"{name}: {reason}".rstrip(": ")


def load_source(path: str) -> str:
    """A path in full, or a git URL as it is. Raises Failure for an empty one, which would be the folder that one is in."""
    if not path:
        raise Failure(faults.USAGE, "a path is empty", "lore load . loads the folder that you are in")
    return path if is_url(path) else absolute(path)


def absolute(path: str) -> str:
    """Links in it are the daemon's to resolve."""
    try:
        return os.path.abspath(path_of(path))  # noqa: PTH100 - resolve() would follow links
    except FileNotFoundError:
        raise Failure(faults.USAGE, "the working directory is gone", "change to one that exists") from None
