"""`lore status`: what the daemon does now. The pages are pure: a short one for people, and with `-v` all of it."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from textwrap import fill, indent
from typing import Annotated, TextIO

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon
from orchestrator.cli.terminal import (
    Report,
    count,
    facts,
    listed,
    output,
    plural,
    seconds,
    size,
    step,
    table,
    width_of,
    work,
)
from orchestrator.wire.places import QUOTER

Verbose = Annotated[bool, given.option("-v, --verbose", "all of it: caches, leases, plans and sensors")]
REAL = "a real one: lore up; a file at hand: lore model use FILE.gguf"
WIDE, NARROW = 10, 5  # characters of a bar
QUESTION = 64  # tokens of a short question, with what stands around it
WITHOUT_ENGINE = (  # where servers compute
    "checkpoints, pauses, lore model use, calls that are required, embeddings, log-probabilities, drafts of ours"
)
POOL = ("size", "free", "reserved", "evictable", "leased")  # tokens: all but the first add up to it


def status(verbose: Verbose = False, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows the model, and of each codex how much of it is in the memory and when it answers."""
    now = Daemon(socket).call("GET", "/v1/status")
    columns, full = width_of(sys.stdout), can_draw(sys.stdout)
    output(now, whole_page if verbose else lambda one: short_page(one, columns, full=full), as_json=as_json)


def short_page(now: Report, columns: int | None = None, *, full: bool = True) -> str:
    """What a person asks for: which model, what is ready, what is wrong. `columns`: of the terminal; none where there is
    none. `full`: blocks can be drawn."""
    rows = [
        heading(now),
        *model_facts(now["model"]),
        *(engine_facts(now["engine"], now["queue"]) if is_busy_or_ill(now) else server_facts(now["engine"])),
        *embedding_faults(now.get("embedding")),
        *archive_facts(now.get("archive"), short=True),
        *memory_facts(now["governor"], short=True),
    ]
    lines = [codex_lines(codex, now, columns, full=full) for codex in now["codices"]]
    return "\n\n".join(filter(None, [facts(rows), "\n".join(lines), faults_of(now)]))


def whole_page(now: Report) -> str:
    rows = [
        heading(now),
        *model_facts(now["model"]),
        *engine_facts(now["engine"], now["queue"]),
        *embedding_facts(now.get("embedding")),
        *archive_facts(now.get("archive")),
        ("encryption", f"by the key of {key}" if (key := now.get("encrypted", "off")) != "off" else ""),
        *memory_facts(now["governor"]),
        *sensor_facts(now["governor"].get("sensors")),
        *estimate_facts(now["governor"].get("estimates", ())),
    ]
    parts = [facts(rows), pools(now["engine"].get("pools", ())), codices(now["codices"]), faults_of(now)]
    return "\n\n".join(filter(None, parts))


def heading(now: Report) -> tuple[str, str]:
    held, talks = plural(len(now["codices"]), "codex", "codices"), plural(now["sessions"], "session")
    return "lorekeep", f"{now['version']}, {held}, {talks}"


def faults_of(now: Report) -> str:
    gate = f"{fault}; everything is fetched for every turn" if (fault := now.get("relevance")) else ""
    return facts([*(("plug-in", failure) for failure in now.get("plugins", ())), ("relevance", gate)])


def is_busy_or_ill(now: Report) -> bool:
    engine, queue = now["engine"], now["queue"]
    return bool(
        engine.get("state") != "ready"
        or engine.get("reason")
        or engine.get("restarts")
        or any(server["state"] != "up" for server in engine.get("servers") or ())
        or engine.get("ranges") is False
        or queue.get("running")
        or queue.get("waiting")
    )


# ---- a codex in a line -----------------------------------------------------------------------------------------------


