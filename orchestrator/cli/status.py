"""`lore status` and `lore stats cache`: what the daemon does now, and what its caches did. Pages are pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon
from orchestrator.cli.figures import count, duration, plural, size, table, work
from orchestrator.cli.terminal import output

Part = Mapping[str, Any]
QUOTER = "builtin:quoter"
REAL = "a real one: lore model get hf:OWNER/REPO/FILE.gguf, then lore model use FILE.gguf"
TIER_HOLDS = {"vram": "cells", "ram": "checkpoints", "disk": "checkpoints"}

stats_app = typer.Typer(no_args_is_help=True, help="What was reused, and what it saved.")


def status(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows model, memory, codices, conversations and queue."""
    output(Daemon(socket).call("GET", "/v1/status"), status_page, as_json=as_json)


@stats_app.callback()
def keep_group() -> None:
    """Keeps `cache` a command of its own while it is the only one."""


@stats_app.command()
def cache(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows hit rates and bytes of each tier, evictions, restores, drafts, and the time that reuse saved."""
    output(Daemon(socket).call("GET", "/v1/stats/cache"), cache_page, as_json=as_json)


# ---- the page of `lore status` ---------------------------------------------------------------------------------------


def status_page(now: Part) -> str:
    sections = (
        [top(now)],
        model_lines(now["model"]),
        [*engine_lines(now["engine"], now["queue"]), *embedding_lines(now.get("embedding"))],
        memory_lines(now["governor"]),
        pools(now["engine"].get("pools", ())),
        codices(now["codices"]),
        [f"formatter  {failure}" for failure in now.get("plugins", ())],
    )
    return "\n\n".join("\n".join(lines) for lines in joined(sections) if lines)


def joined(sections: tuple[list[str], ...]) -> Iterable[list[str]]:
    """The short facts stand together; tables stand apart."""
    top_line, model, engine, memory, *rest = sections
    return [[*top_line, *model, *engine, *memory], *rest]


def top(now: Part) -> str:
    talks = plural(now["sessions"], "conversation")
    return f"lorekeep   {now['version']}, {plural(len(now['codices']), 'codex', 'codices')}, {talks}"


def model_lines(model: Part) -> list[str]:
    window = model.get("window")
    lines = [f"model      {model['name']}" + (f", window {count(window)} tokens" if window else "")]
    told = [f"           {model['notice']}", f"           {REAL}"] if model.get("notice") else []
    return lines + (told if model["name"] == QUOTER else told[:1])


def engine_lines(engine: Part, queue: Part) -> list[str]:
    parts = [engine.get("state", "unknown"), device(engine), restarts(engine.get("restarts", 0))]
    lines = ["engine     " + ", ".join(part for part in parts if part)]
    if engine.get("reason"):
        lines.append(f"           {engine['reason']}")
    if engine.get("ranges") is False:
        lines.append("           this model's memory cannot be cut: tails are kept whole, or computed again")
    lines.append(f"queue      {running(engine, queue)}, {count(queue.get('waiting', 0))} waiting")
    if prefill := engine.get("prefill"):
        lines.append(f"           computing {computed(prefill['codex'])}")
    return lines


def running(engine: Part, queue: Part) -> str:
    """`3 running (1 answering, 2 computing a prompt)`."""
    words = f"{count(queue.get('running', 0))} running"
    if not engine.get("prefills"):
        return words
    return f"{words} ({count(engine['answering'])} answering, {count(engine['prefills'])} computing a prompt)"


def computed(codex: str) -> str:
    """What is computed by its codex; a floor's own name is a hash."""
    return f"the prefix of {codex}" if codex else "a prefix without a codex"


def embedding_lines(embedding: Part | None) -> list[str]:
    """Nothing where no model is configured: search by words is no fault."""
    if not embedding or not embedding["model"]:
        return []
    if embedding["fault"]:
        return [f"embedding  none: {embedding['fault']}"]
    lines = [f"embedding  {embedding['model']}, {count(embedding['dimensions'])} dimensions{takes(embedding)}"]
    return [*lines, *(f"           {embedding[why]}" for why in ("resting", "notice") if embedding.get(why))]


def takes(embedding: Part) -> str:
    """What is planned for it, and whether it is in the memory now."""
    if embedding.get("weights") is None:
        return ""
    where = f"{count(embedding['gpu_layers'])} layers on the GPU" if embedding["gpu_layers"] else "on the CPU"
    bytes_ = size(embedding["weights"] + embedding["buffers"])
    return f", {where}, {bytes_} planned, {'loaded' if embedding['loaded'] else 'not loaded now'}"


def device(engine: Part) -> str:
    name, layers = engine.get("device"), engine.get("gpu_layers")
    return f"on {name}, {layers} layers there" if name and name != "CPU" and layers else f"on {name}" if name else ""


def restarts(number: int) -> str:
    return f"restarted {plural(number, 'time')}" if number else ""


def memory_lines(governor: Part) -> list[str]:
    pressure = governor.get("pressure")
    words = [str(governor.get("level", "unknown"))]
    if pressure is not None:
        words.append(f"{100 * pressure:.0f} % of what may be used")
    if governor.get("kv_budget_bytes") is not None:
        words.append(f"{size(governor['kv_budget_bytes'])} of {governor['memory']} for KV")
        words.append(f"{count(governor['cells'])} cells")
    if governor.get("embedding_bytes"):
        words.append(f"{size(governor['embedding_bytes'])} for the embedding model")
    lines = [f"memory     {', '.join(words)}"]
    if governor.get("power", "normal") != "normal":
        lines.append(f"power      {governor['power']}")
    if governor.get("unplanned"):
        lines.append(f"           nothing can be planned: {governor['unplanned']}")
    return lines + [f"sensor     {fault}" for fault in governor.get("faults", ())]


def pools(found: Iterable[Part]) -> list[str]:
    """Cells in tokens: free + reserved + evictable + leased = size."""
    heads = ("pool", "cells", "free", "reserved", "evictable", "leased", "bytes")
    rows = [
        (short(pool["name"]), *(count(pool[name]) for name in ("size", *heads[2:6])), size(pool["bytes"]))
        for pool in found
    ]
    return [table(heads, rows)] if rows else []


def short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def codices(found: Sequence[Part]) -> list[str]:
    rows = [(codex["name"], tier(codex), state(codex), files(codex), roots(codex)) for codex in found]
    notes = [f"{codex['name']}: {codex['fresh_notice']}" for codex in found if codex.get("fresh_notice")]
    notes += [f"{codex['name']}: {identity_fault(codex)}" for codex in found if identity_fault(codex)]
    notes += [f"{codex['name']}: {codex['embedding']['fault']}" for codex in found if faulty(codex.get("embedding"))]
    notes += [f"{codex['name']}: {unembeddable(codex)}" for codex in found if unembeddable(codex)]
    return [table(("codex", "tier", "state", "files", "root"), rows), *notes] if rows else []


def unembeddable(codex: Part) -> str:
    refused = (codex.get("embedding") or {}).get("refused", 0)
    return f"{plural(refused, 'text')} cannot be embedded: found by words alone" if refused else ""


def identity_fault(codex: Part) -> str:
    return str((codex.get("identity") or {}).get("fault", ""))


def faulty(embedding: Part | None) -> bool:
    return bool(embedding and embedding["fault"])


def tier(codex: Part) -> str:
    name = codex.get("tier")
    tokens = codex.get("floor_tokens") or codex.get("tier_tokens")
    return "not raised yet" if not name else f"{name}, {count(tokens)} tokens" if tokens is not None else name


def state(codex: Part) -> str:
    prefill = codex.get("prefill")
    parts = [str(codex.get("state") or ""), str(codex.get("fresh") or "")]
    if codex.get("amendments"):
        parts.append(plural(codex["amendments"], "amendment"))
    if prefill and prefill["total"]:
        parts.append(work("computing", prefill["done"], prefill["total"], None, prefill.get("left_s")))
    if (codex.get("identity") or {}).get("preparing"):
        parts.append("its new identity waits for an idle moment")
    embedding = codex.get("embedding")
    if embedding and embedding["embedded"] < embedding["texts"]:
        parts.append(f"embedding {100 * embedding['embedded'] // embedding['texts']} %")
    return ", ".join(part for part in parts if part)


def roots(codex: Part) -> str:
    """Two, or the first and how many more there are."""
    first, *more = codex.get("roots") or [codex.get("root", "")]
    return f"{first} +{len(more)}" if len(more) > 1 else ", ".join([first, *more])


def files(codex: Part) -> str:
    return count(codex["files"]) if codex.get("files") is not None else ""


# ---- the page of `lore stats cache` ----------------------------------------------------------------------------------


def cache_page(stats: dict[str, Any]) -> str:
    tokens = stats["tokens"]
    rows = [tier_row(name, stats["tiers"][name]) for name in ("vram", "ram", "disk")]
    rows.append(("computed", "", count(tokens["computed"]), "", ""))
    lines = [
        f"{count(tokens['cached'])} of {count(tokens['prompt'])} prompt tokens cached, "
        f"about {duration(stats['saved_ms'] / 1000)} saved (at {stats['ms_per_token']:.2f} ms a token)",
        "",
        table(("where", "what", "tokens", "hits", "bytes"), rows),
        "",
        *traffic(stats),
    ]
    return "\n".join([*lines, stats["note"]] if stats["note"] else lines)


def tier_row(name: str, tier: dict[str, Any]) -> tuple[str, ...]:
    return tier["memory"], TIER_HOLDS[name], count(tier["tokens"]), percent(tier["hit_rate"]), size(tier["bytes"])


def traffic(stats: dict[str, Any]) -> list[str]:
    out, back, drafts, faults = stats["evictions"], stats["restores"], stats["drafts"], stats["faults"]
    lines = [
        f"checkpoints  {plural(stats['segments'], 'segment')}",
        f"evicted      {count(out['vram_tokens'])} tokens of cells, {plural(out['ram_segments'], 'segment')} of RAM, "
        f"{count(out['disk_segments'])} of disk",
        f"restored     {plural(back['ram_segments'], 'segment')} from RAM, {count(back['disk_segments'])} from disk, "
        f"{size(back['bytes'])}",
        f"drafts       {count(drafts['accepted'])} of {count(drafts['drafted'])} tokens accepted"
        + (f" ({percent(drafts['rate'])})" if drafts["rate"] is not None else ""),
    ]
    if any(faults.values()):
        harm = f"{count(faults['damaged'])} damaged, {count(faults['write_failures'])} not written"
        lines.append(f"faults       {plural(faults['misses'], 'miss', 'misses')}, {harm}")
    if faults["failed_steps"]:
        lines.append(f"             {plural(faults['failed_steps'], 'step')} failed: its pool was made anew")
    if faults["broken_pools"]:
        lines.append(
            f"             {plural(faults['broken_pools'], 'pool')} given up: its cells were not what they should be"
        )
    return lines


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
