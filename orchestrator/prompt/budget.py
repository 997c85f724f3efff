"""A turn within its budget: what does not fit is taken away in the declared order and named, or the turn is refused.

    within_reach → compose → fits? done
    claims → settle → shorten by the verdicts → compose again

    ├── left out ──┼── the last `depth` exchanges, of `messages` in all ──┼── the question

An exchange is a question with its answers. Nothing is cut silently: `lore.governor.actions` names what was taken.
Amendments of the codex and files of the user outlive the turn that they came with: they move to the next turn that stays.

The claims of a prompt on its budget, and what each of them is in the turn's context:

    floor                     one claim, never cut: a question never changes the floor
    Environment, template     instructions, as is Karma
    State, closed turns       a turn for each question with its answers; its evidence and tool results apart, with stubs
    State, this turn          evidence, lowest rank first; attachments and amendments are pinned
    Query                     pinned, with what the running turn added since

Tokens are exact: together they are those of the prompt. Knows no engine.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from formatters.blocks import FLOOR, BlockKind, Item, Role
from formatters.context import AmendmentView, AttachmentView, Evidence, StateView, TurnContext, TurnView
from formatters.template import PromptPart, parts
from governor.ctc import Action, Claim, ClaimKind, PromptLimits, Settlement, Verdict, settle
from orchestrator.errors import OverBudget
from orchestrator.prompt.composing import Composed, Composer
from orchestrator.prompt.evidence import TokenCounter, written

TRIES = 3  # a shorter context is also written a little differently: the sum is checked on what is really sent
NAMED_ONE_BY_ONE = 8  # things of one kind; more are named together
STUB = "(left out to save room; search for it again)"

_HasArtifacts = TypeVar("_HasArtifacts", TurnView, StateView)


class SourceKind(Enum):
    """What a claim is in the context, in words for several."""

    FIXED = "parts"  # nothing that could be taken away
    EXCHANGE = "turns"  # questions that are over, with their answers
    EARLIER_EVIDENCE = "passages of earlier turns"
    RESULT = "tool results of earlier turns"
    EVIDENCE = "passages"  # fetched for this question


@dataclass(frozen=True)
class ClaimSource:
    """`turn`: number of the message in State; `at`: of the exchange or passage; `name`: of what is fixed."""

    kind: SourceKind = SourceKind.FIXED
    turn: int = 0
    at: int = 0
    name: str = ""


@dataclass(frozen=True)
class SourcedClaim:
    claim: Claim
    source: ClaimSource


_Loss = tuple[SourcedClaim, Verdict]


@dataclass(frozen=True, eq=False)
class Governed:
    """What goes to the engine. `actions`: what was taken away, in sentences."""

    turn: TurnContext
    composed: Composed
    actions: tuple[str, ...] = ()


def within_reach(turn: TurnContext, limits: PromptLimits) -> tuple[TurnContext, int]:
    """The context with the last exchanges that `limits` may hold, as far as that is known before anything is tokenised, and
    how many older ones were left out. Raises OverBudget where what is never cut has more characters than are allowed.

    Each message takes a token at least, of its words or of the template around them, and all characters that were said; a
    tool's result may become a stub. What is beyond is cut or refused here, before megabytes that no model reads are written
    and tokenised.
    """
    came = (one for turn_or_state in (*turn.state.turns, turn.state) for one in turn_or_state.attachments)
    pinned = sum(map(len, (turn.query, *turn.environment.client_system, *(one.text for one in came))))
    if pinned > limits.characters:
        raise OverBudget(
            f"the prompt has at least {pinned:,} characters and {limits.characters:,} are allowed",
            "shorten the question and what comes with it, or load it as a codex: lore load PATH",
        )
    messages, characters = Counter[int](), Counter[int]()
    for one, exchange in zip(turn.state.turns, exchanges_of(turn.state), strict=True):
        messages[exchange] += 1
        characters[exchange] += 0 if one.role is Role.TOOL else len(one.text)
    kept, tokens_left, characters_left = 0, limits.tokens, limits.characters - pinned
    for exchange in sorted(messages, reverse=True)[: limits.depth]:
        tokens_left -= messages[exchange]
        characters_left -= characters[exchange]
        if min(tokens_left, characters_left) < 0:
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
    composed: Composed,
    gone: int = 0,
    think: bool = True,
) -> Governed:
    """The turn cut to `limits`. `composed`: the turn as it is; `gone`: turns that were left out before that.

    Raises OverBudget; then nothing has been lost.
    """
    if _fits(turn, composed, limits):
        return Governed(turn, composed, _gone_reported(gone))
    claims = await claims_of(turn, composed, tokens, gone)
    allowed = limits
    for _ in range(TRIES):
        settlement = settle([one.claim for one in claims], allowed)
        if settlement.refusal is not None:
            raise OverBudget(settlement.refusal.sentence, settlement.refusal.hint)
        shorter = shortened(turn, claims, settlement)
        composed = await composer.compose(shorter, think)
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


# -- the claims


async def claims_of(turn: TurnContext, composed: Composed, tokens: TokenCounter, gone: int = 0) -> list[SourcedClaim]:
    """All claims of a composed prompt, in the order of the prompt. `gone`: turns left out already, named no more."""
    rest = [part for part in _parts(composed) if part.block not in FLOOR]
    counts = await tokens.count([part.text for part in rest if part.item])
    stubs = await _stub_counts(turn.state, tokens)
    sorter = _Sorter(turn.state, stubs, gone)
    for part, count in zip([part for part in rest if part.item], counts, strict=True):
        sorter.take(part, count)
    literals = composed.assembled.tokens - composed.assembled.floor.tokens - sum(counts)
    template = _fixed("chat template", literals, sum(len(part.text) for part in rest if not part.item))
    return [_floor(composed), template, *sorter.claims()]


def exchanges_of(state: StateView) -> list[int]:
    """The exchange that each message belongs to: a new one begins with each question."""
    numbers, number = [], -1
    for turn in state.turns:
        number += turn.role is Role.USER or number < 0
        numbers.append(number)
    return numbers


def stub_of(one: Evidence) -> Evidence:
    """The passage as path and lines alone."""
    return one.model_copy(update={"text": STUB})


def result_stub(text: str) -> str:
    """A tool's result as its first line, shortened."""
    return f"{text.partition(chr(10))[0][:80]} {STUB}"