def codex_lines(codex: Report, now: Report, columns: int | None, *, full: bool) -> str:
    """`demo  ████████░░  6 min left`, and below it what is wrong with it; in several lines where it is too long."""
    share, words = readiness(codex, now)
    said = listed(words, *unusual(codex))
    drawn = bar(share, NARROW if columns is not None and columns < 40 else WIDE, full=full)
    line = f"{codex['name']}  {drawn}  {said}"
    if columns is not None and len(line) > columns:
        line = f"{codex['name']}  {drawn}\n{indent(fill(said, max(10, columns - 2)), '  ')}"
    return "\n".join([line, *(f"  {note}" for note in notes_of(codex))])


def readiness(codex: Report, now: Report) -> tuple[float, str]:
    """The share of its prefix that is in the memory, 0 to 1, and when it can answer.

    1. It is being computed: how long that still takes.
    2. It has no prefix yet: how far its load is, or else what it waits for.
    3. A server has it: what is in its memory only its answers tell.
    4. The model is out of the memory: why.
    5. All of it is there: what a short question takes that is not searched for, as predicted from what was measured here.
    6. Some of it is not: the next question restores it from the disk, or computes it.
    """
    prefill, tokens, costs = codex.get("prefill"), codex.get("floor_tokens") or 0, now["engine"].get("cache") or {}
    if prefill and prefill["total"]:
        return prefill["done"] / prefill["total"], time_left(prefill.get("left_s"))
    load = codex.get("load")
    if not tokens and load and load["phase"] and not load["ended"]:  # one that has just begun is in no phase
        return 0.0, step(load)
    if not tokens:
        return 0.0, codex.get("fresh") or "not built yet" if not codex.get("tier") else "its prefix is not built yet"
    if now["engine"].get("servers"):
        return 1.0, "asked of a server, which keeps its prefix as long as it can"
    held = min(tokens, held_of(codex["name"], now["engine"].get("pools") or ()))
    if away := now.get("paused"):
        return held / tokens, "paused" if away["cause"] == "pause" else "asleep: the next question wakes the model"
    if held == tokens:
        whole = codex.get("tier") == "full"  # else passages are read first, of which nobody knows how many
        first = first_token_for(costs, tokens, tokens + QUESTION) if whole else None
        return 1.0, "ready" + (f", first token in about {seconds(1000 * first)}" if first is not None else "")
    most = seconds_for(costs, held, tokens)
    computed = f", in {about(most)} at most" if most is not None else ""
    return held / tokens, f"the next question restores it from the disk, or computes it{computed}"


def unusual(codex: Report) -> Iterator[str]:
    """What is not as on most days, and what of it is not in the prefix."""
    fresh, tier = codex.get("fresh") or "", codex.get("tier") or "full"
    if tier != "full":
        yield "searched" if tier == "none" else f"{tier} in the prefix, the rest is searched"
    if codex.get("tier") and fresh != "watched":
        yield fresh
    if (codex.get("identity") or {}).get("preparing"):
        yield "its new identity waits for an idle moment"
    embedding = codex.get("embedding")
    if embedding and embedding["embedded"] < embedding["texts"]:
        yield f"embedding {100 * embedding['embedded'] // embedding['texts']} %"


def held_of(codex: str, pools: Sequence[Report]) -> int:
    """Tokens in the live cache of a codex, under whichever identity holds most; its floor is the last of them to go."""
    held = [pool["evictable"] + pool["leased"] for pool in pools if pool["name"].partition("/")[2] == codex]
    return max(held, default=0)


def seconds_for(costs: Report, begin: int, end: int) -> float | None:
    """To compute the tokens [begin, end) of a prompt, by the engine's own counters; none before it has measured."""
    empty = costs.get("ms_per_token_empty") or 0.0
    per_token = empty + (costs.get("ms_per_token_cell") or 0.0) * (begin + end) / 2
    return (end - begin) * per_token / 1000 if empty and costs.get("costs_known", True) else None


def first_token_for(costs: Report, begin: int, end: int) -> float | None:
    """As `lore plan` predicts it: the last token costs what a step of an answer does."""
    prompt = seconds_for(costs, begin, end - 1)
    step_ms = (costs.get("ms_per_answer_empty") or 0.0) + (costs.get("ms_per_answer_cell") or 0.0) * end
    return None if prompt is None else prompt + step_ms / 1000


