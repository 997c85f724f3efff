"""`lore trace` and `lore feedback`: what the model saw in a turn, and what you think of its answer."""

import sys
from typing import Annotated
from urllib.parse import urlencode

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.terminal import (
    Report,
    count,
    done,
    facts,
    laid,
    moment,
    output,
    plural,
    result,
    size,
    table,
    width_of,
)
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="What the model saw in a turn.")
WHICH = "the trace: its id, the beginning of it, or last"
Trace = Annotated[str, typer.Argument(metavar="TRACE", help=WHICH)]
NAMED_AT_MOST = 8  # items of a block


@app.command("list")
def list_(
    most: Annotated[int, given.option("-n N", "most traces", min=1, max=1000)] = 20,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Lists them, the newest first."""
    report = Daemon(socket).call("GET", f"/v1/traces?n={most}")
    output(report, page, as_json=as_json, empty='none yet; lore ask "…" leaves one')


@app.command()
def show(
    trace: Trace,
    prompt: Annotated[bool, given.option("--prompt", "print the exact text that the model got")] = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows what was asked, what the model saw, and what it answered."""
    report = Daemon(socket).call("GET", f"/v1/traces/{route_part(trace, 'trace')}{'?prompt=1' if prompt else ''}")
    if prompt and not as_json:
        result("".join(one["text"] for one in report["trace"]["prompt"]), end="")
        return
    columns = width_of(sys.stdout)
    output(report, lambda one: whole_page(one, columns), as_json=as_json, as_it_is=True)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help=WHICH)],
    after: Annotated[str, typer.Argument(metavar="B", help=WHICH)],
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows what the prompt of B has otherwise than that of A, block by block, and where they part."""
    asked = urlencode({"to": after})
    report = Daemon(socket).call("GET", f"/v1/traces/{route_part(before, 'trace')}/diff?{asked}")
    output(report, diff_page, as_json=as_json, as_it_is=True)


def feedback(
    trace: Trace,
    vote: Annotated[str, typer.Argument(metavar="up|down", help="whether the answer was right")],
    why: Annotated[str, given.option("--note TEXT", "why")] = "",
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Says whether an answer was right; memories that it was shown gain or lose trust."""
    if vote not in ("up", "down"):
        raise Failure(faults.USAGE, f"{vote!r} is neither up nor down")
    route = f"/v1/traces/{route_part(trace, 'trace')}/feedback"
    report = Daemon(socket).call("POST", route, {"vote": vote, "note": why})
    done(report, voted_words(report), as_json=as_json)


# -- pages


def voted_words(report: Report) -> str:
    """What became of a vote, with what it proposes and what to do with that."""
    told = f"{report['trace']['id']} has your vote: {report['trace']['vote']}"
    one = report.get("proposed")
    if one is None:
        return told
    confirm = f"no model is shown it before lore memory confirm {one['id']}"
    return f"{told}\n{one['state']} {one['id']}: {one['text']}\n{confirm}"


def page(report: Report) -> str:
    heads = ("id", "when", "codex", "session", "vote", "question")
    return table(heads, [row(one) for one in report["traces"]])


def row(one: Report) -> tuple[str, ...]:
    named = (one["codex"] or "none", one["session"] or "", one["vote"] or "")
    return one["id"][:12], moment(one["created"]), *named, one["title"]


def whole_page(report: Report, columns: int | None = None) -> str:
    """`columns`: of the terminal, for what is ours; question and answer are as they were written."""
    one = report["trace"]
    lore = one["lore"]
    blocks = [(each["kind"], count(each["tokens"]), count(each["cached"])) for each in lore["blocks"]]
    vote = f"{one['vote']}: {one['note']}" if one["note"] else one["vote"] or ""
    head = facts(
        (
            ("trace", f"{one['id']}, {moment(one['created'])}"),
            ("codex", one["codex"] or "none"),
            ("session", one["session"] or ""),
            ("strategy", strategy_words(lore["strategy"])),
            ("prompt", f"{count(lore['prompt']['tokens'])} tokens, {size(one['prompt_bytes'])}; --prompt prints it"),
            ("broke at", broke(lore["broke_at"])),
            ("memories", ", ".join(one["memories"])),
            ("relevance", relevance(one["relevance"])),
            *(("", firing(each)) for each in one["relevance"]["fired"]),
            ("vote", vote),
        )
    )
    table_of_blocks = table(("block", "tokens", "cached"), blocks)
    return f"{laid(head, columns)}\n\n{table_of_blocks}\n\nuser: {one['question']}\n\nassistant: {one['answer']}"


def strategy_words(strategy: Report) -> str:
    """Most reasons begin with the name."""
    name, reason = strategy["name"], strategy["reason"]
    return str(reason) if reason.startswith(name) else f"{name}: {reason}"


def relevance(found: Report) -> str:
    named = f", variant {found['variant']}" if found["variant"] else ""
    left_out = f"without {', '.join(sorted(found['excluded']))}" if found["excluded"] else "nothing is left out"
    return f"{found['mode']}{named}: {left_out}; {count(found['tokens'])} tokens, estimated"


def firing(one: Report) -> str:
    """`facts: masks.ACKNOWLEDGE kept out 40 tokens (1 memory); regretted by the answer`."""
    missed = f" ({plural(len(one['missed']), 'memory', 'memories')})" if one["missed"] else ""
    if one["recovered"]:
        return f"{one['node']}: {one['rule']} held, and it was fetched all the same"
    regret = f"; regretted by the {one['regretted']}" if one["regretted"] else ""
    return f"{one['node']}: {one['rule']} kept out {count(one['tokens'])} tokens{missed}{regret}"


def broke(found: Report | None) -> str:
    return "" if found is None else f"{found['block']}, {found['item']}: {found['why']}"


def diff_page(report: Report) -> str:
    found = report["broke_at"]
    if found is None:
        return "the prompts are the same"
    parted = f"{found['block']}, {found['item']}; {plural(found['characters'], 'character')} before it are the same"
    lines = [line for block in report["blocks"] for line in block_lines(block)]
    return "\n".join([f"they part at {parted}", *lines])


def block_lines(block: Report) -> list[str]:
    if block["same"]:
        return [f"{block['block']:<12}the same, {plural(block['after'], 'character')}"]
    grew = f"{count(block['before'])} to {plural(block['after'], 'character')}"
    kinds = [f"{kind} {listed_items(block[kind])}" for kind in ("changed", "added", "removed") if block[kind]]
    return [f"{block['block']:<12}{grew}", *(f"{'':<12}{words}" for words in kinds)]


def listed_items(names: list[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more:,} more" if more > 0 else "")
