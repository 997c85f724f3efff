"""Questions that are refused once all is known of them, before the model runs. Pure."""

from orchestrator.answering.preparing import PreparedQuestion
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.prompt.coverage import Coverage
from orchestrator.prompt.strategy import Decision, Retrieval, coverages_of


def refuse_other_floor(decision: Decision) -> None:
    """A question never changes the floor: a strategy that needs another one is refused with what it would cost."""
    if decision.needs_tier is not None:
        raise InvalidRequest(
            f"{decision.strategy} needs the tier {coverages_of(decision.strategy)}, and this codex stands in another",
            "ask without --strategy, or load it in that tier first: "
            f"lore load PATH --tier {decision.needs_tier} ({decision.cost})",
        )


def refuse_blind(prepared: PreparedQuestion) -> None:
    """Nothing was found and the floor does not hold the codebase: what a model says then is made up. Raises NotFound."""
    standing, state = prepared.standing, prepared.turn.state
    told = state.evidence or state.attachments or any(turn.evidence or turn.attachments for turn in state.turns)
    searched = prepared.decision.retrieval in (Retrieval.SEARCH, Retrieval.GRAPH) and not prepared.gathered.failed
    if standing is None or standing.decision.tier is Coverage.FULL or told or not searched or prepared.gathered.found:
        return
    raise NotFound(
        f"nothing in {standing.name} answers to this question, and only its {standing.decision.tier} stands in the prefix",
        "; ".join(prepared.gathered.notices) or "use words that stand in the code, or see what `lore search` finds",
    )