def time_left(left_s: float | None) -> str:
    return f"{about(left_s)} left" if left_s is not None else "being computed"


def about(left_s: float) -> str:
    return f"{left_s:.0f} s" if left_s < 60 else f"{ceil(left_s / 60)} min"


def bar(share: float, width: int, *, full: bool) -> str:
    """Not full before it is all there, and not empty once something is."""
    cells = min(width - 1, max(1, round(share * width))) if 0 < share < 1 else round(share * width)
    done, rest = ("█", "░") if full else ("#", "-")
    return done * cells + rest * (width - cells)


def can_draw(stream: TextIO) -> bool:
    """Whether blocks can be written there."""
    try:
        "█░".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


# ---- rows ------------------------------------------------------------------------------------------------------------


def model_facts(model: Report) -> Iterator[tuple[str, str]]:
    window = model.get("window")
    yield "model", model["name"] + (f", window {count(window)} tokens" if window else "")
    if model.get("notice"):
        yield "", model["notice"]
        yield "", REAL if model["name"] == QUOTER else ""


def engine_facts(engine: Report, queue: Report) -> Iterator[tuple[str, str]]:
    restarts = engine.get("restarts", 0)
    again = f"restarted {plural(restarts, 'time')}" if restarts else ""
    yield "engine", listed(engine.get("state", "unknown"), device(engine), again)
    yield "", engine.get("reason") or ""
    yield from server_facts(engine)
    if engine.get("ranges") is False:
        yield "", "this model's cache cannot be cut: what a conversation adds is kept whole, or computed again"
    yield "queue", f"{running(engine, queue)}, {count(queue.get('waiting', 0))} waiting"
    if prefill := engine.get("prefill"):  # named by its codex: a floor's own name is a hash
        yield "", f"computing a prompt {'of ' + prefill['codex'] if prefill['codex'] else 'without a codex'}"


def server_facts(engine: Report) -> Iterator[tuple[str, str]]:
    """Those that compute in the engine's place, and what only an engine here can do."""
    for server in engine.get("servers") or ():
        yield "server", server_words(server)
    if engine.get("servers"):
        yield "", f"without: {WITHOUT_ENGINE} (docs/scale.md)"


def server_words(server: Report) -> str:
    """`http://gpu:8000/v1, vLLM, up, 3 running, 1 waiting, 42 % of its cache`."""
    load = [f"{count(server[what])} {what}" for what in ("running", "waiting") if server.get(what) is not None]
    cache = f"{100 * server['cache']:.0f} % of its cache" if server.get("cache") is not None else ""
    return listed(server["url"], server["kind"], server["state"], server.get("reason") or "", *load, cache)


def device(engine: Report) -> str:
    name, layers = engine.get("device"), engine.get("gpu_layers")
    return f"on {name}, {layers} layers there" if name and name != "CPU" and layers else f"on {name}" if name else ""


def running(engine: Report, queue: Report) -> str:
    """`3 running (1 answering, 2 computing a prompt)`."""
    words = f"{count(queue.get('running', 0))} running"
    if not engine.get("prefills"):
        return words
    return f"{words} ({count(engine['answering'])} answering, {count(engine['prefills'])} computing a prompt)"


def embedding_facts(embedding: Report | None) -> Iterator[tuple[str, str]]:
    """Nothing where no model is configured: search by words is no fault."""
    if not embedding or not embedding["model"]:
        return
    if embedding["fault"]:
        yield "embedding", f"none: {embedding['fault']}"
        return
    yield "embedding", listed(embedding["model"], f"{count(embedding['dimensions'])} dimensions", planned(embedding))
    yield "", embedding.get("resting") or ""
    yield "", embedding.get("notice") or ""


def embedding_faults(embedding: Report | None) -> Iterator[tuple[str, str]]:
    if embedding and embedding["model"]:
        yield "embedding", f"none: {embedding['fault']}" if embedding["fault"] else ""
        yield "embedding", embedding.get("resting") or ""
        yield "embedding", embedding.get("notice") or ""


