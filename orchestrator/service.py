"""What the daemon is asked and what it gives: the values between the routes and the program that answers them.

Routes translate HTTP to these and back; nothing here knows HTTP, sockets or JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

from orchestrator.engine.messages import Chosen
from orchestrator.wire.answers import Lore, Waiting
from orchestrator.wire.models import ChangedEvent, MeasuredEvent
from orchestrator.wire.names import owner_of
from orchestrator.wire.replies import LoadedEvent, ProgressEvent
from orchestrator.wire.requests import AttachedText, ToolFunction

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


@dataclass(frozen=True)
class CallDelta:
    """A piece of a call's arguments while they are said. The whole call follows, unless the answer is cut off."""

    id: str
    name: str
    delta: str


TextEvent = Waiting | Text | Continued
AskEvent = Waiting | Text | Thought | CallDelta | ToolCall | Answered


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
