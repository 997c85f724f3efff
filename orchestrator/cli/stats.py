"""`lore stats`: what the caches did, and how well memories work. Pages are pure."""

from collections.abc import Iterator
from typing import Annotated

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon
from orchestrator.cli.terminal import Report, count, duration, facts, listed, note, output, plural, result, size, table

CACHE_TIERS = {"vram": "pools", "disk": "checkpoints"}
PERCENT = frozenset({"relevance", "budget_use", "precision", "confirmed"})
TITLES = {
    "relevance": "relevance",
    "budget_use": "budget used",
    "refreshes": "refreshes",
    "precision": "precision",
    "cold_build_ms": "cold build",
    "growth": "growth",
    "confirmed": "confirmed",
    "brier": "Brier score",
    "overconfidence": "confidence",
}
NO_CLIENT = "no client has sent a whole conversation since the model was loaded"
NOT_YET = "not enough yet"
NO_RULE = "no rule has fired in the turns that are traced"

app = typer.Typer(no_args_is_help=True, help="What was reused, and how well memories work.")


@app.command()
def cache(
    clients: Annotated[
        bool, given.option("--clients", "clients that send whole conversations, and what each lost")
    ] = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows hit rates and bytes of each cache tier, evictions, restores, drafts, and the time that reuse saved."""
    if clients:
        output(Daemon(socket).call("GET", "/v1/stats/clients"), clients_page, as_json=as_json, empty=NO_CLIENT)
        return
    output(Daemon(socket).call("GET", "/v1/stats/cache"), cache_page, as_json=as_json)


@app.command()
def memory(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows how well your memories work: each figure with its target, of the last 30 days."""
    output(Daemon(socket).call("GET", "/v1/stats/memory"), memory_page, as_json=as_json)


@app.command()
def relevance(
    suggest: Annotated[bool, given.option("--suggest", "print a patch to context-relevance.json; not applied")] = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows for each rule of relevance how often it fired, what it saved, and how often that was regretted."""
    report = Daemon(socket).call("GET", f"/v1/stats/relevance{'?suggest=1' if suggest else ''}")
    if not suggest or as_json:
        output(report, relevance_page, as_json=as_json, empty=NO_RULE)
        return
    for change in report.get("changes", ()):
        note(change)
    result(report["patch"]) if report.get("patch") else note("nothing to change: no rule fired often enough for it")


# ---- the page of `lore stats cache` ----------------------------------------------------------------------------------


def cache_page(stats: Report) -> str:
    tokens = stats["tokens"]
    rows = [tier_row(what, stats["tiers"][name]) for name, what in CACHE_TIERS.items()]
    computed = None if stats["hit_rate"] is None else 1 - stats["hit_rate"]
    rows.append(("computed", count(tokens["computed"]), percent(computed), ""))
    saved = (
        f"{count(tokens['cached'])} of {count(tokens['prompt'])} prompt tokens cached, "
        f"about {duration(stats['saved_ms'] / 1000)} saved (at {stats['ms_per_token']:.2f} ms a token)"
    )
    parts = [saved, table(("prompt tokens", "tokens", "share", "bytes now"), rows), facts(traffic(stats), 13)]
    return "\n\n".join(parts) + (f"\n{stats['note']}" if stats["note"] else "")


def tier_row(what: str, tier: Report) -> tuple[str, ...]:
    return f"from {what} ({tier['memory']})", count(tier["tokens"]), percent(tier["hit_rate"]), size(tier["bytes"])


def traffic(stats: Report) -> Iterator[tuple[str, str]]:
    out, back, drafts, faults = stats["evictions"], stats["restores"], stats["drafts"], stats["faults"]
    yield "pools", f"{plural(out['vram_tokens'], 'token')} evicted"
    restored = f"{count(back['disk_segments'])} restored ({size(back['bytes'])})"
    kept = f"{plural(stats['segments'], 'segment')} kept"
    yield "checkpoints", listed(kept, restored, f"{count(out['disk_segments'])} evicted")
    if drafts["drafted"]:
        accepted = f"{count(drafts['accepted'])} of {count(drafts['drafted'])} tokens accepted"
        yield "drafts", f"{accepted} ({percent(drafts['rate'])})"
    if any(faults.values()):
        harm = f"{count(faults['damaged'])} damaged, {count(faults['write_failures'])} not written"
        yield "faults", f"{plural(faults['misses'], 'miss', 'misses')}, {harm}"
    if faults["failed_steps"]:
        yield "", f"{plural(faults['failed_steps'], 'step')} failed: its pool was made anew"
    if faults["broken_pools"]:
        yield "", f"{plural(faults['broken_pools'], 'pool')} given up: its cells were not what they should be"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


# ---- the page of `lore stats cache --clients` ------------------------------------------------------------------------


def clients_page(stats: Report) -> str:
    """A row for each, and under the table where each that lost something left its last prompt."""
    heads = ("client", "prompts", "left the cache", "tokens computed again", "time")
    rows = [client_row(one) for one in stats["clients"]]
    places = [client_place(one["client"], one["last"]) for one in stats["clients"] if one["last"]]
    return "\n\n".join([table(heads, rows), *places])


def client_row(one: Report) -> tuple[str, ...]:
    return one["client"], *(count(one[name]) for name in ("prompts", "departures", "tokens")), duration(one["seconds"])


def client_place(client: str, last: Report) -> str:
    """Texts of a prompt are printed as Python writes strings: they may hold anything."""
    where = f"{client}: {last['why']}, at token {count(last['token'])}"
    return f"{where}\n  was {last['was']!r}\n  now {last['now']!r}"


# ---- the page of `lore stats memory` ---------------------------------------------------------------------------------


def memory_page(stats: Report) -> str:
    heads = ("figure", "value", "target", "", "what it is")
    return table(heads, [memory_row(one) for one in stats["figures"]])


def memory_row(one: Report) -> tuple[str, ...]:
    few = "too few yet" if one["measured"] and target(one) else ""
    verdict = {True: "reached", False: "missed", None: few}[one["reached"]]
    said = f"{one['says']} ({count(one['measured'])} measured)" if one["measured"] else one["says"]
    return TITLES.get(one["name"]) or str(one["name"]), value(one), target(one), verdict, said


def value(one: Report) -> str:
    if one["value"] is None:
        return NOT_YET
    if one["name"] == "overconfidence":
        way = "over" if one["value"] > 0 else "under"
        return f"{abs(100 * one['value']):.0f} % {way}" if round(one["value"], 2) else "as sure as right"
    return shown(one["name"], one["value"])


def shown(name: str, number: float) -> str:
    if name in PERCENT:
        return f"{100 * number:.0f} %"
    return f"{number:.0f} ms" if name.endswith("_ms") else f"{number:.2f}"


def target(one: Report) -> str:
    least, most, name = one["least"], one["most"], one["name"]
    if least is not None and most is not None:
        return f"{shown(name, least)} to {shown(name, most)}"
    return f"> {shown(name, least)}" if least is not None else f"< {shown(name, most)}" if most is not None else ""


# ---- the page of `lore stats relevance` ------------------------------------------------------------------------------


def relevance_page(stats: Report) -> str:
    heads = ("variant", "rule", "node", "strength", "fired", "recovered", "tokens saved", "regretted")
    return table(heads, [rule_row(one) for one in stats["rules"]])


def rule_row(one: Report) -> tuple[str, ...]:
    counted = (count(one[name]) for name in ("fired", "recovered", "saved"))
    regretted = f"{count(one['regretted'])} ({percent(one['regretted'] / one['fired'])})"
    return one["variant"], one["rule"], one["node"], one["strength"], *counted, regretted