def archive_facts(archive: Report | None, *, short: bool = False) -> Iterator[tuple[str, str]]:
    """Nothing of one in the daemon's own folder; with `short` nothing of one that is well."""
    if archive and archive["fault"]:
        yield "archive", f"{archive['uri']} cannot be reached: {archive['fault']}"
    elif archive and not short:
        yield "archive", archive["uri"] if archive["writes"] else f"{archive['uri']}, read only"


def planned(embedding: Report) -> str:
    """What is planned for it, and whether it is in the memory now."""
    if embedding.get("weights") is None:
        return ""
    where = f"{count(embedding['gpu_layers'])} layers on the GPU" if embedding["gpu_layers"] else "on the CPU"
    bytes_ = size(embedding["weights"] + embedding["buffers"])
    return f"{where}, {bytes_} planned, {'loaded' if embedding['loaded'] else 'not loaded now'}"


def memory_facts(governor: Report, *, short: bool = False) -> Iterator[tuple[str, str]]:
    """`short`: without what is planned for how many tokens."""
    words = [str(governor.get("level", "unknown"))]
    if governor.get("pressure") is not None:
        of = (
            "by what waits at the server"
            if governor.get("bound") == "server"
            else "of the memory that the model leaves is used"
        )
        words.append(f"{100 * governor['pressure']:.0f} % {of}")
    if governor.get("kv_budget_bytes") is not None and not short:
        words.append(
            f"{size(governor['kv_budget_bytes'])} of {governor['memory']} for {count(governor['cells'])} cached tokens"
        )
    if governor.get("embedding_bytes") and not short:
        words.append(f"{size(governor['embedding_bytes'])} for the embedding model")
    yield "memory", listed(*words)
    if governor.get("bound_reason"):
        yield "", f"a window of {count(governor['window'])} tokens: {governor['bound_reason']}"
    if governor.get("kv_reason"):
        yield "", f"KV is kept in {governor['kv_type']}: {governor['kv_reason']}"
    if governor.get("power", "normal") != "normal":
        yield "power", f"{governor['power']}: {governor.get('saving') or 'power is saved'}"
        yield (
            "",
            "prompts get half of their time beside answers; next floors and vectors are made when it is normal again",
        )
    if governor.get("unplanned"):
        yield "", f"nothing can be planned: {governor['unplanned']}"
    for fault in governor.get("faults", ()):
        yield "sensor", fault


def sensor_facts(sensors: Report | None) -> Iterator[tuple[str, str]]:
    """What the sensors read, in its units, and how old it is; nothing from an older daemon."""
    if not sensors:
        return
    for gpu in sensors["gpus"]:
        yield f"gpu {gpu['index']}", f"{gpu['name'] or 'a GPU'}: {readings(gpu_readings(gpu))}"
    yield "ram", readings(host_readings(sensors["host"]))
    yield "readings", f"{seconds(1000 * sensors['age_s'])} old"


def estimate_facts(estimates: Sequence[Report]) -> Iterator[tuple[str, str]]:
    """What the model takes, each beside how far off the estimate from its header was."""
    words = [
        f"{one['what']} {size(one['real'])} ({100 * (one['estimated'] / one['real'] - 1):+.1f} %)"
        for one in estimates
        if one["real"]
    ]
    if words:
        yield "estimated", listed(*words)


def gpu_readings(gpu: Report) -> Iterator[tuple[str, str | None]]:
    yield "memory", "uses the host's RAM" if gpu["unified"] else known("{} of {} used", *sizes(gpu, "used", "total"))
    yield "own memory", "" if gpu["unified"] else known("{} ours", *sizes(gpu, "own"))
    yield "utilisation", known("{:.0f} % busy", gpu["utilisation"])
    yield "power", known("{:.0f} of {:.0f} W", gpu["power"], gpu["power_limit"])
    yield "temperature", known("{:.0f} °C", gpu["temperature"])
    yield "performance state", known("P{}", gpu["performance_state"])
    reasons = gpu["clock_reasons"]
    yield "clocks", reasons if reasons is None else f"clocks: {', '.join(reasons)}" if reasons else ""


