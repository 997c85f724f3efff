"""A turn within its budget: what does not fit is taken away in the declared order and named, or the turn is refused.

    within_reach → compose → fits? done
    claims → settle → shorten by the verdicts, with an extract of the turns that fall → compose again

    ├── gone: gists ──┼── falls now: an extract ──┼── the last exchanges, `depth` at most ──┼── the question

Nothing is cut silently: `actions` names what was taken, `left_out` in one line. Amendments of the codex, verbatim texts and
files of the user outlive the turn that they came with: they move to the next turn that stays.

Nothing here runs a model. Who does may put a gist in the place of the extract: `condensed`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from formatters.blocks import Role
from formatters.context import (
    AmendmentView,
    AttachmentView,
    GistView,
    KarmaView,
    StateView,
    TurnContext,
    TurnView,
    changed,
)
from formatters.writers import gist_item
from governor.ctc import Action, Claim, ClaimKind, PromptLimits, Settlement, Verdict, settle
from orchestrator.errors import OverBudget
from orchestrator.prompt.claims import ClaimSource, SourcedClaim, SourceKind, claims_of, exchanges_of, stub_of
from orchestrator.prompt.composing import Composed, Composer
from orchestrator.prompt.evidence import TokenCounter
from orchestrator.prompt.filler import calls_of, lean, result_stub
from orchestrator.prompt.gist import exchanges, extracts

TRIES = 3  # a shorter context is also written a little differently: the sum is checked on what is really sent
NAMED_ONE_BY_ONE = 8  # things of one kind; more are named together
MOST_GISTS = 8  # in one prompt, the last ones
TOKEN_CHARS = 4  # of turns that were not counted, about

_HasArtifacts = TypeVar("_HasArtifacts", TurnView, StateView)
_Loss = tuple[SourcedClaim, Verdict]


@dataclass(frozen=True, eq=False)
class Fallen:
    """Turns that fell out of this prompt, alone, as the last prompt held them; what their gist may take in tokens and
    characters; and the tokens that they had, as far as they were counted."""

    state: StateView
    tokens: int
    characters: int
    had: int

    @property
    def first(self) -> int:
        return self.state.gone + 1

    @property
    def last(self) -> int:
        return self.state.gone + max(exchanges_of(self.state)) + 1


@dataclass(frozen=True, eq=False)
class Governed:
    """What goes to the engine. `earlier`: turns that were gone before; `cut`: what was taken away now, in sentences, and
    `lost`: how much of each kind; `fallen`: the turns that the last gist stands for, where it is new, and its tokens."""

    turn: TurnContext
    composed: Composed
    earlier: int = 0
    cut: tuple[str, ...] = ()
    lost: Counter[SourceKind] = field(default_factory=Counter)
    fallen: Fallen | None = None
    gist_tokens: int = 0
    by_model: str = ""  # what a gist cost, where a model wrote it

    @property
    def actions(self) -> tuple[str, ...]:
        """All that the prompt lacks, in sentences."""
        return (*_earlier_reported(self), *_gist_reported(self), *self.cut)

    @property
    def taken(self) -> dict[SourceKind, int]:
        """How many things of each kind were taken away for this prompt, that the last one had; text of filler is one."""
        fell = {SourceKind.EXCHANGE: self.turn.state.gone - self.earlier}
        counts = {**self.lost, SourceKind.FILLER: min(1, self.lost[SourceKind.FILLER]), **fell}
        return {kind: count for kind, count in counts.items() if count}

    def left_out(self, *, in_session: bool) -> str:
        """The same in one line; '' where nothing is missing."""
        state = self.turn.state
        short = sum(one.last - one.first + 1 for one in state.gists)
        condensed = "condensed" if short == state.gone else f"{short:,} of them condensed"
        notes = [condensed] * bool(short) + ["kept in the session"] * in_session
        turns = _counted(state.gone, "turn") + (f" ({', '.join(notes)})" if notes else "")
        others = [_counted(self.lost[kind], word) for kind, word in _IN_LINE.items() if self.lost[kind]]
        parts = [turns, *others] if state.gone else others
        return f"left out: {', '.join(parts)}; lore plan shows which" if parts else ""


_IN_LINE = {
    SourceKind.MEMORY: "record of memory",
    SourceKind.EVIDENCE: "passage",
    SourceKind.EARLIER_EVIDENCE: "passage of earlier turns",
    SourceKind.RESULT: "tool result",
    SourceKind.FILLER: "token of filler",
    SourceKind.GIST: "gist",
}


def within_reach(turn: TurnContext, limits: PromptLimits) -> TurnContext:
    """The context with the last exchanges that `limits` may hold, as far as that is known before anything is tokenised.
    Raises OverBudget where what is never cut has more characters than are allowed.

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
    return changed(turn, state=without_turns(turn.state, len(messages) - kept))


