"""CTC, truncation and compression: claims on a prompt's budget in, a verdict for each out. Pure.

    claims --depth: old turns go--> --sacrifices, in order--> granted + gist <= budget, or a refusal

The order of sacrifice is the table SACRIFICES, first row first; within a row the lowest weight is first. Sacrifices are
made in this order until tokens and characters both fit. None is skipped and none is undone, so:

    granted + gist <= budget, or refused with the numbers and nothing changed
    claims of NEVER_CUT stay whole
    with a larger budget no claim is granted less
    same input, same output (ties are broken by the order of the claims)

A turn goes with all that came with it. Turns that go leave a gist, where the limits allow one: its size is at most
GIST_SHARE of theirs. The prompt changes from the first of them on, and all behind it is computed again. So once one goes
for want of room, others go with it until HEADROOM is free, and the next turns need no cut. Evidence goes before a gist;
no prompt is refused for the sake of one.

Knows numbers and kinds, never a text: the caller makes the shorter form and checks that it has every identifier.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from governor.settings import ClaimSettings


class ClaimKind(StrEnum):
    """What a claim is to the budget."""

    FLOOR = "floor"  # identity and codex
    INSTRUCTION = "instruction"  # environment, whatever is pinned
    QUERY = "query"
    FILLER = "filler"  # of an item: what says nothing new
    SUPERSEDED = "superseded"  # a tool's result that a later one replaced
    MEMORY = "memory"
    TURN = "turn"
    EVIDENCE = "evidence"  # retrieved for this question
    GIST = "gist"  # what stands in the place of earlier turns


NEVER_CUT = frozenset({ClaimKind.FLOOR, ClaimKind.INSTRUCTION, ClaimKind.QUERY})


class Action(StrEnum):
    KEEP = "keep"
    CONDENSE = "condense"
    DROP = "drop"


@dataclass(frozen=True)
class Claim:
    """An item that wants room.

    `stub`: tokens of its shorter form; 0: it has none and can only go whole. `weight`: the lower, the earlier it is
    sacrificed in its row (age, rank). `turn` counts upwards from the oldest; None for what belongs to no turn.
    """

    id: str
    kind: ClaimKind
    tokens: int
    characters: int
    weight: float = 0.0
    stub: int = 0
    turn: int | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.stub <= self.tokens
        assert self.characters >= 0
        assert self.tokens or not self.characters, f"{self.id} has characters but no token"


@dataclass(frozen=True)
class PromptLimits:
    """`tokens` and `characters` of the whole prompt; `depth`: most of the last turns in it, None: as many as fit;
    `gist`: most tokens for what stands in the place of turns that go, 0: nothing does."""

    tokens: int
    characters: int
    depth: int | None = None
    gist: int = 0


class Verdict(NamedTuple):  # hundreds are made for a question: a frozen dataclass takes four times as long
    """`tokens` and `characters` are the most the item may take now; `reason` names the row that took the rest."""

    id: str
    action: Action
    tokens: int
    characters: int
    reason: str = ""


@dataclass(frozen=True)
class ClaimsRefusal:
    """Why it cannot fit whatever is sacrificed, in a sentence with the numbers, and what would help. `largest`: the id of
    the largest claim that may not be cut; `over`: tokens that are too many, 0 where characters are."""

    sentence: str
    hint: str
    largest: str = ""
    over: int = 0


@dataclass(frozen=True)
class Settlement:
    """A verdict per claim, in the claims' order, and the most that a gist of the turns that go may take. With a `refusal`
    all are kept and nothing has been lost."""

    verdicts: tuple[Verdict, ...]
    refusal: ClaimsRefusal | None = None
    gist_tokens: int = 0
    gist_characters: int = 0


@dataclass(frozen=True)
class Sacrifice:
    """One row: claims of this `kind` go, or down to their stub where `stubbed`."""

    name: str
    kind: ClaimKind
    stubbed: bool = False


SACRIFICES = (
    Sacrifice("filler", ClaimKind.FILLER),
    Sacrifice("superseded tool results", ClaimKind.SUPERSEDED, stubbed=True),
    Sacrifice("memories in short", ClaimKind.MEMORY, stubbed=True),
    Sacrifice("older turns", ClaimKind.TURN),
    Sacrifice("memories", ClaimKind.MEMORY),
    Sacrifice("evidence", ClaimKind.EVIDENCE),
    Sacrifice("gists", ClaimKind.GIST),
)
DEPTH = "message depth"  # the limit itself: a turn beyond it goes, whatever the budget
GIST_SHARE = 0.25  # of the tokens of the turns that it stands for: a longer one is no gist
GIST_BUDGET_SHARE = 1 / 32  # of the budget: several of them stand in a long conversation
GIST_CHARACTERS = 8  # a token of a gist has at most; prose has 4 to 5
HEADROOM = 0.25  # of what may be cut at all


def limits_of(window: int, reserved: int, kv_tokens: int, settings: ClaimSettings) -> PromptLimits:
    """The limits of a prompt: `window` of one sequence, `reserved` for its answer, `kv_tokens` that can be held."""
    tokens = max(0, min(window - reserved, kv_tokens))
    cap = settings.characters if settings.characters is not None else window * settings.characters_per_token
    return PromptLimits(tokens, cap, settings.depth, min(settings.gist, int(tokens * GIST_BUDGET_SHARE)))


def settle(claims: Sequence[Claim], limits: PromptLimits, gone: Iterable[Claim] = ()) -> Settlement:
    """The verdict on every claim under `limits`. `gone`: turns that are no claims, for which a gist may stand too."""
    old = _beyond_depth(claims, limits.depth)
    granted = [_shrunk(claim, 0, DEPTH) if at in old else _whole(claim) for at, claim in enumerate(claims)]
    gist = _Gist(limits, (*gone, *(claims[at] for at in sorted(old))))
    over, headroom, with_turn = _over(granted, limits), 0, _by_turn(claims)
    for at, sacrifice in _sacrifices(claims):
        claim = claims[at]
        if not _exceeds(over, gist.room_for(claim.kind, headroom)):
            break
        if claim.kind is ClaimKind.TURN and granted[at].tokens:
            gist.take(claim)
            headroom = headroom or _headroom(claims, limits)
        for one in with_turn.get(claim.turn, [at]) if claim.kind is ClaimKind.TURN else [at]:
            size, before = claims[one].stub if sacrifice.stubbed else 0, granted[one]
            if size < before.tokens:
                now = granted[one] = _shrunk(claims[one], size, sacrifice.name)
                over = over[0] - before.tokens + now.tokens, over[1] - before.characters + now.characters
    if _exceeds(over):
        return _refused(claims, granted, limits)
    tokens, characters = gist.size
    return Settlement(tuple(granted), gist_tokens=min(tokens, -over[0]), gist_characters=min(characters, -over[1]))


# ---- the gist ------------------------------------------------------------------------------------------------------


class _Gist:
    """What may stand in the place of the turns that go, in tokens and characters."""

    def __init__(self, limits: PromptLimits, gone: Iterable[Claim]) -> None:
        self._most = limits.gist
        self._tokens = self._characters = 0
        self.size = 0, 0
        for claim in gone:
            self.take(claim)

    def take(self, claim: Claim) -> None:
        if claim.kind is ClaimKind.TURN:
            self._tokens += claim.tokens
            self._characters += claim.characters
            tokens = min(self._most, int(self._tokens * GIST_SHARE))
            self.size = tokens, min(tokens * GIST_CHARACTERS, int(self._characters * GIST_SHARE))

    def room_for(self, kind: ClaimKind, headroom: int) -> tuple[int, int]:
        """What a claim of this kind goes for beyond the limits: one gist for another would be no gain."""
        if kind is ClaimKind.GIST:
            return 0, 0
        tokens, characters = self.size
        return tokens + (headroom if kind is ClaimKind.TURN else 0), characters


def _headroom(claims: Sequence[Claim], limits: PromptLimits) -> int:
    """Tokens that shall be free when turns have gone; without a gist as few turns go as can."""
    pinned = sum(claim.tokens for claim in claims if claim.kind in NEVER_CUT)
    return int(max(0, limits.tokens - pinned) * HEADROOM) if limits.gist else 0


# ---- turns ---------------------------------------------------------------------------------------------------------


def _by_turn(claims: Sequence[Claim]) -> dict[int | None, list[int]]:
    """Positions of what goes with each turn, itself among them."""
    found: dict[int | None, list[int]] = {}
    for at, claim in enumerate(claims):
        if claim.turn is not None and claim.kind not in NEVER_CUT:
            found.setdefault(claim.turn, []).append(at)
    return found


# ---- the order -----------------------------------------------------------------------------------------------------


def _beyond_depth(claims: Sequence[Claim], depth: int | None) -> frozenset[int]:
    """Positions of the claims of turns that are not among the last `depth`; none without a limit."""
    if depth is None:
        return frozenset()
    turns = sorted({claim.turn for claim in claims if claim.turn is not None})
    shown = {None, *turns[-depth:]}
    return frozenset(at for at, claim in enumerate(claims) if claim.kind not in NEVER_CUT and claim.turn not in shown)


def _sacrifices(claims: Sequence[Claim]) -> Iterator[tuple[int, Sacrifice]]:
    """Every sacrifice that can be made, in the order in which it is."""
    for sacrifice in SACRIFICES:
        chosen = [at for at, claim in enumerate(claims) if claim.kind is sacrifice.kind]
        yield from ((at, sacrifice) for at in sorted(chosen, key=lambda at: _sooner(claims[at], at)))


def _sooner(claim: Claim, at: int) -> tuple[float, int, int]:
    return claim.weight, -1 if claim.turn is None else claim.turn, at


# ---- one claim -----------------------------------------------------------------------------------------------------


def _whole(claim: Claim) -> Verdict:
    return Verdict(claim.id, Action.KEEP, claim.tokens, claim.characters)


def _shrunk(claim: Claim, tokens: int, reason: str) -> Verdict:
    """Characters go down in the proportion of tokens, rounded down: both are limits that the shorter form must keep."""
    if not claim.tokens:
        return _whole(claim)
    action = Action.CONDENSE if tokens else Action.DROP
    return Verdict(claim.id, action, tokens, claim.characters * tokens // claim.tokens, reason)


# ---- sums ----------------------------------------------------------------------------------------------------------


def _over(granted: Sequence[Verdict], limits: PromptLimits) -> tuple[int, int]:
    """Tokens and characters above the limits; below 0 is what is free."""
    tokens, characters = _sums(granted)
    return tokens - limits.tokens, characters - limits.characters


def _exceeds(over: tuple[int, int], room: tuple[int, int] = (0, 0)) -> bool:
    """Whether too much is left, where so many tokens and characters shall be free."""
    return over[0] + room[0] > 0 or over[1] + room[1] > 0


def _sums(granted: Sequence[Verdict]) -> tuple[int, int]:
    return sum(one.tokens for one in granted), sum(one.characters for one in granted)


def _refused(claims: Sequence[Claim], least: Sequence[Verdict], limits: PromptLimits) -> Settlement:
    """All are kept as they were. `least` is what stays when everything that may go has gone."""
    tokens, characters = _sums(least)
    if tokens > limits.tokens:
        sentence = f"the prompt needs at least {tokens:,} tokens and {limits.tokens:,} can be held"
    else:
        sentence = f"the prompt has at least {characters:,} characters and {limits.characters:,} are allowed"
    kept = [claim for claim in claims if claim.kind in NEVER_CUT]
    largest = max(kept, key=lambda claim: claim.tokens, default=None)
    hint = "shorten the question, or ask for a shorter answer"
    if largest is not None:
        hint += f"; the largest part that may not be cut is {largest.id} with {largest.tokens:,} tokens"
    over = max(0, tokens - limits.tokens)
    refusal = ClaimsRefusal(sentence, hint, largest.id if largest else "", over)
    return Settlement(tuple(_whole(claim) for claim in claims), refusal)
