"""What the daemon does now, as one picture: `lore top` draws it on a terminal, `lore dash` on a page. Pure.

    GET /v1/status ──────────────┐
    GET /v1/engine ──────────────┤
    GET /v1/stats/cache ─────────┼─▶ Replies ─▶ picture ─▶ Picture ─▶ asdict: the JSON of `lore top --json`
    GET /v1/traces/ID, each once ┤
    GET /v1/codices/NAME/files ──┘

Each figure is read by its name in the shape that the daemon sends (`wire.status`, `wire.replies`, `wire.traces`): types are
checked against it. A reply that did not come is None, and what would be made of it is empty. Bytes and tokens are whole
numbers, times seconds unless the name ends in `_ms`. The parts of the memory add up to all of it, also where the readings
behind them were taken at different moments.

Plain dataclasses, and shapes for the checker of types alone: pydantic takes longer to import than a picture to make.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.wire.places import PHASES, VERSION

if TYPE_CHECKING:
    from orchestrator.wire.replies import CodexCosts, CodexReport, LoadReport
    from orchestrator.wire.status import (
        BranchReport,
        CacheReply,
        CacheReport,
        EngineWork,
        GpuSensors,
        HostSensors,
        StatusReply,
        TicketReport,
    )
    from orchestrator.wire.traces import TraceReport

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


class Shaped:
    """An object of JSON by the names of its shape; what the daemon did not send is None."""

    def __init__(self, sent: Report) -> None:
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return shaped(self._sent.get(name))


def shaped(sent: Any) -> Any:
    if isinstance(sent, list | tuple):
        return tuple(map(shaped, sent))
    return Shaped(sent) if isinstance(sent, Mapping) else sent


def picture(replies: Replies) -> Picture:
    """Raises TypeError and AttributeError for replies of other shapes."""
    status: StatusReply = shaped(replies.status)
    engine: EngineWork | None = shaped(replies.engine)
    cache: CacheReply | None = shaped(replies.cache)
    trees = tuple(map(tree_of, engine.caches)) if engine else ()
    return Picture(
        version=status.version,
        model=status.model.name,
        notice=status.model.notice or "",
        levels=levels_of(status),
        memory=memory_of(status, (engine.weight_bytes if engine else 0) or 0, trees),
        codices=tuple(map(codex_line, status.codices)),
        trees=trees,
        tickets=tuple(map(ticket_of, engine.tickets)) if engine else (),
        questions=tuple(map(question_of, shaped(replies.traces))),
        files=files_of(replies.files) if replies.files else None,
        sessions=status.sessions,
        hit_rate=cache.hit_rate if cache else None,
        saved_ms=(cache.saved_ms if cache else 0) or 0,
        notes=tuple(notes_of(status)),
    )


def levels_of(status: "StatusReply") -> LevelLine:
    governor, engine = status.governor, status.engine
    return LevelLine(
        memory=governor.level or "unknown",
        power=governor.power or "normal",
        pressure=governor.pressure,
        saving=governor.saving or "",
        window=governor.window,
        prefill_share=1.0 if engine.prefill_share is None else engine.prefill_share,
        engine=engine.state or "unknown",
        reason=engine.reason or "",
        away=status.paused.why if status.paused else "",
    )


def notes_of(status: "StatusReply") -> Iterator[str]:
    """What is wrong, or must be known."""
    if status.version != VERSION:
        yield f"this is version {VERSION}, the daemon {status.version}: restart the daemon"
    if status.governor.unplanned:
        yield f"nothing can be planned: {status.governor.unplanned}"
    yield from status.governor.faults or ()
    yield from status.plugins or ()
    for codex in status.codices:
        if codex.fresh_notice:
            yield f"{codex.name}: {codex.fresh_notice}"


# ---- the memory ------------------------------------------------------------------------------------------------------


def memory_of(status: "StatusReply", weights: int, trees: Sequence[CacheLine]) -> MemoryBar:
    """The memory where KV lies: of the GPUs together, or the host's."""
    governor, sensors, embedding = status.governor, status.governor.sensors, status.embedding
    on_gpu = governor.memory == "VRAM"
    whole, others, ours = gpu_use(sensors.gpus) if on_gpu else host_use(sensors.host)
    kv = status.engine.kv_bytes or sum(tree.bytes for tree in trees)
    if embedding and embedding.loaded and not on_gpu:
        weights += embedding.weights or 0
    parts = parts_of(whole, others, ours, weights, kv, trees)
    return MemoryBar(governor.memory if whole else None, whole, parts, governor.kv_budget_bytes)


