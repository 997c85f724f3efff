"""What a memory is: its kind, the states that it may be in, and its record. Pure.

    decision    RECORDED ─▶ PENDING ─▶ REVIEWED             kept, failures too
    fact        NEW ─▶ CONFIRMED ─▶ CORE ─▶ SUPERSEDED      INACTIVE from each of them
    procedure   ACTIVE ─▶ EFFECTIVE ⇄ INEFFECTIVE ─▶ RETIRED
    episode     ACTIVE ─▶ SUMMARIZED ─▶ ARCHIVED
    censor      CREATED ─▶ ACTIVE ─▶ ESCALATED ─▶ RETIRED

A memory that nobody stated begins as PROPOSED, which no model is shown; a person confirms it or sets it aside as INACTIVE.
Knows no database, no clock and no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from formatters.plugins import HIDDEN_STATES, MemoryKind

START_TRUST = 0.5
CORE_FROM = 3  # confirmations
JUDGED_FROM = 5  # judgements or measurements: of fewer nothing is concluded
DAY_S = 86_400.0


class Kind(StrEnum):
    DECISION = "decision"
    FACT = "fact"
    PROCEDURE = "procedure"
    EPISODE = "episode"
    CENSOR = "censor"


class MemoryState(StrEnum):
    PROPOSED = "proposed"
    INACTIVE = "inactive"
    RECORDED = "recorded"
    PENDING = "pending"
    REVIEWED = "reviewed"
    NEW = "new"
    CONFIRMED = "confirmed"
    CORE = "core"
    SUPERSEDED = "superseded"
    ACTIVE = "active"
    EFFECTIVE = "effective"
    INEFFECTIVE = "ineffective"
    SUMMARIZED = "summarized"
    ARCHIVED = "archived"
    CREATED = "created"
    ESCALATED = "escalated"
    RETIRED = "retired"


class DecisionOutcome(StrEnum):
    """Of a decision."""

    PENDING = "pending"
    SUCCESS = "success"
    PARTIAL = "partial"
    FAILURE = "failure"


class Severity(StrEnum):
    """Of a censor: `warn` marks an answer, `block` refuses a tool call and marks text."""

    WARN = "warn"
    BLOCK = "block"


class WatchedText(StrEnum):
    """Which text a censor's trigger is matched against."""

    QUESTION = "question"
    ANSWER = "answer"


_S = MemoryState


KINDS: Mapping[str, MemoryKind] = {
    kind.name: kind
    for kind in (
        MemoryKind(
            Kind.DECISION,
            heading="Relevant Past Decisions",
            node="decisions",
            first=_S.RECORDED,
            states={
                _S.PROPOSED: {_S.RECORDED, _S.INACTIVE},
                _S.RECORDED: {_S.PENDING, _S.REVIEWED},
                _S.PENDING: {_S.REVIEWED},
                _S.REVIEWED: set(),
                _S.INACTIVE: {_S.RECORDED},
            },
        ),
        MemoryKind(
            Kind.FACT,
            heading="Known Information",
            node="facts",
            first=_S.NEW,
            end=_S.INACTIVE,
            states={
                _S.PROPOSED: {_S.NEW, _S.CONFIRMED, _S.CORE, _S.INACTIVE},
                _S.NEW: {_S.CONFIRMED, _S.CORE, _S.SUPERSEDED, _S.INACTIVE},
                _S.CONFIRMED: {_S.CORE, _S.SUPERSEDED, _S.INACTIVE},
                _S.CORE: {_S.SUPERSEDED, _S.INACTIVE},
                _S.SUPERSEDED: {_S.INACTIVE},
                _S.INACTIVE: {_S.NEW},
            },
        ),
        MemoryKind(
            Kind.PROCEDURE,
            heading="Procedure",
            node="procedures",
            first=_S.ACTIVE,
            end=_S.RETIRED,
            states={
                _S.PROPOSED: {_S.ACTIVE, _S.INACTIVE},
                _S.ACTIVE: {_S.EFFECTIVE, _S.INEFFECTIVE, _S.RETIRED},
                _S.EFFECTIVE: {_S.INEFFECTIVE, _S.ACTIVE, _S.RETIRED},
                _S.INEFFECTIVE: {_S.EFFECTIVE, _S.ACTIVE, _S.RETIRED},
                _S.RETIRED: set(),
                _S.INACTIVE: {_S.ACTIVE},
            },
        ),
        MemoryKind(
            Kind.EPISODE,
            heading="Past Experience",
            node="episodic_memory",
            first=_S.ACTIVE,
            states={
                _S.PROPOSED: {_S.ACTIVE, _S.INACTIVE},
                _S.ACTIVE: {_S.SUMMARIZED},
                _S.SUMMARIZED: {_S.ARCHIVED},
                _S.ARCHIVED: set(),
                _S.INACTIVE: {_S.ACTIVE},
            },
        ),
        MemoryKind(
            Kind.CENSOR,
            heading="Active Constraints",
            node="censors",
            first=_S.CREATED,
            end=_S.RETIRED,
            states={
                _S.PROPOSED: {_S.CREATED, _S.INACTIVE},
                _S.CREATED: {_S.ACTIVE, _S.RETIRED},
                _S.ACTIVE: {_S.ESCALATED, _S.RETIRED},
                _S.ESCALATED: {_S.RETIRED},
                _S.RETIRED: set(),
                _S.INACTIVE: {_S.CREATED},
            },
        ),
    )
}
"""The kinds of Lorekeep, by name. What leads nowhere is refused. Their budgets are those of the frames (`intent`)."""

