"""What a conversation carries from turn to turn: its State, and its Environment.

A session's turns lie in the database, with the ids that answers had and what stood beside the questions. A client without a
session is recognised by the hash of its messages without the newest: it then continues with the same State, evidence and
Environment, and its prefix holds.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from formatters.blocks import Role
from formatters.context import AmendmentView, Artifacts, CodexView, EnvironmentView, StateView, TurnView
from orchestrator.answering.sessions import StoredTurn as Stored
from orchestrator.codices.state import CodexState
from orchestrator.prompt.composing import Composed, TokenCache
from orchestrator.service import Message

MOST_CONVERSATIONS = 512
SPEAKERS = frozenset(Role)


@dataclass(frozen=True)
class Conversation:
    """Where a conversation stands. `composed` is its last prompt, to tell where the next one leaves it."""

    state: StateView
    environment: EnvironmentView | None = None
    codex: CodexView | None = None
    composed: Composed | None = None


class Conversations:
    """The latest ones, in memory: losing one costs a recomputation of its tail, nothing else."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Conversation] = OrderedDict()

    def get(self, key: str) -> Conversation | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: str, conversation: Conversation) -> None:
        self._kept[key] = conversation
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_CONVERSATIONS:
            self._kept.popitem(last=False)


def key_of(uid: int, codex: str | None, messages: Sequence[Message]) -> str:
    """The name of a stateless conversation that consists of these messages. One user never continues another's."""
    said = repr((uid, codex, [(one.role, one.content) for one in messages if one.role != "system"]))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def session_key(session: int) -> str:
    return f"session {session}"


def state_of_messages(messages: Sequence[Message]) -> StateView:
    """The State of a conversation of which only the messages are known."""
    turns = [TurnView(role=Role(one.role), text=one.content) for one in messages if one.role in SPEAKERS]
    return StateView(turns=tuple(turns))


def state_of_session(stored: Sequence[Stored], tokens: TokenCache) -> StateView:
    """The State of a session; its answers keep the ids that they were generated with."""
    turns = []
    for one in stored:
        if one.ids:
            tokens.learn(one.text, one.ids)
        beside = Artifacts.model_validate_json(one.evidence) if one.evidence else Artifacts()
        turns.append(TurnView(role=Role(one.role), text=one.text, **dict(beside)))
    return StateView(turns=tuple(turns))


def stored_turns(state: StateView, ids: Mapping[str, bytes], since: int) -> list[Stored]:
    """The turns of a closed State from number `since` on, as a session keeps them."""
    return [
        Stored(role=turn.role.value, text=turn.text, ids=ids.get(turn.text, b""), evidence=_beside(turn))
        for turn in state.turns[since:]
    ]


def _beside(turn: TurnView) -> str:
    beside = Artifacts(amendments=turn.amendments, attachments=turn.attachments, evidence=turn.evidence)
    return "" if beside == Artifacts() else beside.model_dump_json()


def codex_of(conversation: Conversation, codex_state: CodexState | None) -> CodexView | None:
    """A conversation keeps its generation and coverage while they are resident; a new conversation has the newest."""
    if codex_state is None:
        return None
    kept = conversation.codex
    same = kept is not None and kept.generation == codex_state.view.generation and kept.tier == codex_state.view.tier
    return kept if same else codex_state.view


def pending_amendments(conversation: Conversation, codex_state: CodexState | None) -> tuple[AmendmentView, ...]:
    """The codex's amendments that this conversation has no report of; a new conversation has all in its Codex block."""
    if codex_state is None or codex_of(conversation, codex_state) is codex_state.view:
        return ()
    reported = max((one.number for one in reported_amendments(conversation)), default=0)
    return tuple(one for one in codex_state.view.amendments if one.number > reported)


def state_without_reported(conversation: Conversation, codex_state: CodexState | None) -> StateView:
    """The conversation's State, without the amendments of earlier turns where its Codex block has all of them.

    That is so when it moves to another generation and when it is resumed. The older amendments would be read as replacing
    the newer text in the Codex block."""
    state, view = conversation.state, codex_of(conversation, codex_state)
    if view is conversation.codex or not any(turn.amendments for turn in state.turns):
        return state
    return state.model_copy(update={"turns": tuple(one.model_copy(update={"amendments": ()}) for one in state.turns)})


def reported_amendments(conversation: Conversation) -> list[AmendmentView]:
    view = conversation.codex.amendments if conversation.codex else ()
    return [*view, *(one for turn in conversation.state.turns for one in turn.amendments)]
