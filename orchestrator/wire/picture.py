"""What the daemon does now, as one picture: `lore top` draws it on a terminal, `lore dash` on a page. Pure.

    GET /v1/status ──────────────┐
    GET /v1/engine ──────────────┤
    GET /v1/stats/cache ─────────┼─▶ Replies ─▶ picture ─▶ Picture ─▶ asdict: the JSON of `lore top --json`
    GET /v1/traces/ID, each once ┤
    GET /v1/codices/NAME/files ──┘

A reply that did not come is None, and what would be made of it is empty. Bytes and tokens are whole
numbers, times seconds unless the name ends in `_ms`. The parts of the memory add up to all of it, also where the readings
behind them were taken at different moments.

Plain dataclasses: pydantic takes longer to import than a picture to make.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.wire.places import PHASES, VERSION

Report = Mapping[str, Any]  # what the daemon sent, or a part of it
# What the memory holds, in the order in which it is drawn. `room`: of open caches, holding no token. `free`: the last part.
PARTS = ("others", "weights", "buffers", "floors", "tails", "room", "free")
FLOOR, TAIL = "floor", "tail"


@dataclass(frozen=True)
class Replies:
    """What the daemon sent, each newer than nothing: `status` of /v1/status, `engine` of /v1/engine, `cache` of
    /v1/stats/cache, `traces` of /v1/traces/ID, the newest first, `files` of /v1/codices/NAME/files."""

    status: Report
    engine: Report | None = None
    cache: Report | None = None
    traces: Sequence[Report] = ()
    files: Report | None = None


@dataclass(frozen=True)
class LevelLine:
    """Of the governor, and what the engine is. `pressure`: 0 to 1; `away`: why the model is out of the memory."""

    memory: str
    power: str
    pressure: float | None
    saving: str
    window: int | None
    prefill_share: float
    engine: str
    reason: str
    away: str


@dataclass(frozen=True)
class MemoryBar:
    """`where` KV lies: RAM or VRAM; None where nobody can say. `parts`: bytes by each of PARTS; they add up to `whole`."""

    where: str | None
    whole: int
    parts: Mapping[str, int]
    kv_budget: int | None


@dataclass(frozen=True)
class LoadLine:
    """A load that runs: its `phase` in words, `done` of `total` in the phase's unit (0: not known), `rate` a second."""

    phase: str
    done: int
    total: int
    rate: float
    left_s: float | None


@dataclass(frozen=True)
class CodexLine:
    """`tier`: its coverage; `done` of `total` tokens of its floor are computed while it is being computed, else None;
    `load`: the load of its files that runs."""

    name: str
    tier: str | None
    files: int
    tokens: int
    kv_bytes: int
    fresh: str
    done: int | None
    total: int | None
    left_s: float | None
    load: LoadLine | None


@dataclass(frozen=True)
class BranchLine:
    """A stretch of tokens below another one of less `depth`. `promised`: of its tokens, those still to compute."""

    depth: int
    kind: str  # FLOOR or TAIL
    start: int
    tokens: int
    promised: int
    bytes: int
    used: bool  # by a ticket now


@dataclass(frozen=True)
class CacheLine:
    """A live cache. `floors` and `tails`: computed tokens; `room`: cells that hold nothing. Cells are tokens."""

    identity: str
    codex: str  # empty: the bare model
    cells: int
    floors: int
    tails: int
    room: int
    bytes: int
    branches: tuple[BranchLine, ...]
    left_out: int  # branches without a line


@dataclass(frozen=True)
class TicketLine:
    """A job of the engine. `place`: 0 while it runs, 1 for the next to be let in. `done` of `prompt` tokens are in cells.

    `rate`: tokens a second, of its prompt while that is computed, of its answer after; `left_s`: of its prompt.
    """

    number: int
    codex: str
    phase: str  # waiting, restoring, prefill or answering
    place: int
    background: bool
    ahead: bool  # computed in advance: nobody waits for an answer
    prompt: int
    done: int
    generated: int
    most: int
    waited_s: float
    rate: float | None
    left_s: float | None


@dataclass(frozen=True)
class BlockHits:
    """One of the six, in tokens."""

    kind: str
    tokens: int
    cached: int


@dataclass(frozen=True)
class QuestionLine:
    """A turn that was answered. Milliseconds; `rate`: tokens of the answer a second."""

    trace: str
    title: str
    codex: str
    created: float
    tokens: int
    cached: int
    computed: int
    ttft_ms: float
    rate: float
    broke_at: str
    blocks: tuple[BlockHits, ...]


@dataclass(frozen=True)
class FileCost:
    """What one file takes of a floor: `level` is how much of it is there."""

    path: str
    level: str
    tokens: int
    bytes: int


@dataclass(frozen=True)
class FileCosts:
    """Of one codex, the dearest first. `left_out` files and their tokens have no line."""

    codex: str
    tokens: int
    bytes: int
    lines: tuple[FileCost, ...]
    left_out: int


