"""A turn within its budget: what does not fit is taken away in the declared order and named, or the turn is refused.

    within_reach → compose → fits? done
    claims → settle → shorten by the verdicts → compose again

    ├── left out ──┼── the last `depth` exchanges, of `messages` in all ──┼── the question

An exchange is a question with its answers. Nothing is cut silently: `lore.governor.actions` names what was taken.
Amendments of the codex and files of the user outlive the turn that they came with: they move to the next turn that stays.
Knows no engine.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from formatters.context import AmendmentView, AttachmentView, KarmaView, StateView, TurnContext, TurnView
from governor.ctc import Action, PromptLimits, Settlement, Verdict, settle
from orchestrator.errors import OverBudget
from orchestrator.prompt.claims import SourcedClaim, SourceKind, claims_of, exchanges_of, result_stub, stub_of
from orchestrator.prompt.composing import Composed, Composer, context_of
from orchestrator.prompt.evidence import TokenCounter

TRIES = 3  # a shorter context is also written a little differently: the sum is checked on what is really sent
NAMED_ONE_BY_ONE = 8  # things of one kind; more are named together

_HasArtifacts = TypeVar("_HasArtifacts", TurnView, StateView)
_Loss = tuple[SourcedClaim, Verdict]


@dataclass(frozen=True)
class Reach:
    """The most of a conversation that is written and tokenised. `depth`: exchanges, None for no limit.

    Each message takes a token at least, of its words or of the template around them. A conversation with more messages
    than the window has tokens is cut here, before thousands of turns are written that no model reads.
    """

    depth: int | None
    messages: int


@dataclass(frozen=True, eq=False)
class Governed:
    """What goes to the engine. `actions`: what was taken away, in sentences."""

    turn: TurnContext
    composed: Composed
    actions: tuple[str, ...] = ()


def within_reach(turn: TurnContext, reach: Reach) -> tuple[TurnContext, int]:
    """The context with its last exchanges, and how many older ones were left out."""
    messages = Counter(exchanges_of(turn.state))
    kept = written = 0
    for exchange in sorted(messages, reverse=True)[: reach.depth]:
        written += messages[exchange]
        if written > reach.messages:
            break
        kept += 1
    gone = len(messages) - kept
    if not gone:
        return turn, 0
    return turn.model_copy(update={"state": _shorter_state(turn.state, range(gone))}), gone


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
        return Governed(turn, composed, _gone_reported(gone))
    claims = await claims_of(turn, composed, tokens, gone)
    allowed = limits
    for _ in range(TRIES):
        settlement = settle([one.claim for one in claims], allowed)
        if settlement.refusal is not None:
            raise OverBudget(settlement.refusal.sentence, settlement.refusal.hint)
        shorter = shortened(turn, claims, settlement)
        composed = await composer.compose(context_of(shorter), think)
        if _fits(shorter, composed, limits):
            return Governed(shorter, composed, (*_gone_reported(gone), *losses_reported(claims, settlement, gone)))
        allowed = replace(allowed, tokens=allowed.tokens - max(0, composed.assembled.tokens - limits.tokens))
    raise OverBudget(
        f"the prompt needs {composed.assembled.tokens:,} tokens and {limits.tokens:,} can be held",
        "shorten the question, or start a new session",
    )


def _fits(turn: TurnContext, composed: Composed, limits: PromptLimits) -> bool:
    depth = max(exchanges_of(turn.state), default=-1) + 1
    if (limits.depth is not None and depth > limits.depth) or composed.characters > limits.characters:
        return False
    return composed.assembled.tokens <= limits.tokens


# -- the shorter context


def shortened(turn: TurnContext, claims: Iterable[SourcedClaim], settlement: Settlement) -> TurnContext:
    """The context without what the verdicts took."""
    cut = [one.source for one, verdict in zip(claims, settlement.verdicts, strict=True) if _lost(verdict)]
    gone = {source.at for source in cut if source.kind is SourceKind.EXCHANGE}
    stubbed = {(source.turn, source.at) for source in cut if source.kind is SourceKind.EARLIER_EVIDENCE}
    results = {source.turn for source in cut if source.kind is SourceKind.RESULT}
    left_out = {source.at for source in cut if source.kind is SourceKind.EVIDENCE}
    forgotten = {(source.name, source.at) for source in cut if source.kind is SourceKind.MEMORY}
    state = _shorter_state(turn.state, gone, stubbed, results, left_out)
    karma = _shorter_karma(turn.karma, forgotten) if forgotten else turn.karma
    return turn.model_copy(update={"state": state, "karma": karma})


def _lost(verdict: Verdict) -> bool:
    return verdict.action is not Action.KEEP


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
    for number, (turn, exchange) in enumerate(zip(state.turns, exchanges_of(state), strict=True)):
        if exchange in gone:
            carried.take(turn)
            continue
        evidence = tuple(stub_of(one) if (number, rank) in stubbed else one for rank, one in enumerate(turn.evidence))
        text = result_stub(turn.text) if number in results else turn.text
        kept.append(carried.into(turn.model_copy(update={"evidence": evidence, "text": text})))
    evidence = tuple(one for rank, one in enumerate(state.evidence) if rank not in left_out)
    return carried.into(state.model_copy(update={"turns": tuple(kept), "evidence": evidence}))


class _Carried:
    """What outlives the turn that it came with: amendments of the codex, and files that the user gave."""

    def __init__(self) -> None:
        self._amendments: list[AmendmentView] = []
        self._attachments: list[AttachmentView] = []

    def take(self, turn: TurnView) -> None:
        self._amendments.extend(turn.amendments)
        self._attachments.extend(turn.attachments)

    def into(self, one: _HasArtifacts) -> _HasArtifacts:
        if not (self._amendments or self._attachments):
            return one
        amendments, attachments = (*self._amendments, *one.amendments), (*self._attachments, *one.attachments)
        self._amendments, self._attachments = [], []
        return one.model_copy(update={"amendments": amendments, "attachments": attachments})


# -- what was taken away, in sentences: few ones, however much it was

# The rows that shorten say how; what has no shorter form went whole, and its sentence must not claim otherwise.
_WHOLE = {"memories to micro": "memories", "older turns into a gist": "older turns"}
_MANY = {
    SourceKind.FIXED: "parts",
    SourceKind.MEMORY: "memories",
    SourceKind.EXCHANGE: "turns",
    SourceKind.EARLIER_EVIDENCE: "passages of earlier turns",
    SourceKind.RESULT: "tool results of earlier turns",
    SourceKind.EVIDENCE: "passages",
}


def _gone_reported(turns: int) -> tuple[str, ...]:
    """The oldest turns, which were never counted."""
    return (f"{_turns(1, turns)} left out (older than what a prompt may hold)",) if turns else ()


def losses_reported(claims: Iterable[SourcedClaim], settlement: Settlement, gone: int = 0) -> tuple[str, ...]:
    """What each claim lost: turns together, and what is many of its kind. `gone`: turns before the first of these."""
    alike: dict[tuple[SourceKind, Action, str], list[_Loss]] = {}
    for one, verdict in zip(claims, settlement.verdicts, strict=True):
        if _lost(verdict):
            alike.setdefault((one.source.kind, verdict.action, verdict.reason), []).append((one, verdict))
    return tuple(sentence for losses in alike.values() for sentence in _sentences(losses, gone))


def _sentences(losses: Sequence[_Loss], gone: int) -> Iterator[str]:
    kind = losses[0][0].source.kind
    if len(losses) > (1 if kind is SourceKind.EXCHANGE else NAMED_ONE_BY_ONE):
        yield _sentence(_together(kind, losses, gone), losses)
    else:
        yield from (_sentence(one.claim.id, [(one, verdict)]) for one, verdict in losses)


def _together(kind: SourceKind, losses: Sequence[_Loss], gone: int) -> str:
    first, last = losses[0][0].source.at + 1, losses[-1][0].source.at + 1
    if kind is SourceKind.EXCHANGE and last - first + 1 == len(losses):
        return _turns(gone + first, gone + last)
    return f"{len(losses):,} {_MANY[kind]}"


def _sentence(name: str, losses: Sequence[_Loss]) -> str:
    left = sum(verdict.tokens for _, verdict in losses)
    saved = sum(one.claim.tokens for one, _ in losses) - left
    verdict = losses[0][1]
    if verdict.action is Action.DROP:
        return f"{name} left out, {saved:,} tokens saved ({_WHOLE.get(verdict.reason, verdict.reason)})"
    return f"{name} shortened to {left:,} tokens, {saved:,} saved ({verdict.reason})"


def _turns(first: int, last: int) -> str:
    return f"turn {first:,}" if first == last else f"turns {first:,} to {last:,}"
