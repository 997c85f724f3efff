"""A turn within its budget: what has to go goes in the declared order and is named, or the turn is refused with numbers.

    compose → fits? done
    claims → settle → take away what the verdicts say → compose again

Nothing is ever cut silently: each thing that went is an action for `lore.governor.actions`. Knows no engine.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from formatters.context import Amendment, Attachment, KarmaView, StateView, Turn, TurnContext
from governor.ctc import Action, Limits, Settlement, Verdict, settle
from orchestrator.context.claims import (
    Entry,
    What,
    entries_of,
    exchanges_of,
    result_stub,
    stub_of,
)
from orchestrator.context.composing import Composed, Composer, context_of
from orchestrator.context.evidence import Counter as TokenCounter
from orchestrator.errors import OverBudget

Artful = TypeVar("Artful", Turn, StateView)

TRIES = 3  # a shorter context is also written a little differently: the sum is checked on what is really sent


@dataclass(frozen=True, eq=False)
class Governed:
    """What goes to the engine. `actions`: one sentence for each thing that was taken away."""

    turn: TurnContext
    composed: Composed
    actions: tuple[str, ...] = ()


async def governed(
    turn: TurnContext,
    composer: Composer,
    tokens: TokenCounter,
    limits: Limits,
    think: bool = True,
    composed: Composed | None = None,
) -> Governed:
    """The turn cut to `limits`. `composed`: as it was composed already. Raises OverBudget; then nothing has been lost."""
    composed = composed or await composer.compose(context_of(turn), think)
    if _fits(turn, composed, limits):
        return Governed(turn, composed)
    entries = await entries_of(turn, composed, tokens)
    allowed = limits
    for _ in range(TRIES):
        settlement = settle([entry.claim for entry in entries], allowed)
        if settlement.refusal is not None:
            raise OverBudget(settlement.refusal.sentence, settlement.refusal.hint)
        now = shortened(turn, entries, settlement)
        composed = await composer.compose(context_of(now), think)
        if _fits(now, composed, limits):
            return Governed(now, composed, told(entries, settlement))
        allowed = replace(allowed, tokens=allowed.tokens - max(0, composed.assembled.tokens - limits.tokens))
    raise OverBudget(
        f"the prompt needs {composed.assembled.tokens:,} tokens and {limits.tokens:,} can be held",
        "shorten the question, or start a new session",
    )


def told(entries: Iterable[Entry], settlement: Settlement) -> tuple[str, ...]:
    """One sentence for each claim that lost something."""
    pairs = zip(entries, settlement.verdicts, strict=True)
    return tuple(_sentence(entry, verdict) for entry, verdict in pairs if verdict.action is not Action.KEEP)


def shortened(turn: TurnContext, entries: Iterable[Entry], settlement: Settlement) -> TurnContext:
    """The context without what the verdicts took."""
    cut = [entry.place for entry, verdict in zip(entries, settlement.verdicts, strict=True) if _lost(verdict)]
    gone = {place.at for place in cut if place.what is What.EXCHANGE}
    stubbed = {(place.turn, place.at) for place in cut if place.what is What.TOLD}
    results = {place.turn for place in cut if place.what is What.RESULT}
    left_out = {place.at for place in cut if place.what is What.EVIDENCE}
    forgotten = {(place.name, place.at) for place in cut if place.what is What.MEMORY}
    state = _shorter_state(turn.state, gone, stubbed, results, left_out)
    karma = _shorter_karma(turn.karma, forgotten) if forgotten else turn.karma
    return turn.model_copy(update={"state": state, "karma": karma})


def _shorter_karma(karma: KarmaView, forgotten: set[tuple[str, int]]) -> KarmaView:
    under: Counter[str] = Counter()
    kept = []
    for entry in karma.entries:
        if (entry.heading, under[entry.heading]) not in forgotten:
            kept.append(entry)
        under[entry.heading] += 1
    return KarmaView(entries=tuple(kept))


def _shorter_state(
    state: StateView, gone: set[int], stubbed: set[tuple[int, int]], results: set[int], left_out: set[int]
) -> StateView:
    kept: list[Turn] = []
    carried = _Carried()
    for place, (turn, exchange) in enumerate(zip(state.turns, exchanges_of(state), strict=True)):
        if exchange in gone:
            carried.take(turn)
            continue
        evidence = tuple(stub_of(one) if (place, rank) in stubbed else one for rank, one in enumerate(turn.evidence))
        text = result_stub(turn.text) if place in results else turn.text
        kept.append(carried.into(turn.model_copy(update={"evidence": evidence, "text": text})))
    evidence = tuple(one for rank, one in enumerate(state.evidence) if rank not in left_out)
    return carried.into(state.model_copy(update={"turns": tuple(kept), "evidence": evidence}))


class _Carried:
    """What must outlive the turn that it came with: news of the codex, and files that the user gave."""

    def __init__(self) -> None:
        self._amendments: tuple[Amendment, ...] = ()
        self._attachments: tuple[Attachment, ...] = ()

    def take(self, turn: Turn) -> None:
        self._amendments += turn.amendments
        self._attachments += turn.attachments

    def into(self, one: Artful) -> Artful:
        if not (self._amendments or self._attachments):
            return one
        amendments, attachments = (*self._amendments, *one.amendments), (*self._attachments, *one.attachments)
        self._amendments, self._attachments = (), ()
        return one.model_copy(update={"amendments": amendments, "attachments": attachments})


def _lost(verdict: Verdict) -> bool:
    return verdict.action is not Action.KEEP


def _fits(turn: TurnContext, composed: Composed, limits: Limits) -> bool:
    depth = max(exchanges_of(turn.state), default=-1) + 1
    if depth > limits.depth or composed.characters > limits.characters:
        return False
    return composed.assembled.tokens <= limits.tokens


def _sentence(entry: Entry, verdict: Verdict) -> str:
    saved = entry.claim.tokens - verdict.tokens
    if verdict.action is Action.DROP:
        return f"{entry.claim.id} left out, {saved:,} tokens saved ({_WHOLE.get(verdict.reason, verdict.reason)})"
    return f"{entry.claim.id} shortened to {verdict.tokens:,} tokens, {saved:,} saved ({verdict.reason})"


# The rows that shorten say how; what has no shorter form went whole, and its sentence must not claim otherwise.
_WHOLE = {"memories to micro": "memories", "older turns into a gist": "older turns"}