@dataclass(frozen=True)
class Picture:
    """Everything at once. `hit_rate`, `saved_ms`: since the engine's start."""

    version: str
    model: str
    notice: str
    levels: LevelLine
    memory: MemoryBar
    codices: tuple[CodexLine, ...]
    trees: tuple[CacheLine, ...]
    tickets: tuple[TicketLine, ...]
    questions: tuple[QuestionLine, ...]
    files: FileCosts | None
    sessions: int
    hit_rate: float | None
    saved_ms: int
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class DaemonAway:
    """In a picture's place while the daemon is away."""

    away: str  # why, in words


def picture(replies: Replies) -> Picture:
    status, engine, cache = replies.status, replies.engine or {}, replies.cache or {}
    trees = tuple(tree_of(one) for one in engine.get("caches", ()))
    return Picture(
        version=status["version"],
        model=status["model"]["name"],
        notice=status["model"].get("notice") or "",
        levels=levels_of(status),
        memory=memory_of(status, engine.get("weight_bytes") or 0, trees),
        codices=tuple(map(codex_line, status["codices"])),
        trees=trees,
        tickets=tuple(map(ticket_of, engine.get("tickets", ()))),
        questions=tuple(map(question_of, replies.traces)),
        files=files_of(replies.files) if replies.files else None,
        sessions=status["sessions"],
        hit_rate=cache.get("hit_rate"),
        saved_ms=cache.get("saved_ms") or 0,
        notes=tuple(notes_of(status)),
    )


def levels_of(status: Report) -> LevelLine:
    governor, engine, away = status["governor"], status["engine"], status.get("paused") or {}
    return LevelLine(
        memory=governor.get("level") or "unknown",
        power=governor.get("power") or "normal",
        pressure=governor.get("pressure"),
        saving=governor.get("saving") or "",
        window=governor.get("window"),
        prefill_share=engine.get("prefill_share", 1.0),
        engine=engine.get("state") or "unknown",
        reason=engine.get("reason") or "",
        away=away.get("why") or "",
    )


def notes_of(status: Report) -> Iterator[str]:
    """What is wrong, or must be known."""
    governor = status["governor"]
    if status["version"] != VERSION:
        yield f"this is version {VERSION}, the daemon {status['version']}: restart the daemon"
    if governor.get("unplanned"):
        yield f"nothing can be planned: {governor['unplanned']}"
    yield from governor.get("faults", ())
    yield from status.get("plugins", ())
    for codex in status["codices"]:
        if codex.get("fresh_notice"):
            yield f"{codex['name']}: {codex['fresh_notice']}"


# ---- the memory ------------------------------------------------------------------------------------------------------


def memory_of(status: Report, weights: int, trees: Sequence[CacheLine]) -> MemoryBar:
    """The memory where KV lies: of the GPUs together, or the host's."""
    governor = status["governor"]
    sensors = governor.get("sensors") or {}
    on_gpu = governor.get("memory") == "VRAM"
    whole, others, ours = gpu_use(sensors.get("gpus", ())) if on_gpu else host_use(sensors.get("host") or {})
    kv = status["engine"].get("kv_bytes") or sum(tree.bytes for tree in trees)
    embedding = status.get("embedding") or {}
    if embedding.get("loaded") and not on_gpu:
        weights += embedding.get("weights") or 0
    parts = parts_of(whole, others, ours, weights, kv, trees)
    return MemoryBar(governor.get("memory") if whole else None, whole, parts, governor.get("kv_budget_bytes"))


def gpu_use(gpus: Sequence[Report]) -> tuple[int, int, int]:
    """Bytes of all, of others and ours. Where the driver does not tell whose they are, what is used is all ours."""
    known = [gpu for gpu in gpus if gpu.get("total")]
    used = sum(gpu.get("used") or 0 for gpu in known)
    others = sum(gpu.get("others") or 0 for gpu in known)
    return sum(gpu["total"] for gpu in known), others, max(0, used - others)


def host_use(host: Report) -> tuple[int, int, int]:
    """The same of RAM. Files that we map are ours, though the system counts them as available."""
    whole, own = host.get("ram_total") or 0, host.get("ram_own") or 0
    ours = max(own, host.get("rss") or 0)
    used = whole - (host.get("ram_available") or 0)
    return whole, max(0, used - own), ours


def parts_of(whole: int, others: int, ours: int, weights: int, kv: int, trees: Sequence[CacheLine]) -> dict[str, int]:
    """Bytes by each of PARTS; they add up to `whole`. Buffers are the rest of ours."""
    floors = sum(share_of(tree, tree.floors) for tree in trees)
    tails = sum(share_of(tree, tree.tails) for tree in trees)
    wanted = {
        "others": others,
        "floors": floors,
        "tails": tails,
        "room": max(0, kv - floors - tails),
        "weights": min(weights, max(0, ours - kv)),
        "buffers": max(0, ours - kv - weights),
    }
    left, given = whole, {}
    for name, bytes_ in wanted.items():
        given[name] = max(0, min(bytes_, left))
        left -= given[name]
    given["free"] = left
    return {name: given[name] for name in PARTS}


