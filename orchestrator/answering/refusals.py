"""Why a prepared question is not answered. Pure: what is missing was found out before."""

from formatters.context import AttachmentView
from orchestrator.answering.question import PreparedQuestion
from orchestrator.errors import InvalidRequest, LoreError, NotFound, NotReady, OverBudget
from orchestrator.prompt.coverage import Coverage
from orchestrator.prompt.evidence import HEADLINE
from orchestrator.prompt.strategy import Decision, Retrieval, coverages_of


def refusal_of(prepared: PreparedQuestion, cached: int) -> LoreError | None:
    """Why asking is refused: raised by an ask, reported by a plan; None where it is answered. `cached`: tokens from the
    prompt's beginning that are in the cache, or in a checkpoint, which an answer restores."""
    return (
        no_room(prepared)
        or nothing_found(prepared)
        or other_floor(prepared.found.decision)
        or cold_floor(prepared, cached)
    )


def no_room(prepared: PreparedQuestion) -> OverBudget | None:
    """The codebase would be searched, and no passage has room."""
    decision = prepared.found.decision
    if not is_ungrounded(prepared) or decision.retrieval_budget > HEADLINE:
        return None
    return OverBudget(
        f"{decision.asked.left:,} of {decision.asked.window:,} tokens are left, too few for a passage of the codebase, "
        "which is not in the prefix whole",
        "shorten the question and what comes with it, or ask for a shorter answer",
    )


def nothing_found(prepared: PreparedQuestion) -> NotFound | None:
    """Nothing was found and the floor does not hold the codebase: what a model says then is made up. Where it may call
    tools of the client it is asked all the same: they may look elsewhere, and "run the tests" has no word of the code."""
    said, ask = ungrounded(prepared), prepared.ask
    if not said or (ask.tools and ask.tool_choice.mode != "none"):
        return None
    return NotFound(
        said, "; ".join(prepared.found.gathered.notices) or "use words of the code, or see what `lore search` finds"
    )


def ungrounded(prepared: PreparedQuestion) -> str:
    """That the model sees nothing of the codebase that belongs to the question; empty where it sees something."""
    codex_state = prepared.codex_state
    if codex_state is None or prepared.found.gathered.found or not is_ungrounded(prepared):
        return ""
    coverage = codex_state.decision.coverage
    return f"nothing in {codex_state.name} answers to this question, and only its {coverage} is in the prefix"


def is_ungrounded(prepared: PreparedQuestion) -> bool:
    """The floor does not hold the whole codebase, it was to be searched, and nothing came of it, or with the turns."""
    codex_state, state = prepared.codex_state, prepared.turn.state
    came = [one for turn in (*state.turns, state) for one in (*turn.evidence, *turn.attachments)]
    shown = [one for one in came if not (isinstance(one, AttachmentView) and one.verbatim)]
    searched = (
        prepared.found.decision.retrieval in (Retrieval.SEARCH, Retrieval.GRAPH) and not prepared.found.gathered.failed
    )
    return codex_state is not None and codex_state.decision.coverage is not Coverage.FULL and searched and not shown


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
