"""Why a prepared question is not answered. Pure: what is missing was found out before."""

from formatters.context import AttachmentView
from orchestrator.answering.preparing import PreparedQuestion
from orchestrator.errors import InvalidRequest, LoreError, NotFound, NotReady
from orchestrator.prompt.coverage import Coverage
from orchestrator.prompt.strategy import Decision, Retrieval, coverages_of


def refusal_of(prepared: PreparedQuestion, cached: int) -> LoreError | None:
    """Why asking is refused: raised by an ask, reported by a plan; None where it is answered. `cached`: tokens from the
    prompt's beginning that are in the cache, or in a checkpoint, which an answer restores."""
    return nothing_found(prepared) or other_floor(prepared.decision) or cold_floor(prepared, cached)


def nothing_found(prepared: PreparedQuestion) -> NotFound | None:
    """Nothing was found and the floor does not hold the codebase: what a model says then is made up."""
    codex_state, state = prepared.codex_state, prepared.turn.state
    came = [one for turn in (*state.turns, state) for one in (*turn.evidence, *turn.attachments)]
    shown = [one for one in came if not (isinstance(one, AttachmentView) and one.verbatim)]
    searched = prepared.decision.retrieval in (Retrieval.SEARCH, Retrieval.GRAPH) and not prepared.gathered.failed
    if codex_state is None or shown or not searched or prepared.gathered.found:
        return None
    if codex_state.decision.coverage is Coverage.FULL:
        return None
    return NotFound(
        f"nothing in {codex_state.name} answers to this question, "
        f"and only its {codex_state.decision.coverage} is in the prefix",
        "; ".join(prepared.gathered.notices) or "use words of the code, or see what `lore search` finds",
    )


def other_floor(decision: Decision) -> InvalidRequest | None:
    """A question never changes the floor: a strategy that needs another one is refused with what it would cost."""
    if decision.needs_coverage is None:
        return None
    return InvalidRequest(
        f"{decision.strategy} needs the coverage {coverages_of(decision.strategy)}, and this codex has another",
        "ask without --strategy, or load it with that coverage first: "
        f"lore load PATH --tier {decision.needs_coverage} ({decision.cost})",
    )


def cold_floor(prepared: PreparedQuestion, cached: int) -> NotReady | None:
    """A client that does not wait is refused until the floor is computed."""
    tokens = prepared.composed.assembled.floor.tokens
    if prepared.ask.wait or prepared.codex_state is None or cached >= tokens:
        return None
    return NotReady(
        f"the prefix of {prepared.codex_state.name} is not computed yet: {cached:,} of {tokens:,} tokens are",
        "ask without --no-wait to wait for it",
        retry_after=2.0,
    )
