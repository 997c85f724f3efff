"""What a conversation carries from turn to turn: its State, its Environment and its codex.

The latest ones are in memory, by session or, for a client without one, by the hash of its messages. A turn stays whole on
disk. What its conversation goes on with may be less: filler is gone, and gists stand for old turns.

A client without a session continues with the same State, evidence and Environment, and its prefix holds.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from formatters.blocks import Role
from formatters.calls import PLAIN_CALLS, CallFormat
from formatters.context import Artifacts, CallView, CodexView, EnvironmentView, GistView, StateView, TurnView
from orchestrator.answering.sessions import Session, SessionStore, StoredTurn
from orchestrator.codices.state import CodexState
from orchestrator.karma.recall import PinnedKarma, karma_from_json, karma_to_json
from orchestrator.prompt.budget import in_short
from orchestrator.prompt.composing import Composed, TokenCache
from orchestrator.service import Message

MOST_CONVERSATIONS = 512
SPEAKERS = frozenset(Role)


@dataclass(frozen=True)
class Conversation:
    """What the next turn begins with. `composed` is the last prompt, to tell where the next one leaves it; `karma` the
    memories that it holds, None before its first turn; `variant` of the rules of relevance that it is pinned to."""

    state: StateView
    environment: EnvironmentView | None = None
    codex: CodexView | None = None
    composed: Composed | None = None
    karma: PinnedKarma | None = None
    variant: str = ""


class Conversations:
    """The latest ones, in memory: losing one costs a recomputation of its tail, nothing else."""

    def __init__(self, sessions: SessionStore) -> None:
        self.sessions = sessions
        self._kept: OrderedDict[str, Conversation] = OrderedDict()

    def of_session(self, session: Session, tokens: TokenCache) -> Conversation:
        kept = self._get(_session_key(session.id))
        if kept is not None:
            return kept
        state = _state_of_session(self.sessions.turns(session.id), tokens)
        kept_karma = karma_from_json(self.sessions.karma(session.id))
        return Conversation(in_short(state, self.sessions.gists(session.id)), karma=kept_karma)

    def of_messages(
        self, uid: int, codex: str | None, messages: Sequence[Message], form: CallFormat = PLAIN_CALLS
    ) -> Conversation:
        """`form`: how calls are written that are known from the messages alone."""
        return self._get(key_of(uid, codex, messages)) or Conversation(state_of_messages(messages, form))

    def close_turn(
        self,
        session: Session,
        conversation: Conversation,
        turns: Sequence[TurnView],
        ids: Mapping[str, bytes],
        gists: Sequence[GistView] = (),
    ) -> None:
        """Saves what is new: the messages, whole, and gists of earlier ones; `ids` has those of generated texts. Raises
        LoreError."""
        stored = [turn_to_store(turn, ids.get(turn.text, b"")) for turn in turns]
        self.sessions.append(session.id, stored, gists, karma_to_json(conversation.karma), conversation.variant)
        self._keep(_session_key(session.id), conversation)

    def close_messages(
        self, uid: int, codex: str | None, messages: Sequence[Message], conversation: Conversation
    ) -> None:
        """A client without a session comes back with these messages, the last of which is our answer."""
        self._keep(key_of(uid, codex, messages), conversation)

    def _get(self, key: str) -> Conversation | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def _keep(self, key: str, conversation: Conversation) -> None:
        self._kept[key] = conversation
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_CONVERSATIONS:
            self._kept.popitem(last=False)


def key_of(uid: int, codex: str | None, messages: Sequence[Message]) -> str:
    """The name of a stateless conversation that consists of these messages. One user never continues another's."""
    named = repr((uid, codex, [_said(one) for one in _joined(messages) if one.role != "system"]))
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    """Some clients send what was said beside calls, and these, as messages of their own."""
    last: Message | None = None
    for one in messages:
        if last is not None and last.role == one.role == "assistant" and one.tool_calls and not one.content:
            last = replace(last, tool_calls=(*last.tool_calls, *one.tool_calls))
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _said(message: Message) -> tuple[str, ...]:
    """What makes it another message. A client may have read a call's arguments and written them again, and what was said
    beside a call may be white space, which clients drop."""
    calls = (part for one in message.tool_calls for part in (one.id, one.name, _canonical(one.arguments)))
    content = message.content.strip() if message.tool_calls else message.content
    return (message.role, content, message.tool_call_id, *calls)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _session_key(session: int) -> str:
    return f"session {session}"


def state_of_messages(messages: Sequence[Message], form: CallFormat = PLAIN_CALLS) -> StateView:
    """The State of a conversation of which only the messages are known."""
    return StateView(turns=tuple(_turn_of(one, form) for one in messages if one.role in SPEAKERS))


def _turn_of(message: Message, form: CallFormat) -> TurnView:
    made = message.tool_calls
    written = form.written([(one.name, one.arguments) for one in made]) if made else ""
    return TurnView(
        role=Role(message.role),
        text=message.content + written,
        calls=tuple(CallView(id=one.id, name=one.name, arguments=one.arguments) for one in made),
        answers=message.tool_call_id,
    )


def _state_of_session(stored: Sequence[StoredTurn], tokens: TokenCache) -> StateView:
    """The State of a session; its answers keep the ids that they were generated with."""
    turns = []
    for one in stored:
        if one.ids:
            tokens.learn_answer(one.text, one.ids)
        beside = Artifacts.model_validate_json(one.evidence) if one.evidence else Artifacts()
        calls = tuple(CallView(**call) for call in json.loads(one.tool_calls)) if one.tool_calls else ()
        turns.append(
            TurnView(role=Role(one.role), text=one.text, calls=calls, answers=one.tool_call_id, **dict(beside))
        )
    return StateView(turns=tuple(turns))


def turn_to_store(turn: TurnView, ids: bytes) -> StoredTurn:
    beside = Artifacts(**{name: getattr(turn, name) for name in Artifacts.model_fields})
    evidence = "" if beside == Artifacts() else beside.model_dump_json()
    calls = json.dumps([dict(call) for call in turn.calls]) if turn.calls else ""
    return StoredTurn(turn.role.value, turn.text, ids, evidence, turn.answers, calls)


# -- what its next turn has of the codex


def resumed(conversation: Conversation, codex_state: CodexState | None) -> tuple[CodexView | None, StateView]:
    """The codex and the State that the next turn begins with, the codex's amendments that it has no report of among them.

    A conversation keeps its generation and coverage while they are resident; a new conversation has the newest. One that
    moves to another generation, or that is resumed, has all amendments in its Codex block. Those of its earlier turns are
    left out then: they would be read as replacing the newer text in the Codex block.
    """
    state, kept = conversation.state, conversation.codex
    if codex_state is None:
        return None, state
    now = codex_state.view
    if kept is not None and kept.generation == now.generation and kept.tier == now.tier:
        of_turns = [one for turn in state.turns for one in turn.amendments]
        reported = max((one.number for one in (*kept.amendments, *of_turns)), default=0)
        pending = tuple(one for one in now.amendments if one.number > reported)
        return kept, state.model_copy(update={"amendments": pending})
    if any(turn.amendments for turn in state.turns):
        turns = tuple(turn.model_copy(update={"amendments": ()}) for turn in state.turns)
        state = state.model_copy(update={"turns": turns})
    return now, state.model_copy(update={"amendments": ()})


# -- sessions
