"""The program behind the routes, small and deterministic: answers by repeating words of the question. For both edges.

A question steers it: `forever` never ends, `break` fails after a word, `full`, `paused`, `loading`, `huge` are refused,
`bug` is our own mistake, `think` thinks first, `call` calls a tool, `long` is cut, `mute` is
answered with nothing, `patience` waits for minutes.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from support.floor_archives import archive
from support.small_reports import COUNTED, ENGINE, MODEL, codex, lore_of
from support.wire_shapes import filled

from codex.catalog.generations import Codex
from orchestrator.answering.report import strategy_state
from orchestrator.answering.traces import TraceKeeper, TraceStore
from orchestrator.codices.identities import check
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.errors import Conflict, EngineFailed, Full, InvalidRequest, NotFound, NotReady, OverBudget, Paused
from orchestrator.karma.memories import Memories
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.situation import ReadableCodex
from orchestrator.prompt.strategy import consulted, size_of_text
from orchestrator.records import UserRecords
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import catalogue
from orchestrator.reports.cache import cache_report
from orchestrator.service import (
    Answered,
    Ask,
    AskEvent,
    Continued,
    Embedded,
    LoadEvent,
    MeasureEvent,
    ModelEvent,
    Principal,
    Text,
    TextAsk,
    TextEvent,
    Thought,
    ToolCall,
)
from orchestrator.wire.answers import KvLoss, PlanReply, Predicted, StrategyState, Waiting
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.identities import (
    DefaultIdentity,
    FloorCost,
    IdentityChange,
    IdentityReport,
    IdentityRow,
    ShortIdentity,
)
from orchestrator.wire.models import (
    ChangedEvent,
    ColdFloor,
    ContextReport,
    KvLossEvent,
    KvLossProgress,
    MeasuredEvent,
    ModelNames,
    ModelReport,
    ModelRow,
)
from orchestrator.wire.names import spelled
from orchestrator.wire.places import VERSION
from orchestrator.wire.replies import (
    Cancelled,
    CodexCosts,
    CodexMap,
    CodexReport,
    DataName,
    FileLines,
    FileTokens,
    ImportedFloor,
    KeptData,
    LoadedEvent,
    MapLine,
    OfferReply,
    ProgressEvent,
    SearchHit,
    SearchReply,
    SessionExport,
    SessionHit,
    SessionRow,
    SessionTurn,
    SymbolRow,
    SymbolsReply,
)
from orchestrator.wire.requests import LoadBody, OfferBody, ReadBody, StrategyBody, SymbolsBody
from orchestrator.wire.status import (
    AwayEvent,
    AwayReport,
    CacheReply,
    ClientStats,
    EngineWork,
    LevelEvent,
    NowEvent,
    PauseReply,
    ResumeReply,
    StatusReply,
)
from orchestrator.wire.texts import PropsReply

SEGMENTS = [("a" * 64, b"kv" * 500)]  # of a floor
REFUSALS = {
    "full": Full("the queue is full"),
    "paused": Paused("paused until resumed", "lore resume", retry_after=12.2),
    "loading": NotReady("the model is loading", "wait for it"),
    "huge": OverBudget("90,000 tokens asked, 8,000 fit", "ask about less"),
    "bug": ZeroDivisionError("a mistake of ours"),
}


FOLDERS = TemporaryDirectory(
    prefix="lore-small-", ignore_cleanup_errors=True
)  # goes when the process of the tests ends


def own_folder() -> Path:
    """A new one."""
    return Path(mkdtemp(dir=FOLDERS.name))


def small_memories() -> Memories:
    """In a file of their own; no codex has a file that they could cite."""
    store = MemoryStore(own_folder() / "memories.sqlite3")
    return Memories(store, Staleness(store, lambda codex, path: None))


class SmallCodices:
    """Every codex is one that is known, from no folder."""

    async def candidates(self, principal: Principal, asked: str | None, cwd: str) -> list[ReadableCodex]:
        del principal, cwd
        return [ReadableCodex(asked, "/nowhere")] if asked else []

    async def readable(self, principal: Principal) -> list[Codex]:
        del principal
        return []


def small_records() -> "SmallRecords":
    traces = TraceStore(own_folder() / "traces.sqlite3", 30, 10**9)
    codices: Any = SmallCodices()
    conversations: Any = None
    return SmallRecords(
        conversations, small_memories(), TraceKeeper(traces), codices, read_rules(catalogue()), own_folder(), traces
    )


@dataclass(frozen=True)
class SmallRecords(UserRecords):
    """The real ones, but for conversations: `talks` are the questions by session. `purged` are names of what was."""

    traces_held: TraceStore
    talks: dict[str, list[str]] = field(default_factory=dict)
    purged: list[str] = field(default_factory=list)

    async def sessions(self, principal: Principal) -> list[SessionRow]:
        return [filled(SessionRow, name=name, codex="demo", turns=len(turns)) for name, turns in self.talks.items()]

    async def session(self, principal: Principal, name: str) -> SessionExport:
        if name not in self.talks:
            raise NotFound(f"no session {name}", "lore session list")
        turns = tuple(SessionTurn(role="user", text=text, created=at) for at, text in enumerate(self.talks[name]))
        return filled(SessionExport, name=name, codex="demo", turns=turns)

    async def search_sessions(self, principal: Principal, query: str, n: int) -> list[SessionHit]:
        del principal
        said = [(name, turn) for name, turns in self.talks.items() for turn in turns if query in turn]
        return [filled(SessionHit, session=name, codex="demo", snippet=turn) for name, turn in said[:n]]

    async def rename_session(self, principal: Principal, name: str, new: str) -> None:
        await self.session(principal, name)
        self.talks[new] = self.talks.pop(name)

    async def drop_session(self, principal: Principal, name: str) -> None:
        await self.session(principal, name)
        del self.talks[name]

    async def purge(self, principal: Principal, name: DataName) -> KeptData:
        self.purged.append(name)
        if name != "sessions":
            return await super().purge(principal, name)
        before = await self._kept_data(principal.uid, name)
        self.talks.clear()
        return before

    async def _kept_data(self, uid: int, name: DataName) -> KeptData:
        if name != "sessions":
            return await super()._kept_data(uid, name)
        return filled(KeptData, name=name, count=len(self.talks), what="sessions")


@dataclass
class SmallService:
    """`asked` are the asks as they came; `begun` and `ended` tell of questions that wait forever."""

    known: dict[str, CodexReport] = field(default_factory=lambda: {"demo": codex("demo")})
    records: SmallRecords = field(default_factory=small_records)
    asked: list[Ask] = field(default_factory=list)
    texts_asked: list[TextAsk] = field(default_factory=list)
    loads: list[LoadBody] = field(default_factory=list)
    pauses: list[str] = field(default_factory=list)
    archive: Sequence[bytes] = field(default_factory=lambda: [archive(SEGMENTS)])  # of every codex
    running: str = "builtin:quoter"
    version: str = VERSION
    measuring_s: float | None = 5.0  # that measuring the context would take
    default_identity: str = "lorekeep"
    shorter: str = ""
    texts: dict[str, str] = field(default_factory=lambda: {"lorekeep": "You answer.\n"})
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, ask: Ask) -> AsyncIterator[AskEvent]:
        self.asked.append(ask)
        question = ask.messages[-1].content
        self.check(ask, question)
        yield Waiting("floor", 512, 1024, "demo", 240.0 if question == "patience" else 0.5)
        self.begun.set()
        try:
            if "forever" in question:
                yield Text("first ")
                await asyncio.Event().wait()
            if question == "silent":
                await asyncio.Event().wait()
        finally:
            self.ended.set()
        if question == "think":
            yield Thought("hm")
        if question == "call":
            yield ToolCall("call-1", "search_archive", '{"query": "x"}')
            yield self.answered(ask, "tool_calls")
            return
        for word in () if question == "mute" else question.split():
            yield Text(word + " ")
            if word == "break":
                raise EngineFailed("the engine died", "ask again")
        yield self.answered(ask, "length" if question == "long" else "stop")

    async def window(self) -> int | None:
        return 8192

    async def props(self) -> PropsReply:
        return filled(PropsReply, model_path=self.running)

    async def continued(self, ask: TextAsk) -> AsyncIterator[TextEvent]:
        """The prompt's words in capitals; `break` among them fails."""
        self.texts_asked.append(ask)
        if ask.prompt in REFUSALS:
            raise REFUSALS[ask.prompt]
        yield Waiting("prompt", 1, 2)
        for word in ask.prompt.split():
            if word == "break":
                raise EngineFailed("the engine died", "ask again")
            yield Text(word.upper() + " ")
        yield Continued("stop", ask.notices, prompt_tokens=100, cached_tokens=90, completion_tokens=5)

    async def tokens_of(self, text: str) -> Sequence[int]:
        return [ord(character) for character in text]

    async def text_of(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """A vector points up where the text is `up`, else to the right; only 8 characters of a text are read."""
        if texts == ("none",):
            raise NotFound("no embedding model is configured", "set embedding.model")
        rows = [(0.0, 1.0) if text == "up" else (1.0, 0.0) for text in texts]
        vectors = b"".join(struct.pack("<2f", *row) for row in rows)
        cut = tuple(max(0, len(text) - 8) for text in texts)
        tokens = tuple(min(8, len(text)) for text in texts)
        return Embedded("small", 2, vectors, tokens, cut)

    def check(self, ask: Ask, question: str) -> None:
        if question in REFUSALS:
            raise REFUSALS[question]
        if ask.codex not in (None, "none") and not spelled(ask.codex, list(self.known)):
            raise NotFound(f"no codex {ask.codex}", f"there are: {', '.join(self.known)}")
        if ask.session:
            self.records.talks.setdefault(ask.session, []).append(question)

    def answered(self, ask: Ask, reason: str) -> Answered:
        return Answered(reason, lore_of(ask), prompt_tokens=100, cached_tokens=90, completion_tokens=5)

    async def plan(self, ask: Ask, *, prompt: bool = False) -> PlanReply:
        self.check(ask, ask.messages[-1].content)
        common = {name: value for name, value in lore_of(ask) if name in PlanReply.model_fields and name != "timings"}
        predicted = Predicted(ttft_ms=40.0, kv_bytes=4096, context_pressure=0.1)
        return filled(PlanReply, **common, predicted=predicted, text="<the exact prompt>" if prompt else "")

    async def load(self, principal: Principal, request: LoadBody) -> AsyncIterator[LoadEvent]:
        self.loads.append(request)
        if request.path.endswith("missing"):
            raise InvalidRequest(f"no directory {request.path}", "name one that exists")
        if request.path.endswith("busy"):
            raise Conflict("a load of busy is running", "wait for it")
        yield ProgressEvent(event="progress", phase="walk", done=1, total=3, rate=2.0, eta_s=1.0)
        if request.path.endswith("forever"):
            self.begun.set()
            await asyncio.Event().wait()
        name = request.name or request.path.rpartition("/")[2]
        self.known[name] = codex(name, request.path)
        yield LoadedEvent(event="loaded", codex=self.known[name])

    async def offer(self, principal: Principal, body: OfferBody) -> OfferReply:
        return OfferReply(codex=body.name, wanted=tuple(one.sha256 for one in body.files))

    async def take_files(self, principal: Principal, name: str, body: bytes) -> int:
        return len(body)

    async def sent_changed(self, principal: Principal, name: str) -> CodexReport:
        return self.found(name)

    async def cancel_load(self, principal: Principal, name: str) -> Cancelled:
        return Cancelled(cancelled=self.found(name).name, what="load")

    async def codices(self, principal: Principal) -> list[CodexReport]:
        return list(self.known.values())

    async def codex(self, principal: Principal, name: str) -> CodexReport:
        return self.found(name)

    async def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        yield LoadedEvent(event="loaded", codex=self.found(name))

    async def drop(self, principal: Principal, name: str) -> None:
        self.found(name)
        del self.known[name]

    def found(self, name: str) -> CodexReport:
        if name not in self.known:
            raise NotFound(f"no codex {name}", f"there are: {', '.join(self.known)}")
        return self.known[name]

    async def search(
        self, principal: Principal, query: str, codex: str | None, n: int, graph: bool, cwd: str
    ) -> SearchReply:
        if query == "nothing":
            return SearchReply(hits=(), notices=("demo is being indexed",))
        hit = SearchHit(
            path="src/a.py",
            start=10,
            end=11,
            symbol="run",
            score=0.5,
            scores={"text": 0.5},
            snippet="\ndef run():\n    pass",
            line=10,
        )
        return SearchReply(hits=(hit,)[:n], notices=(), absent=query == '"its words"')

    async def read(self, principal: Principal, body: ReadBody) -> FileLines:
        if body.path != "src/a.py":
            raise NotFound(f"{body.path!r} is no file of this codex", "there are: src/a.py")
        text = "".join(f"line {number}\n" for number in range(body.start, (body.end or 12) + 1))
        return FileLines(path=body.path, start=body.start, end=body.end or 12, total=12, text=text)

    async def consult(self, principal: Principal, body: StrategyBody) -> StrategyState:
        size = size_of_text(body.char_count or 40 * len(body.file_paths))
        decision = consulted(body.query, size, body.model_context_length or 8_192, body.used_tokens)
        return strategy_state(decision, body.used_tokens)

    async def codex_map(self, principal: Principal, name: str, most: int) -> CodexMap:
        self.found(name)
        lines = (MapLine(path="src/a.py", line="App: run"), MapLine(path="src/b.py", line="help_it"))
        return CodexMap(files=lines if most > 100 else lines[:1], left_out=0 if most > 100 else 1)

    async def codex_costs(self, principal: Principal, name: str, most: int) -> CodexCosts:
        self.found(name)
        rows = (
            FileTokens(path="src/a.py", level="full", tokens=90),
            FileTokens(path="src/b.py", level="line", tokens=4),
        )
        return CodexCosts(
            codex=name,
            tier="full",
            tokens=100,
            kv_bytes_per_token=8.0,
            files=rows[:most],
            left_out=2 - min(2, most),
            outside=0,
        )

    async def export_floor(self, principal: Principal, name: str) -> AsyncIterator[bytes]:
        self.found(name)
        for piece in self.archive:
            yield piece

    async def import_floor(self, body: AsyncIterator[bytes]) -> ImportedFloor:
        """Refuses what begins with `other`, at once."""
        found = b""
        async for piece in body:
            found += piece
            if found.startswith(b"other"):
                raise InvalidRequest(
                    "the prefix is of no use here: V is q8_0 there and f16 here", "the setting model.kv_type_v"
                )
        return filled(
            ImportedFloor, codex="demo", state="main@1a2b3c4", tokens=600, bytes=len(found), notices=("mind that",)
        )

    async def symbols(self, principal: Principal, body: SymbolsBody) -> SymbolsReply:
        if body.name == "nothing":
            return SymbolsReply(symbols=(), near=("noting",))
        row = filled(
            SymbolRow,
            name="run",
            qualified="App.run",
            kind="method",
            path="src/a.py",
            line=10,
            end=12,
            signature="def run(self)",
        )
        if body.name == "idle":
            return SymbolsReply(symbols=(), meant=(row,))
        uses = (20, 22) if body.what == "callers" else ()
        return SymbolsReply(symbols=(row.model_copy(update={"uses": uses}),), meant=(row,))

    async def identities(self, principal: Principal) -> tuple[IdentityRow, ...]:
        return tuple(
            filled(IdentityRow, name=name, default=name == self.default_identity, bytes=len(text.encode()))
            for name, text in sorted(self.texts.items())
        )

    async def identity(self, principal: Principal, name: str) -> IdentityReport:
        if name not in self.texts:
            raise NotFound(f"no identity named {name!r}", f"there are: {', '.join(self.texts)}")
        return self.told(name, self.texts[name])

    async def use_identity(self, principal: Principal, name: str, *, dry_run: bool) -> DefaultIdentity:
        told, before = await self.identity(principal, name), self.default_identity
        if not dry_run:
            self.default_identity = name
        return DefaultIdentity(identity=told, before=before, changed=name != before)

    async def condense_identity(self, principal: Principal, name: str) -> ShortIdentity:
        report = await self.identity(principal, name)
        short = self.shorter or report.text
        return ShortIdentity(
            identity=report, short=short, short_tokens=len(short.split()), by="extract", why="it is small"
        )

    async def put_identity(
        self, principal: Principal, name: str, text: str, *, dry_run: bool, keep: bool = False
    ) -> IdentityChange:
        check(text)
        before, told = self.texts.get(name), self.told(name, text)
        if not dry_run:
            self.texts[name] = text
        was = None if before is None else len(before.split())
        return IdentityChange(identity=told, before=was, changed=text != before, saved=text != before and not dry_run)

    def told(self, name: str, text: str) -> IdentityReport:
        tokens = len(text.split())
        cost = FloorCost(name="demo", tokens=1_000 + tokens, seconds=2.5)
        return filled(IdentityReport, name=name, text=text, tokens=tokens, codices=("demo",), cost=(cost,))

    async def models(self) -> list[ModelRow]:
        return [MODEL]

    async def loaded_model(self) -> str:
        return MODEL.id

    async def model(self, principal: Principal, name: str) -> ModelReport:
        if name != MODEL.id:
            raise NotFound(f"no model {name}", "there are: builtin:quoter")
        return MODEL

    async def use_model(self, name: str) -> AsyncIterator[ModelEvent]:
        if name == "broken":
            raise InvalidRequest("broken cannot be loaded: it is broken", "builtin:quoter answers again")
        changed = name != self.running
        cold = tuple(ColdFloor(name=one.name, tokens=one.floor_tokens) for one in self.known.values() if changed)
        self.running = name
        yield ProgressEvent(event="progress", phase="loading", done=0, total=1, rate=0.0, eta_s=None)
        about = ModelNames(name=name, path=name, notice="")
        yield ChangedEvent(event="changed", model=about, changed=changed, cold=cold)

    async def measure_kv(
        self, principal: Principal, codex: str | None, cwd: str
    ) -> AsyncIterator[KvLossProgress | KvLossEvent]:
        if codex == "full":
            raise NotReady("KV type q8_0 cannot be measured now: 6,144 tokens of KV are needed beside what is held")
        yield KvLossProgress(event="measuring", kind="q8_0", done=64, total=2048)
        loss = KvLoss(tokens=2048, mean=0.001, worst=0.01, changed=0.004, codex=codex or cwd)
        yield KvLossEvent(event="measured", kind="q8_0", loss=loss)

    async def context(self) -> ContextReport:
        left = {"tokens": 9_000, "answers": 66, "seconds": self.measuring_s}
        return filled(ContextReport, model=self.running, kv="f16 f16", words="not measured", left=left, whole=left)

    async def measure_context(self, *, again: bool) -> AsyncIterator[MeasureEvent]:
        yield ProgressEvent(event="progress", phase="measure", done=1, total=3, rate=2.0, eta_s=1.0)
        found = filled(
            ContextReport,
            model=self.running,
            kv="f16 f16",
            words="measured again" if again else "measured",
            complete=True,
        )
        yield MeasuredEvent(event="measured", context=found)

    async def pause(self, why: str, seconds: float | None) -> PauseReply:
        self.pauses.append(why)
        return PauseReply(name="1", away=self.away(seconds))

    async def hold(self, why: str, seconds: float | None, name: str) -> AsyncIterator[AwayEvent]:
        self.pauses.append(why)
        yield AwayEvent(event="away", away=self.away(seconds), name=name or "1")
        self.begun.set()
        await asyncio.Event().wait()

    def resume(self, name: str | None = None) -> ResumeReply:
        ended, self.pauses = tuple(self.pauses), []
        self.ended.set()
        return ResumeReply(ended=ended, engine="starting")

    def away(self, seconds: float | None) -> AwayReport | None:
        if not self.pauses:
            return None
        why = ", ".join(self.pauses)
        return AwayReport(cause="pause", why=why, since=0.0, until=seconds, gone=True)

    async def status(self, principal: Principal) -> StatusReply:
        return filled(
            StatusReply,
            version=self.version,
            model={"name": self.running, "path": self.running},
            engine=ENGINE.model_copy(update={"reason": principal.sigil}),  # so that a test sees who asked
            governor={"level": "calm", "pressure": 0.25},
            codices=tuple(self.known.values()),
            sessions=len(self.records.talks),
            queue={"running": 1, "waiting": 0},
            paused=self.away(None),
            plugins=("'odd' of some-package: it is broken",),
        )

    async def cache(self) -> CacheReply:
        return cache_report(EngineSnapshot(1, kv_bytes=4096, counters=COUNTED), on_gpu=False, ranges=True)

    async def engine_work(self, principal: Principal) -> EngineWork:
        return EngineWork(weight_bytes=1 << 20, prompt_tokens=0, tickets=(), caches=())

    async def client_stats(self, principal: Principal) -> ClientStats:
        return ClientStats(clients=())

    async def events(self, principal: Principal) -> AsyncIterator[ReplyShape]:
        yield filled(NowEvent, level="calm")
        yield LevelEvent(event="level", level="high", power="normal")
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def ready(self) -> tuple[bool, str]:
        return ("demo" in self.known, "loading the model")
