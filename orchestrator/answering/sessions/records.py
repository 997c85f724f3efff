"""What a conversation is made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Session:
    """One user's conversation on one codex. Times are seconds since the epoch; `turns` counts messages."""

    id: int
    name: str
    uid: int
    codex: str | None  # None: the bare model
    title: str
    created: float
    used: float
    turns: int = 0


@dataclass(frozen=True)
class StoredTurn:
    """One message. `ids` are its token ids as generated (uint32 in native order), so that it can be replayed exactly:
    text encoded again may give other tokens. `evidence` is the retrieved text that stood beside it, word for word.
    """

    role: str  # system, user, assistant, tool
    text: str
    ids: bytes = b""
    evidence: str = ""
    tool_call_id: str = ""
    tool_calls: str = ""  # JSON of an assistant's calls, or empty
    created: float = 0.0  # filled in when it is stored
