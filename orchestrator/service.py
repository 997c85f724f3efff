"""What the daemon can do, as its API sees it: the port between the routes and everything behind them.

Routes translate HTTP to these values and back. Faults are raised as `orchestrator.errors.LoreError`; nothing here knows
HTTP, sockets or JSON.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from orchestrator.engine.messages import Chosen
from orchestrator.wire.answers import Lore, PlanReply, StrategyState, Waiting
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.context import ContextReport, MeasuredEvent
from orchestrator.wire.identities import DefaultIdentity, IdentityChange, IdentityReport, IdentityRow, ShortIdentity
from orchestrator.wire.memories import (
    FoundMemories,
    MemoriesBody,
    MemoriesImported,
    MemoryBody,
    MemoryChange,
    MemorySearchBody,
    MemoryStats,
    MemoryView,
)
from orchestrator.wire.models import ChangedEvent, KvLossEvent, KvLossProgress, ModelReport, ModelRow
from orchestrator.wire.names import owner_of
from orchestrator.wire.replies import (
    Cancelled,
    CodexCosts,
    CodexMap,
    CodexReport,
    DataName,
    FileLines,
    ImportedFloor,
    KeptData,
    KeptReply,
    LoadedEvent,
    OfferReply,
    ProgressEvent,
    SearchReply,
    SessionExport,
    SessionHit,
    SessionRow,
    SymbolsReply,
)
from orchestrator.wire.requests import (
    AttachedText,
    LoadBody,
    OfferBody,
    ReadBody,
    StrategyBody,
    SymbolsBody,
    ToolFunction,
)
from orchestrator.wire.status import (
    AwayEvent,
    CacheReply,
    ClientStats,
    EngineWork,
    PauseReply,
    ResumeReply,
    StatusReply,
)
from orchestrator.wire.texts import PropsReply
from orchestrator.wire.traces import FeedbackBody, FeedbackReply, RelevanceStats, TraceDiff, TraceReport, TraceRow

OWNER_SIGIL = "owner"


@dataclass(frozen=True)
class Principal:
    """Who asks: the peer's credentials from the kernel and what configuration grants them."""

    uid: int
    gid: int
    pid: int
    groups: tuple[int, ...] = ()
    sigil: str = OWNER_SIGIL
    scopes: frozenset[str] = frozenset()
    codices: tuple[str, ...] = ()  # patterns of names: what others share with its sigil

    def may(self, scope: str) -> bool:
        return "admin" in self.scopes or scope in self.scopes

    def owns(self, codex: str) -> bool:
        """Those that the daemon's owner loaded are of all who carry the owner's sigil."""
        uid = owner_of(codex)
        return self.sigil == OWNER_SIGIL if uid is None else self.uid == uid

    def reads(self, codex: str) -> bool:
        """Its own, and what is shared with its sigil. `admin` alone shows nobody's."""
        return self.owns(codex) or any(fnmatchcase(codex, pattern) for pattern in self.codices)


@dataclass(frozen=True)
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    role: str  # system, user, assistant, tool
    content: str
    tool_call_id: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # of an assistant's message: what it called then