def gpu_use(gpus: Sequence["GpuSensors"]) -> tuple[int, int, int]:
    """Bytes of all, of others and ours. Where the driver does not tell whose they are, what is used is all ours."""
    known = [gpu for gpu in gpus if gpu.total]
    used = sum(gpu.used or 0 for gpu in known)
    others = sum(gpu.others or 0 for gpu in known)
    return sum(gpu.total or 0 for gpu in known), others, max(0, used - others)


def host_use(host: "HostSensors") -> tuple[int, int, int]:
    """The same of RAM. Files that we map are ours, though the system counts them as available."""
    whole, own = host.ram_total or 0, host.ram_own or 0
    ours = max(own, host.rss or 0)
    used = whole - (host.ram_available or 0)
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


def codex_line(codex: "CodexReport") -> CodexLine:
    prefill = codex.prefill
    return CodexLine(
        name=codex.name,
        tier=codex.tier,
        files=codex.files or 0,
        tokens=codex.floor_tokens or codex.tier_tokens or 0,
        kv_bytes=codex.kv_bytes or 0,
        fresh=codex.fresh or "",
        done=prefill.done if prefill else None,
        total=prefill.total if prefill else None,
        left_s=prefill.left_s if prefill else None,
        load=load_line(codex.load),
    )


def load_line(load: "LoadReport | None") -> LoadLine | None:
    """None where none runs, or its floor is computed already, which the codex tells itself."""
    if load is None or load.phase == "prefill":
        return None
    phase = PHASES.get(load.phase, load.phase) if load.phase else "being loaded"
    return LoadLine(phase, load.done, load.total, load.rate, load.eta_s)


def tree_of(cache: "CacheReport") -> CacheLine:
    identity, _, codex = cache.name.partition("/")
    cells, floors, tails = cache.size, cache.floors, cache.conversations
    return CacheLine(
        identity=identity.partition("@")[0],
        codex=codex,
        cells=cells,
        floors=floors,
        tails=tails,
        room=max(0, cells - floors - tails),
        bytes=cache.bytes,
        branches=tuple(branch_of(one, cache.bytes, cells) for one in cache.branches),
        left_out=cache.left_out or 0,
    )


def branch_of(branch: "BranchReport", bytes_: int, cells: int) -> BranchLine:
    return BranchLine(
        depth=branch.depth,
        kind=TAIL if branch.private else FLOOR,
        start=branch.start,
        tokens=branch.tokens,
        promised=branch.tokens - branch.computed,
        bytes=bytes_ * branch.computed // cells if cells else 0,
        used=branch.used,
    )


# ---- jobs, questions, files ------------------------------------------------------------------------------------------


def ticket_of(ticket: "TicketReport") -> TicketLine:
    rate = ticket_rate(ticket)
    missing = ticket.prompt - ticket.done
    return TicketLine(
        number=ticket.ticket,
        codex=ticket.codex,
        phase=ticket.phase,
        place=ticket.place,
        background=ticket.background,
        ahead=not ticket.most,
        prompt=ticket.prompt,
        done=ticket.done,
        generated=ticket.generated,
        most=ticket.most,
        waited_s=ticket.waited_s,
        rate=rate,
        left_s=missing / rate if rate and ticket.phase == "prefill" else None,
    )


def ticket_rate(ticket: "TicketReport") -> float | None:
    """None before anything was measured. The first token of an answer comes with the prompt's last step."""
    if ticket.phase == "answering":
        tokens, seconds = ticket.generated - 1, ticket.answering_s
    else:
        tokens, seconds = ticket.computed, ticket.running_s
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def question_of(trace: "TraceReport") -> QuestionLine:
    lore, prompt = trace.lore, trace.lore.prompt
    return QuestionLine(
        trace=trace.id,
        title=trace.title,
        codex=trace.codex or "",
        created=trace.created,
        tokens=prompt.tokens,
        cached=prompt.cached,
        computed=prompt.computed,
        ttft_ms=lore.timings.ttft_ms or 0,
        rate=lore.timings.tokens_per_second or 0,
        broke_at=lore.broke_at.block if lore.broke_at else "",
        blocks=tuple(BlockHits(one.kind, one.tokens, one.cached) for one in lore.blocks),
    )


def files_of(reply: Report) -> FileCosts:
    costs: CodexCosts = shaped(reply)
    per_token = costs.kv_bytes_per_token
    lines = (FileCost(one.path, one.level, one.tokens, round(one.tokens * per_token)) for one in costs.files)
    dearest = sorted(lines, key=lambda one: (-one.tokens, one.path))
    return FileCosts(costs.codex, costs.tokens, round(costs.tokens * per_token), tuple(dearest), costs.left_out or 0)


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
