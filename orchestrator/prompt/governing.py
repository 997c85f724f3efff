"""A turn within its budget: what has to go goes in the declared order and is named, or the turn is refused with numbers.

    compose → fits? done
    claims → settle → take away what the verdicts say → compose again

Nothing is ever cut silently: what went is told in `lore.governor.actions`. Knows no engine.
"""

from dataclasses import dataclass, replace

from formatters.context import TurnContext
from governor.ctc import PromptLimits, settle
from orchestrator.errors import OverBudget
from orchestrator.prompt.claims import entries_of, exchanges_of
from orchestrator.prompt.composing import Composed, Composer, context_of
from orchestrator.prompt.evidence import TokenCounter
from orchestrator.prompt.shortening import shortened
from orchestrator.prompt.telling import told, told_gone

TRIES = 3  # a shorter context is also written a little differently: the sum is checked on what is really sent


@dataclass(frozen=True, eq=False)
class Governed:
    """What goes to the engine. `actions`: what was taken away, in sentences."""

    turn: TurnContext
    composed: Composed
    actions: tuple[str, ...] = ()


async def governed(
    turn: TurnContext,
    composer: Composer,
    tokens: TokenCounter,
    limits: PromptLimits,
    think: bool = True,
    composed: Composed | None = None,
    gone: int = 0,
) -> Governed:
    """The turn cut to `limits`. `composed`: as it was composed already; `gone`: turns that were left out before that.

    Raises OverBudget; then nothing has been lost.
    """
    composed = composed or await composer.compose(context_of(turn), think)
    if _fits(turn, composed, limits):
        return Governed(turn, composed, told_gone(gone))
    entries = await entries_of(turn, composed, tokens, gone)
    allowed = limits
    for _ in range(TRIES):
        settlement = settle([entry.claim for entry in entries], allowed)
        if settlement.refusal is not None:
            raise OverBudget(settlement.refusal.sentence, settlement.refusal.hint)
        now = shortened(turn, entries, settlement)
        composed = await composer.compose(context_of(now), think)
        if _fits(now, composed, limits):
            return Governed(now, composed, (*told_gone(gone), *told(entries, settlement, gone)))
        allowed = replace(allowed, tokens=allowed.tokens - max(0, composed.assembled.tokens - limits.tokens))
    raise OverBudget(
        f"the prompt needs {composed.assembled.tokens:,} tokens and {limits.tokens:,} can be held",
        "shorten the question, or start a new session",
    )


def _fits(turn: TurnContext, composed: Composed, limits: PromptLimits) -> bool:
    depth = max(exchanges_of(turn.state), default=-1) + 1
    if depth > limits.depth or composed.characters > limits.characters:
        return False
    return composed.assembled.tokens <= limits.tokens
