"""A turn within its budget: what has to go goes in the declared order and is named, or the turn is refused with numbers.

    compose → fits? done
    claims → settle → take away what the verdicts say → compose again

Nothing is ever cut silently: what went is told in `lore.governor.actions`. Knows no engine.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from formatters.context import AmendmentView, AttachmentView, KarmaView, StateView, TurnContext, TurnView
from governor.ctc import Action, PromptLimits, Settlement, Verdict, settle
from orchestrator.errors import OverBudget
from orchestrator.prompt.claims import SourcedClaim, SourceKind, entries_of, exchanges_of, result_stub, stub_of
from orchestrator.prompt.composing import Composed, Composer, context_of
from orchestrator.prompt.evidence import TokenCounter

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


Artful = TypeVar("Artful", TurnView, StateView)


def shortened(turn: TurnContext, entries: Iterable[SourcedClaim], settlement: Settlement) -> TurnContext:
    """The context without what the verdicts took."""
    cut = [entry.place for entry, verdict in zip(entries, settlement.verdicts, strict=True) if _lost(verdict)]
    gone = {place.at for place in cut if place.what is SourceKind.EXCHANGE}
    stubbed = {(place.turn, place.at) for place in cut if place.what is SourceKind.TOLD}
    results = {place.turn for place in cut if place.what is SourceKind.RESULT}
    left_out = {place.at for place in cut if place.what is SourceKind.EVIDENCE}
    forgotten = {(place.name, place.at) for place in cut if place.what is SourceKind.MEMORY}
    state = _shorter_state(turn.state, gone, stubbed, results, left_out)
    karma = _shorter_karma(turn.karma, forgotten) if forgotten else turn.karma
    return turn.model_copy(update={"state": state, "karma": karma})


def without(turn: TurnContext, exchanges: Collection[int]) -> TurnContext:
    """The context without these questions that are over and their answers."""
    return turn.model_copy(update={"state": _shorter_state(turn.state, exchanges)})


def _shorter_karma(karma: KarmaView, forgotten: set[tuple[str, int]]) -> KarmaView:
    under: Counter[str] = Counter()
    kept = []
    for entry in karma.entries:
        if (entry.heading, under[entry.heading]) not in forgotten:
            kept.append(entry)
        under[entry.heading] += 1
    return KarmaView(entries=tuple(kept))


def _shorter_state(
    state: StateView,
    gone: Collection[int],
    stubbed: Set[tuple[int, int]] = frozenset(),
    results: Set[int] = frozenset(),
    left_out: Set[int] = frozenset(),
) -> StateView:
    kept: list[TurnView] = []
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
        self._amendments: list[AmendmentView] = []
        self._attachments: list[AttachmentView] = []

    def take(self, turn: TurnView) -> None:
        self._amendments.extend(turn.amendments)
        self._attachments.extend(turn.attachments)

    def into(self, one: Artful) -> Artful:
        if not (self._amendments or self._attachments):
            return one
        amendments, attachments = (*self._amendments, *one.amendments), (*self._attachments, *one.attachments)
        self._amendments, self._attachments = [], []
        return one.model_copy(update={"amendments": amendments, "attachments": attachments})


def _lost(verdict: Verdict) -> bool:
    return verdict.action is not Action.KEEP


FEW = 8  # things of one kind that are told one by one

# The rows that shorten say how; what has no shorter form went whole, and its sentence must not claim otherwise.
_WHOLE = {"memories to micro": "memories", "older turns into a gist": "older turns"}
_MANY = {
    SourceKind.FIXED: "parts",
    SourceKind.MEMORY: "memories",
    SourceKind.EXCHANGE: "turns",
    SourceKind.TOLD: "passages of earlier turns",
    SourceKind.RESULT: "tool results of earlier turns",
    SourceKind.EVIDENCE: "passages",
}

_Loss = tuple[SourcedClaim, Verdict]


def told_gone(turns: int) -> tuple[str, ...]:
    """The oldest turns, which were never counted."""
    if not turns:
        return ()
    return (f"{_turns(1, turns)} left out (older than what may stand in a prompt)",)


def told(entries: Iterable[SourcedClaim], settlement: Settlement, gone: int = 0) -> tuple[str, ...]:
    """What each claim lost: turns together, and what is many of its kind. `gone`: turns before the first of these."""
    alike: dict[tuple[SourceKind, Action, str], list[_Loss]] = {}
    for entry, verdict in zip(entries, settlement.verdicts, strict=True):
        if verdict.action is not Action.KEEP:
            alike.setdefault((entry.place.what, verdict.action, verdict.reason), []).append((entry, verdict))
    return tuple(sentence for losses in alike.values() for sentence in _sentences(losses, gone))


def _sentences(losses: Sequence[_Loss], gone: int) -> Iterator[str]:
    what = losses[0][0].place.what
    if len(losses) > (1 if what is SourceKind.EXCHANGE else FEW):
        yield _sentence(_together(what, losses, gone), losses)
    else:
        yield from (_sentence(entry.claim.id, [(entry, verdict)]) for entry, verdict in losses)


def _together(what: SourceKind, losses: Sequence[_Loss], gone: int) -> str:
    first, last = losses[0][0].place.at + 1, losses[-1][0].place.at + 1
    if what is SourceKind.EXCHANGE and last - first + 1 == len(losses):
        return _turns(gone + first, gone + last)
    return f"{len(losses):,} {_MANY[what]}"


def _sentence(name: str, losses: Sequence[_Loss]) -> str:
    left = sum(verdict.tokens for _, verdict in losses)
    saved = sum(entry.claim.tokens for entry, _ in losses) - left
    verdict = losses[0][1]
    if verdict.action is Action.DROP:
        return f"{name} left out, {saved:,} tokens saved ({_WHOLE.get(verdict.reason, verdict.reason)})"
    return f"{name} shortened to {left:,} tokens, {saved:,} saved ({verdict.reason})"


def _turns(first: int, last: int) -> str:
    return f"turn {first:,}" if first == last else f"turns {first:,} to {last:,}"


@dataclass(frozen=True)
class Reach:
    """The most that may stand before a question."""

    depth: int
    messages: int


def within_reach(turn: TurnContext, reach: Reach) -> tuple[TurnContext, int]:
    """The context with its last exchanges, and how many older ones were left out."""
    messages = Counter(exchanges_of(turn.state))
    kept = room = 0
    for exchange in sorted(messages, reverse=True)[: reach.depth]:
        room += messages[exchange]
        if room > reach.messages:
            break
        kept += 1
    gone = len(messages) - kept
    return (without(turn, range(gone)), gone) if gone else (turn, 0)
