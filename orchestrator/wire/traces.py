"""Traces: what the model saw and said in one turn."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.answers import Lore, NotedMemory, RelevanceReport
from orchestrator.wire.base import ReplyShape, StrictRequest, empty

Vote = Literal["up", "down"]


class TraceRow(ReplyShape):
    """One turn, in short."""

    id: str = Field(description="its identifier")
    created: float = Field(description="seconds since 1970")
    codex: str | None = Field(description="that was asked about; none: the bare model")
    session: str | None = Field(description="its conversation, by the name that it had then")
    title: str = Field(description="the beginning of the question")
    vote: Vote | None = Field(description="yours; none: not given")
    tokens: int = Field(description="of its prompt")
    cached: int = Field(description="of these: needed no computing")
    strategy: str = Field(description="that was chosen for it")


class TraceRows(ReplyShape):
    """Your turns."""

    traces: tuple[TraceRow, ...] = Field(description="the newest first")


class TracedItem(ReplyShape):
    """A stretch of a prompt."""

    block: str = Field(description="one of the six")
    name: str = Field(description="where it came from; template: the chat template's own text")
    text: str = Field(description="exactly as the model got it")


class RuleFiring(ReplyShape):
    """A rule that kept a part of the context out of a turn."""

    node: str = Field(description="the part")
    rule: str = Field(description="its place in context-relevance.json")
    strength: Literal["hard", "soft"] = Field(description="what is soft is taken back where there is room")
    tokens: int = Field(description="that it kept out: of memories as they were found, of others on average, estimated")
    recovered: bool = Field(
        description="fetched all the same: for room, urgency or safety, or because another needs it"
    )
    regretted: str = Field(
        description="empty: not; answer, next question: which of them used a memory that it kept out all the same"
    )
    missed: tuple[str, ...] = Field(description="ids of memories that it kept out")


class TracedRelevance(RelevanceReport):
    """What the relevance gate decided about a turn, and whether it was right."""

    fired: tuple[RuleFiring, ...] = Field(description="the rules that held")


class RuleRow(ReplyShape):
    """What one rule did to one part of the context."""

    variant: str = Field(description="of the rules; empty: the plain ones")
    rule: str = Field(description="its place in context-relevance.json")
    node: str = Field(description="the part")
    strength: Literal["hard", "soft"] = Field(description="as it was then")
    fired: int = Field(description="turns in which it held")
    recovered: int = Field(description="of these: the part was fetched all the same")
    saved: int = Field(description="tokens that it kept out, in all")
    regretted: int = Field(description="turns in which what it kept out was used all the same")


class RelevanceStats(ReplyShape):
    """Whether the rules of relevance pay, by the turns that are traced."""

    rules: tuple[RuleRow, ...] = Field(description="by variant, the most fired first")
    changes: tuple[str, ...] = Field(
        (), exclude_if=empty, description="with `?suggest=1`: what should be changed, and why, in words"
    )
    patch: str = Field(
        "",
        exclude_if=empty,
        description="with `?suggest=1`: JSON to merge over your context-relevance.json; nothing applies it",
    )


class TraceReport(TraceRow):
    """One turn."""

    question: str = Field(description="all of it")
    answer: str = Field(description="all of it; without thoughts")
    finish_reason: str = Field(description="stop, length or tool_calls")
    note: str = Field(description="yours, with the vote; may be empty")
    memories: tuple[str, ...] = Field(description="ids of those that the prompt held")
    relevance: TracedRelevance = Field(description="what the relevance gate left out, and whether it was right")
    prompt_bytes: int = Field(description="of the prompt's text")
    lore: Lore = Field(description="as the answer had it")
    prompt: tuple[TracedItem, ...] = Field(
        (),
        exclude_if=empty,
        description="with `?prompt=1`: the last prompt of the turn; its texts, joined, are all of it",
    )


class TraceReply(ReplyShape):
    """One turn."""

    trace: TraceReport = Field(description="what the model saw and said")


class FeedbackReply(TraceReply):
    """What came of a vote."""

    proposed: NotedMemory | None = Field(
        None,
        exclude_if=empty,
        description="a memory: why the answer was wrong, or a short one that was right; it waits for `confirm`",
    )


class TracedBlock(ReplyShape):
    """What a block of the second prompt has otherwise. Items are named by where they came from."""

    block: str = Field(description="one of the six")
    same: bool = Field(description="nothing differs")
    before: int = Field(description="characters in the first prompt")
    after: int = Field(description="characters in the second prompt")
    changed: tuple[str, ...] = Field(description="items with another text")
    added: tuple[str, ...] = Field(description="items that the first one lacks")
    removed: tuple[str, ...] = Field(description="items that the second one lacks")


class TraceBreak(ReplyShape):
    """Where two prompts part."""

    block: str = Field(description="one of the six")
    item: str = Field(description="in it")
    characters: int = Field(description="that both prompts begin with")


class TraceDiff(ReplyShape):
    """How the prompt of a turn differs from that of another one."""

    before: str = Field(description="the first turn")
    after: str = Field(description="the second turn")
    broke_at: TraceBreak | None = Field(description="none: the prompts are the same")
    blocks: tuple[TracedBlock, ...] = Field(description="all six, in order")


class FeedbackBody(StrictRequest):
    """What you think of an answer."""

    vote: Vote = Field(description="whether it was right")
    note: str = Field("", max_length=10_000, description="why; replaces an earlier one")