def share_of(tree: CacheLine, tokens: int) -> int:
    return tree.bytes * tokens // tree.cells if tree.cells else 0


# ---- caches ----------------------------------------------------------------------------------------------------------


def codex_line(codex: Report) -> CodexLine:
    prefill = codex.get("prefill") or {}
    return CodexLine(
        name=codex["name"],
        tier=codex.get("tier"),
        files=codex.get("files") or 0,
        tokens=codex.get("floor_tokens") or codex.get("tier_tokens") or 0,
        kv_bytes=codex.get("kv_bytes") or 0,
        fresh=codex.get("fresh") or "",
        done=prefill.get("done"),
        total=prefill.get("total"),
        left_s=prefill.get("left_s"),
        load=load_line(codex.get("load")),
    )


def load_line(load: Report | None) -> LoadLine | None:
    """None where none runs, or its floor is computed already, which the codex tells itself."""
    if load is None or load["phase"] == "prefill":
        return None
    phase = PHASES.get(load["phase"], load["phase"]) if load["phase"] else "being loaded"
    return LoadLine(phase, load["done"], load["total"], load["rate"], load["eta_s"])


def tree_of(cache: Report) -> CacheLine:
    identity, _, codex = str(cache["name"]).partition("/")
    cells, bytes_ = cache["size"], cache["bytes"]
    branches = tuple(branch_of(one, bytes_, cells) for one in cache.get("branches", ()))
    floors, tails = cache["floors"], cache["conversations"]
    return CacheLine(
        identity=identity.partition("@")[0],
        codex=codex,
        cells=cells,
        floors=floors,
        tails=tails,
        room=max(0, cells - floors - tails),
        bytes=bytes_,
        branches=branches,
        left_out=cache.get("left_out", 0),
    )


def branch_of(branch: Report, bytes_: int, cells: int) -> BranchLine:
    return BranchLine(
        depth=branch["depth"],
        kind=TAIL if branch["private"] else FLOOR,
        start=branch["start"],
        tokens=branch["tokens"],
        promised=branch["tokens"] - branch["computed"],
        bytes=bytes_ * branch["computed"] // cells if cells else 0,
        used=branch["used"],
    )


# ---- jobs, questions, files ------------------------------------------------------------------------------------------


def ticket_of(ticket: Report) -> TicketLine:
    rate = ticket_rate(ticket)
    missing = ticket["prompt"] - ticket["done"]
    return TicketLine(
        number=ticket["ticket"],
        codex=ticket["codex"],
        phase=ticket["phase"],
        place=ticket["place"],
        background=ticket["background"],
        ahead=not ticket["most"],
        prompt=ticket["prompt"],
        done=ticket["done"],
        generated=ticket["generated"],
        most=ticket["most"],
        waited_s=ticket["waited_s"],
        rate=rate,
        left_s=missing / rate if rate and ticket["phase"] == "prefill" else None,
    )


def ticket_rate(ticket: Report) -> float | None:
    """None before anything was measured. The first token of an answer comes with the prompt's last step."""
    if ticket["phase"] == "answering":
        tokens, seconds = ticket["generated"] - 1, ticket["answering_s"]
    else:
        tokens, seconds = ticket["computed"], ticket["running_s"]
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def question_of(trace: Report) -> QuestionLine:
    lore = trace["lore"]
    prompt, timings, broke = lore["prompt"], lore.get("timings") or {}, lore.get("broke_at") or {}
    return QuestionLine(
        trace=trace["id"],
        title=trace["title"],
        codex=trace.get("codex") or "",
        created=trace["created"],
        tokens=prompt["tokens"],
        cached=prompt["cached"],
        computed=prompt["computed"],
        ttft_ms=timings.get("ttft_ms") or 0,
        rate=timings.get("tokens_per_second") or 0,
        broke_at=broke.get("block") or "",
        blocks=tuple(BlockHits(one["kind"], one["tokens"], one["cached"]) for one in lore["blocks"]),
    )


def files_of(reply: Report) -> FileCosts:
    per_token = reply["kv_bytes_per_token"]
    lines = (
        FileCost(one["path"], one["level"], one["tokens"], round(one["tokens"] * per_token)) for one in reply["files"]
    )
    dearest = sorted(lines, key=lambda one: (-one.tokens, one.path))
    tokens = reply["tokens"]
    return FileCosts(reply["codex"], tokens, round(tokens * per_token), tuple(dearest), reply.get("left_out", 0))


# ---- widths ----------------------------------------------------------------------------------------------------------


def widths(parts: Sequence[int], columns: int) -> list[int]:
    """Whole columns for each part by its share, all columns together; [0, …] where all parts are 0.

    Whoever lost most to rounding gets a column first (largest remainder), of equals the first one.
    """
    whole = sum(parts)
    if not whole or columns <= 0:
        return [0] * len(parts)
    given = [part * columns // whole for part in parts]
    lost = sorted(range(len(parts)), key=lambda at: -(parts[at] * columns % whole))
    for at in lost[: columns - sum(given)]:
        given[at] += 1
    return given