@dataclass(frozen=True)
class ToolChoice:
    """Which of the client's tools an answer calls: as it likes, none, one at least; `names`: of these alone."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are drawn, as far as the client says; None: as usual."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None

    @staticmethod
    def of(body: Any) -> "SamplingOptions":
        """Of a request, which has them by the same names."""
        return SamplingOptions(**{one.name: getattr(body, one.name) for one in fields(SamplingOptions)})


@dataclass(frozen=True)
class Ask:
    """One question with its options. `messages` is the whole conversation, or with a session only what is new."""

    principal: Principal
    messages: tuple[Message, ...]
    codex: str | None = None  # None: by `client["cwd"]`, else the only one; wire.answers.BARE: no codex
    session: str | None = None  # "" starts a new one, None is stateless
    continue_last: bool = False
    identity: str | None = None
    strategy: str | None = None
    max_tokens: int = 2048
    sampling: SamplingOptions = SamplingOptions()
    logprobs: int | None = None  # log-probabilities of the answer's tokens, and of so many likeliest in each place
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    tools: tuple[ToolFunction, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_calls: bool = True  # an answer may make several
    attachments: tuple[AttachedText, ...] = ()
    client: Mapping[str, str] = field(default_factory=dict)  # cwd, file, selection
    wait: bool = True
    timeout_s: float | None = None
    think: bool = True
    private: bool = False
    cache: bool = True  # False: computed whole, in a context of its own
    verbatim: tuple[str, ...] = ()
    frame: str | None = None  # these three: given by the client instead of computed
    mode: str | None = None
    urgency: str | None = None
    variant: str | None = None  # of the rules of relevance; None: the session's
    notices: tuple[str, ...] = ()  # what the answer says of the request itself
    agent: str = ""  # the program that asks, by its own word


@dataclass(frozen=True)
class TextAsk:
    """A text that the model continues, without chat, codex and memory; with `suffix` what fits between the two."""

    principal: Principal
    prompt: str
    suffix: str | None = None
    max_tokens: int = 16
    sampling: SamplingOptions = SamplingOptions()
    stop: tuple[str, ...] = ()
    wait: bool = True
    timeout_s: float | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text:
    """`chosen`: the tokens that the text came from, where the ask wants their log-probabilities."""

    delta: str
    chosen: tuple[Chosen, ...] = ()


@dataclass(frozen=True)
class Thought:
    delta: str


@dataclass(frozen=True)
class Effort:
    """What an answer took, beside what its lore object says. `rounds`: how often the model was asked again with what our
    tools found. `prefilled` prompt tokens were computed in `prefill_ms`, of all rounds. `tokens`: of the first prompt, by
    block and by where they came from. `cut`: what the governor left out or shortened, by its kind."""

    rounds: int = 0
    prefilled: int = 0
    prefill_ms: float = 0.0
    tokens: Mapping[tuple[str, str], int] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Answered:
    """The last event of every ask."""

    finish_reason: str  # stop, length, tool_calls
    lore: Lore
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    effort: Effort = Effort()


@dataclass(frozen=True)
class Continued:
    """The last event of a text that was continued."""

    finish_reason: str  # stop, length
    notices: tuple[str, ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


TextEvent = Waiting | Text | Continued
AskEvent = Waiting | Text | Thought | ToolCall | Answered


@dataclass(frozen=True)
class Embedded:
    """Vectors of texts, one after the other: float32, little end first, each of length 1.

    `tokens` that were read of each text, and how many at its end did not fit the model's window and were `cut`.
    """

    model: str
    dimensions: int
    vectors: bytes
    tokens: tuple[int, ...]
    cut: tuple[int, ...]


LoadEvent = ProgressEvent | LoadedEvent  # the second is the last
ModelEvent = ProgressEvent | ChangedEvent
MeasureEvent = ProgressEvent | MeasuredEvent  # the second is the last


class Records(Protocol):
    """What is kept of each user. Every method may raise LoreError; none gives another user's."""

    async def sessions(self, principal: Principal) -> list[SessionRow]: ...
    async def session(self, principal: Principal, name: str) -> SessionExport: ...
    async def search_sessions(self, principal: Principal, query: str, n: int) -> list[SessionHit]:
        """Messages of the asking user's conversations."""
        ...

    async def rename_session(self, principal: Principal, name: str, new: str) -> None: ...
    async def drop_session(self, principal: Principal, name: str) -> None: ...
    async def memories(
        self, principal: Principal, kind: str | None = None, codex: str | None = None, state: str | None = None
    ) -> tuple[MemoryView, ...]: ...
    async def review_memories(self, principal: Principal) -> tuple[MemoryView, ...]:
        """What a person should look at: proposals, and what may be outdated."""
        ...

    async def memory(self, principal: Principal, id: str) -> MemoryView: ...  # noqa: A002 - the record's own word
    async def add_memory(self, principal: Principal, body: MemoryBody) -> MemoryView:
        """As it stands then: the same again confirms one, another value supersedes one."""
        ...

    async def import_memories(self, principal: Principal, body: MemoriesBody) -> MemoriesImported:
        """All or nothing; what is here already stays as it is."""
        ...

    async def change_memory(self, principal: Principal, id: str, body: MemoryChange) -> MemoryView: ...  # noqa: A002
    async def forget_memory(self, principal: Principal, id: str) -> str:  # noqa: A002
        """Deletes it for good. Gives its whole id."""
        ...

    async def forget_codex(self, principal: Principal, name: str) -> int:
        """Deletes the asking user's memories of a codex, loaded or not, for good. Gives their number."""
        ...

    async def search_memories(self, principal: Principal, body: MemorySearchBody) -> FoundMemories: ...
    async def memory_stats(self, principal: Principal) -> MemoryStats:
        """How well the asking user's memories work."""
        ...

    async def traces(self, principal: Principal, most: int, before: str | None = None) -> list[TraceRow]:
        """The asking user's, the newest first; those older than the trace `before`. No method gives another user's. Raises
        NotFound for an unknown `before`."""
        ...

    async def trace(self, principal: Principal, name: str, *, prompt: bool = False) -> TraceReport: ...
    async def relevance_stats(self, principal: Principal, *, suggest: bool) -> RelevanceStats:
        """Whether the rules of relevance pay, by the asking user's turns."""
        ...

    async def trace_difference(self, principal: Principal, before: str, after: str) -> TraceDiff: ...
    async def vote(self, principal: Principal, name: str, body: FeedbackBody) -> FeedbackReply:
        """Keeps it, and moves the trust of the memories that the answer was shown."""
        ...

    async def kept_data(self, principal: Principal) -> KeptReply:
        """The asking user's traces and sessions, and with `admin` the cache of all."""
        ...

    async def purge(self, principal: Principal, name: DataName) -> KeptData:
        """Deletes it for good. Gives it as it was."""
        ...


