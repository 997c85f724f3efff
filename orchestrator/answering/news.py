"""What of a codex's changes a conversation has been told, and what it must be told now. Pure."""

from formatters.context import AmendmentView, CodexView, StateView
from orchestrator.answering.turn_state import Conversation
from orchestrator.codices.state import CodexState


def codex_of(conversation: Conversation, standing: CodexState | None) -> CodexView | None:
    """A running conversation keeps the generation that it began with, while that still stands; a new one has the newest."""
    if standing is None:
        return None
    kept = conversation.codex
    same = kept is not None and kept.generation == standing.view.generation and kept.tier == standing.view.tier
    return kept if same else standing.view


def news_for(conversation: Conversation, standing: CodexState | None) -> tuple[AmendmentView, ...]:
    """What changed in the codex since this conversation was told last; a new one has it all in its Codex block."""
    if standing is None or codex_of(conversation, standing) is standing.view:
        return ()
    told = max((one.number for one in told_amendments(conversation)), default=0)
    return tuple(one for one in standing.view.amendments if one.number > told)


def told_anew(conversation: Conversation, standing: CodexState | None) -> StateView:
    """The conversation's State. Where it moves to another generation, or is taken up again, its Codex block tells all that
    changed: what earlier turns were told of is older, and would be read as replacing what stands there now."""
    state, view = conversation.state, codex_of(conversation, standing)
    if view is conversation.codex or not any(turn.amendments for turn in state.turns):
        return state
    return state.model_copy(update={"turns": tuple(one.model_copy(update={"amendments": ()}) for one in state.turns)})


def told_amendments(conversation: Conversation) -> list[AmendmentView]:
    view = conversation.codex.amendments if conversation.codex else ()
    return [*view, *(one for turn in conversation.state.turns for one in turn.amendments)]