HIDDEN: frozenset[str] = frozenset(map(MemoryState, HIDDEN_STATES))
"""Never shown to a model, nor found unless asked for."""


def without_package(name: str) -> MemoryKind:
    """A kind whose package is not installed any more: its memories stay as they are, and none is looked up."""
    return MemoryKind(name, heading="", states={}, first="", budget=0, candidates=0)


_NAMED: dict[type[StrEnum], dict[str, str]] = {one: {name.value: name for name in one} for one in (Kind, MemoryState)}


def _name(record: "MemoryRecord | NewMemory") -> None:
    """Makes members of `Kind` and `MemoryState` of its names, so that they can be told by identity; a package's stay."""
    object.__setattr__(record, "kind", _NAMED[Kind].get(record.kind, record.kind))
    if record.state is not None:
        object.__setattr__(record, "state", _NAMED[MemoryState].get(record.state, record.state))


@dataclass(frozen=True)
class CodeCitation:
    """Code that a memory is about: `path` in its codex, lines `start` to `end` from 1, both inclusive, 0 and 0 for the
    whole file; `digest` of those lines' text (sha256, hex) as they were; the commit, '' where none is known.

    Without a path it is the commit as a whole, which never changes.
    """

    path: str
    start: int = 0
    end: int = 0
    digest: str = ""
    commit: str = ""

    @property
    def place(self) -> str:
        """As it is written: `PATH`, `PATH:START-END` or `commit HASH`."""
        if not self.path:
            return f"commit {self.commit}"
        return f"{self.path}:{self.start}-{self.end}" if self.start else self.path


@dataclass(frozen=True)
class MemoryRecord:
    """One record. Times are seconds since the epoch. `uid`: whose it is; no other user sees it.

    kind, state: of `Kind` and `MemoryState`, or the names of a package's kind and its states.
    codex:       its name, None for a memory of no codex.
    subject, attribute: of a fact: what it is about, as `user` and `style:tone`; of a list's entry `list:NAME`.
    text:        in full, as recorded. `micro` and `summary` were made from it when it was written.
    confidence:  0..1, of who stated it. `trust`: 0..1, moved by ratings and feedback.
    source:      user, import, model, agent (a program that proposed it), or trace:ID.
    suspect:     why, since the code that it is about changed; '' while it did not.
    domain:      of a censor: the file, folder or frame where alone it holds; of a procedure: words that find it, too.
    successor:   of a superseded fact: the id of what replaced it.
    activations: answers that used it; of a censor: texts that triggered it. `effectiveness`: share of the `judged` ones
                 that were right, 0..1.
    trigger:     of a censor: the words that must all stand in one sentence of the text that it `watches`.
    suggested:   of a decision: the outcome that a turn told and nobody confirmed.
    """

    id: str  # 10 hex digits
    kind: str
    state: str
    uid: int
    text: str
    micro: str
    summary: str
    sigil: str = ""
    codex: str | None = None
    subject: str = ""
    attribute: str = ""
    confidence: float = 1.0
    trust: float = START_TRUST
    created: float = 0.0
    updated: float = 0.0
    used: float = 0.0
    source: str = "user"
    evidence: tuple[CodeCitation, ...] = ()
    suspect: str = ""
    verbatim: bool = False
    pinned: bool = False
    domain: str = ""
    successor: str = ""
    confirmations: int = 0
    activations: int = 0
    effectiveness: float = 0.0
    outcome: DecisionOutcome | None = None
    trigger: str = ""
    watches: WatchedText | None = None
    severity: Severity | None = None
    judged: int = 0
    suggested: DecisionOutcome | None = None

    def __post_init__(self) -> None:
        _name(self)

    def with_doubt(self, text: str) -> str:
        """What says this of it, to a model, where the code that it is about changed."""
        return f"{text} (may be outdated: {self.suspect})" if self.suspect else text

    @property
    def is_shown(self) -> bool:
        """Whether a model may be shown it."""
        return self.state not in HIDDEN


@dataclass(frozen=True)
class NewMemory:
    """A memory that is not stored yet; the fields are those of `MemoryRecord`. `state` None: the first of its kind."""

    uid: int
    kind: str
    text: str
    codex: str | None = None
    subject: str = ""
    attribute: str = ""
    verbatim: bool = False
    created: float | None = None
    evidence: tuple[CodeCitation, ...] = ()
    source: str = "user"
    sigil: str = ""
    confidence: float = 1.0
    domain: str = ""
    trigger: str = ""
    watches: WatchedText | None = None
    severity: Severity | None = None
    outcome: DecisionOutcome | None = None
    pinned: bool = False
    state: str | None = None

    def __post_init__(self) -> None:
        _name(self)