class Service(Protocol):
    """Every method may raise LoreError. Streams end by themselves; closing one early cancels what it runs.

    The routes hold to the scopes. `principal` is for what depends on who asks: of codices that it may not read nothing
    is told, and a name of one is not found.
    """

    @property
    def records(self) -> Records: ...

    def ask(self, ask: Ask) -> AsyncIterator[AskEvent]: ...
    def continued(self, ask: TextAsk) -> AsyncIterator[TextEvent]: ...
    async def plan(self, ask: Ask, *, prompt: bool = False) -> PlanReply: ...
    def load(self, principal: Principal, request: LoadBody) -> AsyncIterator[LoadEvent]:
        """Closing the stream does not stop the load; `cancel_load` does."""
        ...

    async def offer(self, principal: Principal, body: OfferBody) -> OfferReply:
        """What of a codex's files the daemon has not yet. Raises InvalidRequest for names that leave the codex, and for too
        much."""
        ...

    async def take_files(self, principal: Principal, name: str, body: bytes) -> int:
        """Keeps files that were offered. Raises InvalidRequest where they are others."""
        ...

    async def sent_changed(self, principal: Principal, name: str) -> CodexReport:
        """What was offered last is what the codex has now. Raises NotFound, InvalidRequest while files are missing."""
        ...

    async def cancel_load(self, principal: Principal, name: str) -> Cancelled:
        """Returns when it has ended: `what` was a load, or a floor that one left to be computed."""
        ...

    async def codices(self, principal: Principal) -> list[CodexReport]: ...
    async def codex(self, principal: Principal, name: str) -> CodexReport: ...
    def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]: ...
    async def drop(self, principal: Principal, name: str) -> None:
        """Of another user's only with `admin`. Raises NotFound, NotPermitted, Conflict."""
        ...

    def export_floor(self, principal: Principal, name: str) -> AsyncIterator[bytes]:
        """An archive of the codex's floor, computed where it is not resident. Faults come before the first piece."""
        ...

    async def import_floor(self, body: AsyncIterator[bytes]) -> ImportedFloor:
        """What such an archive held, once prompts find it; all or nothing."""
        ...

    async def read(self, principal: Principal, body: ReadBody) -> FileLines:
        """Of the codex as it answers now. Raises NotFound for what is no file of it, or has no such line."""
        ...

    async def consult(self, principal: Principal, body: StrategyBody) -> StrategyState:
        """Whether a text should be read whole or searched. Raises NotReady where no window is known."""
        ...

    async def codex_map(self, principal: Principal, name: str, most: int) -> CodexMap:
        """Lines of at most so many characters. Raises NotFound."""
        ...

    async def codex_costs(self, principal: Principal, name: str, most: int) -> CodexCosts:
        """Of at most so many files. Raises NotFound, NotReady."""
        ...

    async def search(
        self, principal: Principal, query: str, codex: str | None, n: int, graph: bool, cwd: str
    ) -> SearchReply: ...
    async def symbols(self, principal: Principal, body: SymbolsBody) -> SymbolsReply:
        """Of the codex's current generation. Raises NotFound, NotReady where its files are still being read."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Raises NotFound where no model is configured that embeds."""
        ...

    async def window(self) -> int | None:
        """Tokens of prompt and answer together; None before a model is loaded."""
        ...

    async def props(self) -> PropsReply: ...
    async def tokens_of(self, text: str) -> Sequence[int]:
        """Ids of a text as content. This and the next raise NotReady before a model is loaded."""
        ...

    async def text_of(self, ids: Sequence[int]) -> str: ...

    async def identities(self, principal: Principal) -> tuple[IdentityRow, ...]: ...
    async def identity(self, principal: Principal, name: str) -> IdentityReport: ...
    async def use_identity(self, principal: Principal, name: str, *, dry_run: bool) -> DefaultIdentity: ...
    async def condense_identity(self, principal: Principal, name: str) -> ShortIdentity: ...
    async def put_identity(
        self, principal: Principal, name: str, text: str, *, dry_run: bool, keep: bool = False
    ) -> IdentityChange:
        """Writes its file, or with `dry_run` only tells what the change costs."""
        ...

    async def models(self) -> list[ModelRow]:
        """All at hand. Reads the header of every file, which takes a quarter of a second: no question may wait for it."""
        ...

    async def loaded_model(self) -> str:
        """The id of the one that answers, or will once it is loaded."""
        ...

    async def model(self, principal: Principal, name: str) -> ModelReport: ...
    def use_model(self, name: str) -> AsyncIterator[ModelEvent]:
        """The running daemon changes to this model. Progress; then the change, when it is loaded; then progress of
        building codices. Closing it leaves the change in effect."""
        ...

    def measure_kv(
        self, principal: Principal, codex: str | None, cwd: str
    ) -> AsyncIterator[KvLossProgress | KvLossEvent]:
        """Measures on a codex what the type of KV changes, and keeps it. Raises NotReady where there is no room."""
        ...

    async def context(self) -> ContextReport:
        """How long a text the model follows. Waits for it to be loaded."""
        ...

    def measure_context(self, *, again: bool) -> AsyncIterator[MeasureEvent]:
        """Closing the stream ends it; what was measured is kept."""
        ...

    async def pause(self, why: str, seconds: float | None) -> PauseReply:
        """Returns when nothing of the memory is the engine's. Without `seconds` until `resume`."""
        ...

    def hold(self, why: str, seconds: float | None, name: str) -> AsyncIterator[AwayEvent]:
        """A pause that lasts until `resume`, also when the iterator is closed. `name`: one that a daemon before began."""
        ...

    def resume(self, name: str | None = None) -> ResumeReply:
        """Ends one pause, or whatever keeps the engine away."""
        ...

    async def status(self, principal: Principal) -> StatusReply: ...
    async def cache(self) -> CacheReply: ...
    async def engine_work(self, principal: Principal) -> EngineWork:
        """Waits for no model."""
        ...

    async def client_stats(self, principal: Principal) -> ClientStats:
        """What the asking user's clients made of the cache."""
        ...

    def events(self, principal: Principal) -> AsyncIterator[ReplyShape]:
        """What changes from now on; the first reports the present state. Nothing of codices that the principal may not
        read. Endless: the client ends it."""
        ...

    async def ready(self) -> tuple[bool, str]: ...