class _Sorter:
    """Sums up items by the claim that they belong to."""

    def __init__(self, state: StateView, stubs: dict[str, int], gone: int) -> None:
        self._state = state
        self._first = gone + 1  # the number of the first turn that is left, as sentences name it
        self._stubs = stubs
        self._exchanges = exchanges_of(state)
        self._found: dict[ClaimSource, list[tuple[Item, int]]] = {}

    def take(self, part: PromptPart, count: int) -> None:
        assert part.item is not None
        source = self._source_of(part.block, part.item)
        self._found.setdefault(source, []).append((part.item, count))

    def claims(self) -> list[SourcedClaim]:
        return [SourcedClaim(self._claim(source, items), source) for source, items in self._found.items()]

    def _source_of(self, block: BlockKind, item: Item) -> ClaimSource:
        if block is not BlockKind.STATE or item.pinned or item.node == "codex":
            return ClaimSource(turn=item.turn, name=item.source or block.value)
        if item.turn == len(self._state.turns):
            return self._fetched(item, self._state.evidence, SourceKind.EVIDENCE)
        if item.role is Role.TOOL:
            return ClaimSource(SourceKind.RESULT, item.turn)
        if item.role is None and item.node == "evidence":
            return self._fetched(item, self._state.turns[item.turn].evidence, SourceKind.EARLIER_EVIDENCE)
        return self._exchange(item.turn)

    def _fetched(self, item: Item, evidence: Sequence[Evidence], kind: SourceKind) -> ClaimSource:
        """A passage by its rank; the line that introduces passages goes with its turn."""
        for rank, one in enumerate(evidence):
            if item.source == _where(one):
                return ClaimSource(kind, item.turn, rank)
        return (
            self._exchange(item.turn)
            if kind is SourceKind.EARLIER_EVIDENCE
            else ClaimSource(turn=item.turn, name=item.source)
        )

    def _exchange(self, turn: int) -> ClaimSource:
        return ClaimSource(SourceKind.EXCHANGE, at=self._exchanges[turn])

    def _claim(self, source: ClaimSource, items: list[tuple[Item, int]]) -> Claim:
        tokens, characters = sum(count for _, count in items), sum(len(item.text) for item, _ in items)
        exchange = self._exchanges[source.turn] if source.turn < len(self._exchanges) else None
        if source.kind is SourceKind.EXCHANGE:
            return Claim(
                f"turn {source.at + self._first}", ClaimKind.TURN, tokens, characters, weight=source.at, turn=source.at
            )
        if source.kind is SourceKind.EVIDENCE:
            return Claim(items[0][0].source, ClaimKind.EVIDENCE, tokens, characters, weight=-source.at)
        if source.kind in (SourceKind.EARLIER_EVIDENCE, SourceKind.RESULT):
            name = items[0][0].source if source.kind is SourceKind.EARLIER_EVIDENCE else "tool result"
            stub = min(tokens, self._stubs[items[0][0].text])
            return Claim(
                f"{name} of turn {(exchange or 0) + self._first}",
                ClaimKind.SUPERSEDED,
                tokens,
                characters,
                stub=stub,
                turn=exchange,
            )
        return _fixed(source.name, tokens, characters).claim


