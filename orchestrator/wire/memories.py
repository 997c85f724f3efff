"""What crosses the socket about memories."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.wire.base import Plain, ReplyShape, StrictRequest

KindName = Plain
OutcomeName = Literal["pending", "success", "partial", "failure"]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Line = Annotated[int, Field(ge=0, lt=2**31)]  # a database holds no larger one than 2**63, and no file has so many
MOST_NAME = 1_000  # characters
Name = Annotated[
    Plain, Field(max_length=MOST_NAME)
]  # of what is kept with a memory: its text is not the place of these
LAST_MOMENT = 253_402_214_400.0  # 9999-12-31: a calendar has no later day, in no time zone


class CitedCode(ReplyShape):
    """Code that a memory is about."""

    path: str = Field(description="the file, as its codex names it; empty: the commit as a whole")
    start: int = Field(0, description="first line, from 1; 0: the whole file")
    end: int = Field(0, description="last line")
    digest: str = Field("", description="sha256 of these lines as they were, and a mark of the first; empty: not known")
    commit: str = Field("", description="the commit that they were seen in; empty where it is not known")


class CodeToCite(StrictRequest):
    """Code that a memory is to be about; the fields are those of `CitedCode`."""

    path: Annotated[Plain, Field(max_length=4_096)] = Field(
        "", description="the file, as its codex names it; left out: the commit as a whole"
    )
    start: Line = Field(0, description="first line, from 1; 0: the whole file")
    end: Line = Field(0, description="last line")
    digest: str = Field("", description="of these lines as they were; empty: as they are now")
    commit: Name = Field("", description="the commit that they were seen in, or that is cited without a path")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.path and (not self.commit or self.start or self.end or self.digest):
            raise ValueError("a path, with or without lines, or a commit alone")
        return self


class MemoryBody(StrictRequest):
    """A memory to keep. The same again confirms it; another value of the same subject and attribute supersedes it."""

    kind: KindName = Field("fact", description="decision, fact, procedure, episode, censor, or a kind of a package")
    text: Annotated[str, Field(min_length=1)] = Field(description="what is to be remembered, at most 65,536 characters")
    codex: Name | None = Field(None, description="the codex that it is about; none: no codex; left out: by cwd")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is meant")
    subject: Name = Field(
        "", description="of a fact: what it is about; user: whoever asks; list:NAME: an entry of a list"
    )
    attribute: Name = Field("", description="of a fact: what of its subject it says")
    verbatim: bool = Field(False, description="never shortened")
    created: Annotated[float, Field(gt=0, lt=LAST_MOMENT, allow_inf_nan=False)] | None = Field(
        None, description="seconds since 1970, where it is older than now"
    )
    confidence: Share = Field(1.0, description="how sure it is, 0 to 1")
    domain: Name = Field(
        "", description="of a censor: the place or frame where it holds; of a procedure: words that find it"
    )
    trigger: Name = Field(
        "", description="of a censor: words that a sentence must hold; left out: what its text forbids"
    )
    watches: Literal["question", "answer"] | None = Field(
        None, description="of a censor: the text that it watches; left out: answer"
    )
    severity: Literal["warn", "block"] | None = Field(None, description="of an export: what it had come to")
    outcome: OutcomeName | None = Field(None, description="of a decision")
    proposed: bool = Field(False, description="no model is shown it until a person confirms it")
    imported: bool = Field(False, description="it comes from an export: its codex need not be loaded")
    state: str | None = Field(None, description="of an export: the state that it had")
    pinned: bool = Field(False, description="the last to go")
    evidence: tuple[CodeToCite, ...] = Field((), description="the code that it is about")


class MemoriesBody(StrictRequest):
    """What an export holds."""

    memories: tuple[MemoryBody, ...] = Field(description="taken all or not at all; their codices need not be loaded")


class MemoriesImported(ReplyShape):
    """What became of them."""

    imported: int = Field(description="memories that are new here")
    known: int = Field(description="memories that were here already; nothing of them was changed")


class MemoryChange(StrictRequest):
    """What is to be done with a memory."""

    do: Literal["confirm", "retire", "consecrate", "up", "down", "outcome", "become"] = Field(
        description="confirm: it is true; retire: it is not shown any more; consecrate: never shortened, last to go; "
        "up, down: its trust; outcome: of a decision; become: another state of its kind"
    )
    state: Plain | None = Field(None, description="with become: which")
    outcome: OutcomeName | None = Field(None, description="with outcome: which")


class MemorySearchBody(StrictRequest):
    """What to look for among the memories."""

    query: Annotated[str, Field(min_length=1, max_length=10_000)] = Field(description="words, or a question")
    kind: KindName | None = Field(None, description="of this kind alone")
    codex: Plain | None = Field(None, description="of this codex and of none; left out: by cwd")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is meant")
    n: Annotated[int, Field(ge=1, le=100)] = Field(10, description="most memories")


class MemoryView(ReplyShape):
    """A memory."""

    id: str = Field(description="10 hex digits; its beginning names it too")
    kind: KindName = Field(description="what it is")
    state: str = Field(description="where it stands; proposed, inactive and retired ones are shown to no model")
    text: str = Field(description="as recorded")
    micro: str = Field(description="one line")
    summary: str = Field(description="50 to 100 tokens")
    codex: str | None = Field(description="that it is about")
    subject: str = Field(description="of a fact: what it is about")
    attribute: str = Field(description="of a fact: what of its subject it says")
    confidence: float = Field(description="0 to 1")
    trust: float = Field(description="0 to 1, moved by ratings")
    created: float = Field(description="seconds since 1970")
    updated: float = Field(description="seconds since 1970")
    used: float = Field(description="last shown to a model, in seconds since 1970; 0: never")
    showings: int = Field(description="how often it was shown to a model")
    source: str = Field(description="user, import, or the trace that it came from")
    sigil: str = Field(description="who made it")
    suspect: str = Field(description="why it may be outdated: the code that it is about changed")
    verbatim: bool = Field(description="never shortened")
    pinned: bool = Field(description="the last to go")
    domain: str = Field(
        description="of a censor: the place or frame where it holds; of a procedure: words that find it"
    )
    successor: str = Field(description="of a superseded fact: the memory that replaced it")
    confirmations: int = Field(description="how often it was confirmed")
    activations: int = Field(description="answers that used it; of a censor: how often it was triggered")
    outcome: OutcomeName | None = Field(description="of a decision")
    suggested: OutcomeName | None = Field(description="of a decision: the outcome that a turn told; confirm takes it")
    effectiveness: float = Field(description="of a procedure or censor: share of the judged uses that were right")
    judged: int = Field(description="of a procedure or censor: how often it was said whether it was right")
    trigger: str = Field(description="of a censor: words that a text must hold to trigger it")
    watches: str | None = Field(description="of a censor: question or answer")
    severity: str | None = Field(description="of a censor: warn or block")
    evidence: tuple[CitedCode, ...] = Field(description="the code that it is about")


class MemoryRows(ReplyShape):
    """Your memories."""

    memories: tuple[MemoryView, ...] = Field(description="the newest first")


class MemoryReply(ReplyShape):
    """One memory."""

    memory: MemoryView = Field(description="as it stands now")


class Forgotten(ReplyShape):
    """What was deleted."""

    forgotten: str = Field(description="the memory's id")


class FoundMemoryRow(ReplyShape):
    """A memory that a search found."""

    id: str = Field(description="10 hex digits")
    kind: KindName = Field(description="what it is")
    state: str = Field(description="where it stands")
    score: float = Field(description="share of the query that it holds, 0 to 1; rare words weigh most")
    summary: str = Field(description="50 to 100 tokens")


class FoundMemories(ReplyShape):
    """What a search among the memories found."""

    memories: tuple[FoundMemoryRow, ...] = Field(description="the most relevant first")
    enough: bool = Field(description="false: none of them stands above the relevance floor")


class MemoryFigure(ReplyShape):
    """One figure of how well memories work."""

    name: str = Field(description="of the figure")
    says: str = Field(description="what it is")
    value: float | None = Field(description="none: nothing was measured yet")
    measured: int = Field(description="on how many turns, blocks, memories or decisions")
    least: float | None = Field(description="the target is above it; with most: between the two")
    most: float | None = Field(description="the target is below it")
    reached: bool | None = Field(
        description="whether the target is; none: fewer than 5 were measured, or it has no target"
    )


class MemoryStats(ReplyShape):
    """How well your memories work."""

    days: int = Field(description="that the figures of turns look back")
    figures: tuple[MemoryFigure, ...] = Field(description="each with its target")
