"""Questions over small parts: a codex in memory, a tiny vocabulary, and an engine that holds so much of a prompt."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
from support.composing import TEMPLATE
from support.word_encoder import WordEncoder

from codex.catalog.generations import Generation
from codex.trees.port import TreeState
from formatters.context import CodexPiece, CodexView, Evidence, IdentityView
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from governor.budget import Bound, MemoryBudget
from governor.settings import ClaimSettings
from orchestrator.answering.answer import Answers
from orchestrator.answering.clients import ClientLedger
from orchestrator.answering.conversations import Conversations
from orchestrator.answering.inference import Finished
from orchestrator.answering.preparing import Preparer
from orchestrator.answering.sessions import SessionStore
from orchestrator.answering.traces import TraceKeeper, TraceStore
from orchestrator.codices.freshness import Freshness, WatchStatus
from orchestrator.codices.serving_identities import ServingIdentity
from orchestrator.codices.state import CodexState
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.engine.messages import ID_BYTES, Grant, Matched, Reuse, Tier
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.errors import NotReady
from orchestrator.karma.memories import Memories
from orchestrator.karma.recall import Recall
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.composing import Assembler, Composer, Floor, TokenCache
from orchestrator.prompt.coverage import Coverage, CoverageDecision, CoverageSizes, FloorRoom
from orchestrator.prompt.evidence import FoundPassages
from orchestrator.prompt.situation import Levels, ReadableCodex
from orchestrator.prompt.strategy import DEFAULT_STRATEGY
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import catalogue
from orchestrator.service import Answered, Ask, Message, Principal, Text
from orchestrator.wire.answers import PlanReply

ME = Principal(1000, 1000, 1, scopes=frozenset({"admin"}))
BUDGET = MemoryBudget(1, "RAM", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, Bound.KV, 0)


def asking(question: str = "Where is main?", *earlier: Message, **options: Any) -> Ask:
    return Ask(ME, (*earlier, Message("user", question)), **options)


def demo(coverage: Coverage = Coverage.FULL, text: str = "def main():\n    pass\n", content: int = 12) -> CodexState:
    """A codex of one file, of which the floor has this text."""
    tier = "skeleton" if coverage is Coverage.SKELETON else coverage.value
    return CodexState(
        name="demo",
        roots=("/src/demo",),
        generation=Generation("demo", 1, TreeState(), ()),
        view=CodexView(name="demo", generation=1, tier=tier, pieces=(CodexPiece(path="a.py", text=text),)),
        sizes=CoverageSizes(content, 5, 3),
        decision=CoverageDecision(coverage, 1, 10, 100, "it fits"),
        tokens=10,
    )


def fresh(name: str) -> Freshness:
    return Freshness(name, WatchStatus(watched=True))


@dataclass
class SmallHouse:
    """`cached`: tokens that the engine's cache holds of any prompt. `hits`: what any search finds. `due`: a new generation,
    by which the codex has no log."""

    folder: Path
    codex: CodexState | None = field(default_factory=demo)
    window: int = 4_000
    cells: int = 100_000
    cached: int = 0
    due: bool = False
    hits: tuple[Evidence, ...] = ()
    seconds: float = 20.0  # that the model may take for a gist
    queries: list[str] = field(default_factory=list)
    encoder: WordEncoder = field(default_factory=WordEncoder)
    identity: ServingIdentity = field(
        default_factory=lambda: ServingIdentity(
            IdentityView(name="keeper", text="You keep the lore.", version="0" * 12)
        )
    )

    def __post_init__(self) -> None:
        self.tokens = TokenCache(self.encoder)
        template = ChatTemplate(TEMPLATE)
        self.placement = probe(template)
        self.composer = Composer(builtin(), template, self.placement, Assembler(self.tokens, "root"))
        self.tools, self.stop, self.opens_thought = (), (), False
        self.sessions = SessionStore(self.folder / "sessions.sqlite3")
        self.memories = MemoryStore(self.folder / "memories.sqlite3")
        self.traces = TraceKeeper(TraceStore(self.folder / "traces.sqlite3", 30, 10**9))
        self.info = SimpleNamespace(device="CPU", kv_bytes_per_token=8.0)
        self.snapshot, self.reason = EngineSnapshot(0), ""
        self.state, self.loaded, self.paused = ChildState.READY, 1.0, None
        self.grant, self.levels, self.budget = Grant(1, self.cells, self.window), Levels("calm"), BUDGET

    # -- what the rooms around ask for

    @property
    def usable_grant(self) -> Grant:
        return self.grant

    async def candidates(self, principal: Principal, asked: str | None, cwd: str) -> list[ReadableCodex]:
        del principal, asked, cwd
        return [ReadableCodex(self.codex.name, "/src/demo")] if self.codex else []

    async def ensure_built(self, name: str) -> CodexState:
        assert self.codex is not None, name
        return self.codex

    def wait_for_room(self, state: CodexState, over: int) -> NotReady | None:
        return NotReady(f"{over} of {state.amended}") if self.due and over <= state.amended else None

    async def served(self, state: CodexState | None, identity: str | None = None) -> ServingIdentity:
        del state, identity
        return self.identity

    def answered(self, *_: object) -> None: ...

    @contextmanager
    def question(self) -> Iterator[None]:
        yield

    async def ensure_ready(self) -> None: ...

    def room(self, identity: int) -> FloorRoom:
        return FloorRoom(self.window, identity, self.cells)

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> FoundPassages:
        del codex, graph
        self.queries.append(query)
        return FoundPassages(self.hits[:n])

    @contextmanager
    def held(self, floor: Floor, key: object, *, asked: bool = True) -> Iterator[None]:
        del key, asked
        self.floor_tokens = floor.tokens
        yield

    async def match(self, floor: str, tail: bytes, owner: int, max_tokens: int = 0) -> Matched:
        del floor, owner
        length = min(self.cached, self.floor_tokens + len(tail) // ID_BYTES - max_tokens)
        return Matched(1, length, (Reuse(0, length, Tier.VRAM),))

    async def answer(self, turn: object, model: object) -> AsyncIterator[Text | Finished]:
        del turn, model
        yield Text("In a.py.")
        yield Finished("stop", "In a.py.", (), ())

    # -- asking

    def answers(self) -> Answers:
        me: Any = self
        preparer = Preparer(
            me,
            cast(Any, None),
            Conversations(self.sessions),
            me,
            me,
            ClaimSettings(gist_s=self.seconds),
            DEFAULT_STRATEGY,
            fresh,
            Recall(self.memories, Staleness(self.memories, lambda codex, path: None)),
            read_rules(catalogue()),
            catalogue(),
            True,
        )

        def ready() -> Any:
            future = asyncio.get_running_loop().create_future()
            future.set_result(self)
            return future

        kept = Memories(self.memories, preparer.recall.staleness)
        nothing = lambda codex, paths: ""  # noqa: E731
        clients = ClientLedger(me)
        return Answers(
            preparer,
            lambda: me,
            me,
            me,
            me,
            me,
            ready,
            "builtin:tiny",
            "",
            nothing,
            self.traces,
            kept,
            clients,
            120.0,
        )

    def plan(self, ask: Ask) -> PlanReply:
        return anyio.run(self.answers().plan, ask)

    def ask(self, ask: Ask) -> Answered:
        async def last() -> Answered:
            events = [event async for event in self.answers().ask(ask)]
            assert isinstance(events[-1], Answered)
            return events[-1]

        return anyio.run(last)