def _floor(composed: Composed) -> SourcedClaim:
    characters = sum(len(part.text) for part in _parts(composed) if part.block in FLOOR)
    claim = Claim("identity and codex", ClaimKind.FLOOR, composed.assembled.floor.tokens, characters)
    return SourcedClaim(claim, ClaimSource(name="floor"))


def _fixed(name: str, tokens: int, characters: int) -> SourcedClaim:
    kind = ClaimKind.QUERY if name == "user" else ClaimKind.INSTRUCTION
    return SourcedClaim(Claim(name, kind, tokens, characters if tokens else 0), ClaimSource(name=name))


async def _stub_counts(state: StateView, tokens: TokenCounter) -> dict[str, int]:
    """Tokens of the stub for each text that has one, by the text it stands for."""
    stubs = {written(one): written(stub_of(one)) for turn in state.turns for one in turn.evidence}
    stubs |= {turn.text: result_stub(turn.text) for turn in state.turns if turn.role is Role.TOOL}
    return dict(zip(stubs, await tokens.count(list(stubs.values())), strict=True))


def _parts(composed: Composed) -> list[PromptPart]:
    return list(parts(composed.layout, composed.prompt))


def _where(one: Evidence) -> str:
    return f"{one.path}:{one.start}-{one.end}"


# -- the shorter context


def shortened(turn: TurnContext, claims: Iterable[SourcedClaim], settlement: Settlement) -> TurnContext:
    """The context without what the verdicts took."""
    cut = [one.source for one, verdict in zip(claims, settlement.verdicts, strict=True) if _lost(verdict)]
    gone = {source.at for source in cut if source.kind is SourceKind.EXCHANGE}
    stubbed = {(source.turn, source.at) for source in cut if source.kind is SourceKind.EARLIER_EVIDENCE}
    results = {source.turn for source in cut if source.kind is SourceKind.RESULT}
    left_out = {source.at for source in cut if source.kind is SourceKind.EVIDENCE}
    return turn.model_copy(update={"state": _shorter_state(turn.state, gone, stubbed, results, left_out)})


def _lost(verdict: Verdict) -> bool:
    return verdict.action is not Action.KEEP


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
    return f"{len(losses):,} {kind.value}"


def _sentence(name: str, losses: Sequence[_Loss]) -> str:
    left = sum(verdict.tokens for _, verdict in losses)
    saved = sum(one.claim.tokens for one, _ in losses) - left
    verdict = losses[0][1]
    if verdict.action is Action.DROP:
        return f"{name} left out, {saved:,} tokens saved ({verdict.reason})"
    return f"{name} shortened to {left:,} tokens, {saved:,} saved ({verdict.reason})"


def _turns(first: int, last: int) -> str:
    return f"turn {first:,}" if first == last else f"turns {first:,} to {last:,}"