async def governed(
    turn: TurnContext,
    composer: Composer,
    tokens: TokenCounter,
    limits: PromptLimits,
    composed: Composed,
    before: StateView | None = None,
    think: bool = True,
) -> Governed:
    """The turn cut to `limits`. `composed`: the turn as it is; `before`: its state with the turns that were out of reach.

    Raises OverBudget; then nothing has been lost.
    """
    before = turn.state if before is None else before
    if _fits(turn, composed, limits) and not (limits.gist and turn.state.gone > before.gone):
        return Governed(turn, composed, before.gone, _unreached_reported(before, turn.state))
    claims = await claims_of(turn, composed, tokens)
    allowed = limits
    for _ in range(TRIES):
        settlement = settle([one.claim for one in claims], allowed, _unreached(before, turn.state))
        if (refusal := settlement.refusal) is not None:
            memory = next((one.source for one in turn.karma.entries if one.source == refusal.largest), "")
            without = f"; lore memory retire {memory.partition(':')[2]} leaves that out" if memory else ""
            raise OverBudget(refusal.sentence, refusal.hint + without, refusal.over)
        within = await _cut(turn, claims, settlement, before, tokens, partial(composer.compose, think=think))
        needed = within.composed.assembled.tokens
        if _fits(within.turn, within.composed, limits):
            return within
        allowed = replace(allowed, tokens=allowed.tokens - max(0, needed - limits.tokens))
    raise OverBudget(
        f"the prompt needs {needed:,} tokens and {limits.tokens:,} can be held",
        "shorten the question, or start a new session",
        needed - limits.tokens,
    )


async def condensed(
    within: Governed, text: str, composer: Composer, tokens: TokenCounter, limits: PromptLimits, think: bool = True
) -> Governed | None:
    """The same with this gist in the place of the extract; None where it is too long."""
    assert within.fallen is not None
    gist = GistView(first=within.fallen.first, last=within.fallen.last, text=text)
    count = await _taken(gist, within.fallen, tokens)
    if count is None:
        return None
    gists = tuple(one for one in within.turn.state.gists if one.first != gist.first)
    turn = _with_gists(within.turn, (*gists, gist))
    composed = await composer.compose(turn, think)
    made = replace(within, turn=turn, composed=composed, gist_tokens=count)
    return made if _fits(turn, composed, limits) else None


def _fits(turn: TurnContext, composed: Composed, limits: PromptLimits) -> bool:
    depth = max(exchanges_of(turn.state), default=-1) + 1
    if (limits.depth is not None and depth > limits.depth) or composed.characters > limits.characters:
        return False
    return composed.assembled.tokens <= limits.tokens


# -- the turns that fall, and what stands in their place


