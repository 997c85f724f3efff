"""What is kept of an answered question: its turn in a session, and what of it memories are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from formatters.blocks import Role
from orchestrator.answering.conversations import Conversation, Conversations
from orchestrator.answering.inference import Finished
from orchestrator.answering.question import PreparedQuestion
from orchestrator.answering.sessions import Session
from orchestrator.errors import LoreError
from orchestrator.karma.learning import HeardTurn
from orchestrator.karma.records import Kind
from orchestrator.service import Message, ToolCall
from orchestrator.wire.answers import CensorMark, Citation, NotedMemory


@dataclass(frozen=True)
class SavedTurn:
    """The session of an answer's turn, whether it began with it, and why the turn could not be saved, '' where it was."""

    session: Session | None
    began: bool = False
    not_kept: str = ""


@dataclass(frozen=True)
class Remembered:
    """What memories had to do with an answer beside its prompt: censors that it goes against, what was made of the turn,
    and why nothing could be, '' where it could."""

    censored: tuple[CensorMark, ...] = ()
    noted: tuple[NotedMemory, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class ClosedTurn:
    """A turn behind its answer's last word. `outdated`: which of the cited files differ on disk, in words; `trace`: the
    answer's identifier, None for a private one."""

    saved: SavedTurn
    citations: tuple[Citation, ...]
    outdated: str
    trace: str | None
    remembered: Remembered


def saved(
    prepared: PreparedQuestion, conversations: Conversations, finished: Finished, ids: Mapping[str, bytes]
) -> SavedTurn:
    """Saves the turn. A new session, named or not, begins with its first answer: a question that was refused leaves none
    behind."""
    ask, codex = prepared.ask, prepared.codex_state.name if prepared.codex_state else None
    uid, turn, kept = ask.principal.uid, prepared.turn, SavedTurn(prepared.session)
    if ask.private:
        return kept
    closed = turn.state.closed(turn.query, *turn.running, *finished.running)
    asked, *answered = closed.turns[len(turn.state.turns) :]
    whole = (asked.model_copy(update={"attachments": prepared.attachments}), *answered)
    if prepared.messages.results:  # the question and the calls are kept already
        whole = (*turn.running[-len(prepared.messages.results) :], *finished.running)
    gists = [gist for gist in closed.gists if gist.first > prepared.conversation.state.gone]
    karma = prepared.found.recalled.karma
    conversation = Conversation(closed, turn.environment, turn.codex, prepared.composed, karma, prepared.variant)
    try:
        if prepared.session is None and ask.session is None:
            conversations.close_messages(uid, codex, [*ask.messages, answer_of(finished)], conversation)
            return kept
        if kept.session is None:
            kept = SavedTurn(conversations.sessions.create(uid, codex, ask.session or None), began=True)
        assert kept.session is not None
        conversations.close_turn(kept.session, conversation, whole, ids, gists)
    except LoreError as fault:  # a full disk, or another question began a session of that name meanwhile
        return replace(kept, not_kept=fault.message)
    return kept


def answer_of(finished: Finished) -> Message:
    """As the client got it, and sends it back."""
    calls = [call for turn in finished.running if turn.role is Role.ASSISTANT for call in turn.calls]
    return Message(
        "assistant", finished.text, tool_calls=tuple(ToolCall(one.id, one.name, one.arguments) for one in calls)
    )


def heard_turn(prepared: PreparedQuestion, trace: str) -> HeardTurn:
    """The turn as it is learned from: the words of the user, and the answer before them."""
    principal, codex = prepared.ask.principal, prepared.codex_state
    turns, karma = prepared.conversation.state.turns, prepared.conversation.karma
    said = [one.text for one in turns if one.role is Role.ASSISTANT]
    shown = karma.entries if karma is not None else ()
    return HeardTurn(
        uid=principal.uid,
        text=prepared.messages.question,
        codex=codex.name if codex is not None else None,
        before=said[-1] if said else "",
        earlier=tuple(one.text for one in turns if one.role is Role.USER),
        procedures={one.id: one.text for one in shown if one.kind is Kind.PROCEDURE},
        sigil=principal.sigil,
        source=f"trace:{trace}",
    )
