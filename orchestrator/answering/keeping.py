"""The answered question as its conversation's next turn: in its session, or in memory for a client without one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.answering.agent import Finished
from orchestrator.answering.preparing import PreparedQuestion
from orchestrator.answering.sessions.store import SessionStore
from orchestrator.answering.turn_state import Conversation, Conversations, key_of, session_key, stored_turns
from orchestrator.errors import LoreError
from orchestrator.service import Ask, Message


@dataclass(frozen=True)
class ConversationStore:
    sessions: SessionStore
    conversations: Conversations

    def kept(self, prepared: PreparedQuestion, finished: Finished, ids: Mapping[str, bytes]) -> PreparedQuestion:
        """With its session, where one begins. The answer was given: that it could not be kept is told beside it."""
        if prepared.ask.private:
            return prepared
        try:
            prepared = self._with_session(prepared)
            self._remember(prepared, finished, ids)
        except LoreError as fault:  # also a conflict: another question began one of that name meanwhile
            return replace(prepared, actions=(*prepared.actions, f"this turn is not kept: {fault.message}"))
        return prepared

    def _with_session(self, prepared: PreparedQuestion) -> PreparedQuestion:
        """A new session, named or not, begins with its first answer: a question that was refused leaves none behind."""
        ask = prepared.ask
        if prepared.session is not None or ask.session is None:
            return prepared
        codex = prepared.standing.name if prepared.standing else None
        session = self.sessions.create(ask.principal.uid, codex, ask.session or None)
        return replace(prepared, session=session, began=True)

    def _remember(self, prepared: PreparedQuestion, finished: Finished, ids: Mapping[str, bytes]) -> None:
        """The turn becomes State."""
        state = prepared.turn.state.closed(prepared.turn.query, *finished.running)
        kept = Conversation(state, prepared.turn.environment, prepared.turn.codex, prepared.composed)
        if prepared.session is not None:
            self.sessions.append(prepared.session.id, stored_turns(state, ids, len(prepared.turn.state.turns)))
            self.conversations.keep(session_key(prepared.session.id), kept)
        else:
            codex = prepared.standing.name if prepared.standing else None
            self.conversations.keep(next_key(prepared.ask, codex, finished.text), kept)


def next_key(ask: Ask, codex: str | None, answer: str) -> str:
    """The name under which a stateless client will come back: its messages and our answer."""
    return key_of(ask.principal.uid, codex, [*ask.messages, Message("assistant", answer)])