def _unreached(before: StateView, state: StateView) -> list[Claim]:
    """Turns that were out of reach, of which only the characters are known."""
    gone = state.gone - before.gone
    sizes = [len(one.text) for one, at in zip(before.turns, exchanges_of(before), strict=True) if at < gone]
    return [Claim(str(at), ClaimKind.TURN, size // TOKEN_CHARS + 1, size) for at, size in enumerate(sizes)]


async def _cut(
    turn: TurnContext,
    claims: Sequence[SourcedClaim],
    settlement: Settlement,
    before: StateView,
    tokens: TokenCounter,
    compose: Callable[[TurnContext], Awaitable[Composed]],
) -> Governed:
    """What the verdicts leave, with the first extract that fits in the place of what fell."""
    losses = losses_of(claims, settlement.verdicts)
    shorter = shortened(turn, claims, settlement)
    fallen = _fallen(before, shorter.state, settlement, losses)
    gist, count = await _extract(fallen, tokens) if fallen is not None else (None, 0)
    if gist is None:
        cut = (*_unreached_reported(before, turn.state), *losses_reported(losses))
        return Governed(shorter, await compose(shorter), before.gone, cut, _counts(losses))
    others = [loss for loss in losses if loss[0].source.kind is not SourceKind.EXCHANGE]
    shorter = _with_gists(shorter, (*shorter.state.gists, gist))
    return Governed(
        shorter, await compose(shorter), before.gone, losses_reported(others), _counts(losses), fallen, count
    )


def _fallen(before: StateView, state: StateView, settlement: Settlement, losses: Sequence[_Loss]) -> Fallen | None:
    """Without room for a gist none is made."""
    gone = state.gone - before.gone
    turns = tuple(one for one, at in zip(before.turns, exchanges_of(before), strict=True) if at < gone)
    if not (turns and settlement.gist_tokens):
        return None
    had = sum(one.claim.tokens for one, _ in losses if one.source.kind is SourceKind.EXCHANGE)
    alone = StateView(turns=turns, gone=before.gone, gists=before.gists)
    return Fallen(alone, settlement.gist_tokens, settlement.gist_characters, had)


async def _extract(fallen: Fallen, tokens: TokenCounter) -> tuple[GistView | None, int]:
    for text in extracts(exchanges(fallen.state.turns), fallen.first):
        gist = GistView(first=fallen.first, last=fallen.last, text=text)
        count = await _taken(gist, fallen, tokens)
        if count is not None:
            return gist, count
    return None, 0


async def _taken(gist: GistView, fallen: Fallen, tokens: TokenCounter) -> int | None:
    """Tokens of the gist as it is written; None for more than it may have."""
    written = gist_item(gist).text
    if len(written) > fallen.characters:
        return None
    (count,) = await tokens.count([written])
    return count if count <= fallen.tokens else None


def _with_gists(turn: TurnContext, gists: tuple[GistView, ...]) -> TurnContext:
    return turn.model_copy(update={"state": turn.state.model_copy(update={"gists": gists[-MOST_GISTS:]})})


# -- the shorter context


def shortened(turn: TurnContext, claims: Iterable[SourcedClaim], settlement: Settlement) -> TurnContext:
    """The context without what the verdicts took."""
    taken = {one.source: verdict.action for one, verdict in losses_of(claims, settlement.verdicts)}
    update = {"karma": _shorter_karma(turn.karma, taken), "state": _shorter_state(turn.state, taken.keys())}
    return turn.model_copy(update=update)


def _shorter_karma(karma: KarmaView, taken: Mapping[ClaimSource, Action]) -> KarmaView:
    actions = [taken.get(ClaimSource(SourceKind.MEMORY, at=at), Action.KEEP) for at in range(len(karma.entries))]
    kept = [(one, action) for one, action in zip(karma.entries, actions, strict=True) if action is not Action.DROP]
    entries = (
        one.model_copy(update={"text": one.short, "short": ""}) if action is Action.CONDENSE and one.short else one
        for one, action in kept
    )
    return karma.model_copy(update={"entries": tuple(entries)})


def _lost(verdict: Verdict) -> bool:
    return verdict.action is not Action.KEEP


def without_turns(state: StateView, turns: int) -> StateView:
    """The state without its first `turns` exchanges; what outlives them stays."""
    cut = {ClaimSource(SourceKind.EXCHANGE, at=at) for at in range(turns)}
    return _shorter_state(state, cut) if cut else state


def in_short(state: StateView, gists: Sequence[GistView]) -> StateView:
    """A whole conversation as prompts have it: with these gists in the place of the turns that they stand for."""
    if not gists:
        return state
    return without_turns(state, gists[-1].last).model_copy(update={"gists": tuple(gists[-MOST_GISTS:])})


def _shorter_state(state: StateView, cut: Set[ClaimSource]) -> StateView:
    kept: list[TurnView] = []
    carried, calls, exchange = _Carried(), calls_of(state.turns), -1
    leaner = lean(state) if any(source.kind is SourceKind.FILLER for source in cut) else state
    for number, (turn, exchange) in enumerate(zip(state.turns, exchanges_of(state), strict=True)):
        thin = leaner.turns[number] if ClaimSource(SourceKind.FILLER, at=exchange) in cut else turn
        if ClaimSource(SourceKind.EXCHANGE, at=exchange) in cut:
            carried.take(thin)
            continue
        text = result_stub(calls[number], turn.text) if ClaimSource(SourceKind.RESULT, number) in cut else thin.text
        evidence = tuple(
            stub_of(one) if ClaimSource(SourceKind.EARLIER_EVIDENCE, number, rank) in cut else one
            for rank, one in enumerate(turn.evidence)
        )
        kept.append(carried.into(thin.model_copy(update={"evidence": evidence, "text": text})))
    last = leaner if ClaimSource(SourceKind.FILLER, at=exchange + 1) in cut else state
    evidence = tuple(
        one
        for rank, one in enumerate(state.evidence)
        if ClaimSource(SourceKind.EVIDENCE, len(state.turns), rank) not in cut
    )
    gists = tuple(one for one in state.gists if ClaimSource(SourceKind.GIST, at=one.first) not in cut)
    gone = state.gone + sum(source.kind is SourceKind.EXCHANGE for source in cut)
    update = {"turns": tuple(kept), "evidence": evidence, "gists": gists, "gone": gone}
    return carried.into(last.model_copy(update=update))


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


def _earlier_reported(within: Governed) -> tuple[str, ...]:
    """Turns that were gone before, and of these the oldest, whose gists are gone too."""
    last = within.earlier
    first = min([last + 1, *(one.first for one in within.turn.state.gists)])
    told = (f"{_turns(1, first - 1)} left out before",) if first > 1 else ()
    return (*told, f"{_turns(first, last)} condensed before") if last >= first else told


def _gist_reported(within: Governed) -> tuple[str, ...]:
    if within.fallen is None:
        return ()
    what, saved = "a gist" if within.by_model else "an extract", within.fallen.had - within.gist_tokens
    told = f"{_turns(within.fallen.first, within.fallen.last)} condensed into {what} of {within.gist_tokens:,} tokens"
    told += f", {saved:,} saved" if saved > 0 else ""
    return (f"{told}; {within.by_model}" if within.by_model else told,)


def _unreached_reported(before: StateView, state: StateView) -> tuple[str, ...]:
    """Turns that were never counted."""
    if state.gone == before.gone:
        return ()
    return (f"{_turns(before.gone + 1, state.gone)} left out (older than what a prompt may hold)",)


def losses_of(claims: Iterable[SourcedClaim], verdicts: Iterable[Verdict]) -> list[_Loss]:
    return [(one, verdict) for one, verdict in zip(claims, verdicts, strict=True) if _lost(verdict)]


def _counts(losses: Iterable[_Loss]) -> Counter[SourceKind]:
    """How many of each kind; of filler its tokens."""
    counts = Counter[SourceKind]()
    for one, _ in losses:
        counts[one.source.kind] += one.claim.tokens if one.source.kind is SourceKind.FILLER else 1
    return counts


def losses_reported(losses: Iterable[_Loss]) -> tuple[str, ...]:
    """What each claim lost: turns together, and what is many of its kind."""
    alike: dict[tuple[SourceKind, Action, str], list[_Loss]] = {}
    for one, verdict in losses:
        alike.setdefault((one.source.kind, verdict.action, verdict.reason), []).append((one, verdict))
    return tuple(sentence for some in alike.values() for sentence in _sentences(some))


def _sentences(losses: Sequence[_Loss]) -> Iterator[str]:
    kind = losses[0][0].source.kind
    if kind is SourceKind.FILLER:
        yield _sentence(kind.value, losses)
    elif len(losses) > (1 if kind is SourceKind.EXCHANGE else NAMED_ONE_BY_ONE):
        yield _sentence(_together(kind, losses), losses)
    else:
        yield from (_sentence(one.claim.id, [(one, verdict)]) for one, verdict in losses)


def _together(kind: SourceKind, losses: Sequence[_Loss]) -> str:
    first, last = losses[0][0].claim.id, losses[-1][0].claim.id
    if kind is SourceKind.EXCHANGE:
        return f"turns {first.partition(' ')[2]} to {last.partition(' ')[2]}"
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


def _counted(number: int, word: str) -> str:
    head, _, tail = word.partition(" ")
    return f"{number:,} {head if number == 1 else head + 's'}{' ' + tail if tail else ''}"
