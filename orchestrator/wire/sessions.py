"""Replies about conversations."""

from pydantic import Field

from orchestrator.wire.shapes import Shape


class SessionRow(Shape):
    """A conversation."""

    name: str = Field(description="its name")
    codex: str | None = Field(description="that it is about")
    title: str = Field(description="the beginning of its first question")
    created: float = Field(description="seconds since 1970")
    used: float = Field(description="seconds since 1970")
    turns: int = Field(description="messages in it")


class SessionRows(Shape):
    """Your conversations."""

    sessions: tuple[SessionRow, ...] = Field(description="the last used first")


class SessionTurn(Shape):
    """A message of a conversation."""

    role: str = Field(description="user, assistant or tool")
    text: str = Field(description="what was said")
    created: float = Field(0.0, description="seconds since 1970")
    evidence: str = Field("", description="what stood beside a question, as JSON")
    tool_call_id: str = Field("", description="of a tool's result")
    tool_calls: str = Field("", description="what an answer called, as JSON")


class SessionExport(Shape):
    """A conversation with its turns."""

    name: str = Field(description="its name")
    codex: str | None = Field(description="that it is about")
    title: str = Field(description="the beginning of its first question")
    created: float = Field(description="seconds since 1970")
    used: float = Field(description="seconds since 1970")
    turns: tuple[SessionTurn, ...] = Field(description="in their order")


class SessionReply(Shape):
    """One conversation."""

    session: SessionExport = Field(description="with its turns")