def host_readings(host: Report) -> Iterator[tuple[str, str | None]]:
    yield "memory", known("{} of {} available", *sizes(host, "ram_available", "ram_total"))
    yield "own memory", known("{} ours", *sizes(host, "ram_own"))
    yield "swap", known("swap {} of {}", *sizes(host, "swap_used", "swap_total"))
    yield "stalls", known("{:.1f} % stalled", host["stalled"])
    yield "disk", known("{} of disk free", *sizes(host, "disk_free"))
    yield "battery", known("on battery, {:.0f} %", host["battery"]) if host["on_battery"] else ""


def readings(given: Iterable[tuple[str, str | None]]) -> str:
    """Those that are known, and the names of those that are not."""
    rows = list(given)
    unknown = ", ".join(name for name, text in rows if text is None)
    return listed(*(text or "" for _, text in rows), f"unknown: {unknown}" if unknown else "")


def known(form: str, *values: float | str | None) -> str | None:
    """None where one of the values is unknown."""
    return None if None in values else form.format(*values)


def sizes(given: Report, *names: str) -> Iterator[str | None]:
    return (None if given[name] is None else size(given[name]) for name in names)


def pools(found: Sequence[Report]) -> str:
    """In tokens: free + reserved + evictable + in use = the first number."""
    rows = [(pool_label(pool["name"]), *(count(pool[name]) for name in POOL), size(pool["bytes"])) for pool in found]
    return table(("pool", "tokens", "free", "reserved", "evictable", "in use", "bytes"), rows)


def pool_label(name: str) -> str:
    """`lorekeep/demo` of `lorekeep@1a2b3c4d5e6f/demo`; `none` is the codex of the bare model."""
    identity, _, codex = name.partition("/")
    return f"{identity.partition('@')[0]}/{codex or 'none'}"


def codices(found: Sequence[Report]) -> str:
    """A table, and below it the notices and faults of each codex."""
    rows = [(codex["name"], coverage(codex), state(codex), files(codex), roots(codex)) for codex in found]
    notes = [f"{codex['name']}: {note}" for codex in found for note in notes_of(codex)]
    return "\n".join([table(("codex", "coverage", "state", "files", "root"), rows), *notes])


def notes_of(codex: Report) -> list[str]:
    embedding = codex.get("embedding") or {}
    refused = embedding.get("refused", 0)
    notes = (
        codex.get("fresh_notice"),
        (codex.get("identity") or {}).get("fault"),
        embedding.get("fault"),
        f"{plural(refused, 'text')} cannot be embedded: found by words alone" if refused else "",
    )
    return [note for note in notes if note]


def coverage(codex: Report) -> str:
    name = codex.get("tier")
    tokens = codex.get("floor_tokens") or codex.get("tier_tokens")
    return "not built yet" if not name else f"{name}, {count(tokens)} tokens" if tokens is not None else name


def state(codex: Report) -> str:
    prefill, embedding = codex.get("prefill"), codex.get("embedding")
    parts = [codex.get("state") or "", codex.get("fresh") or ""]
    if codex.get("amendments"):
        parts.append(plural(codex["amendments"], "amendment"))
    if prefill and prefill["total"]:
        parts.append(work("computing", prefill["done"], prefill["total"], None, prefill.get("left_s")))
    if (codex.get("identity") or {}).get("preparing"):
        parts.append("its new identity waits for an idle moment")
    if embedding and embedding["embedded"] < embedding["texts"]:
        parts.append(f"embedding {100 * embedding['embedded'] // embedding['texts']} %")
    return listed(*parts)


def roots(codex: Report) -> str:
    """Two, or the first and how many more there are."""
    first, *more = codex.get("roots") or [codex.get("root", "")]
    return f"{first} +{len(more)}" if len(more) > 1 else listed(first, *more)


def files(codex: Report) -> str:
    return count(codex["files"]) if codex.get("files") is not None else ""
