"""Texts with needles in them, questions about these, and what the answers say of a model's length. Pure.

    ├─needles─ filler ─needles─ filler ─needles─ filler ─needles─ filler ─needles─┤
    0 %               25 %             50 %             75 %             100 %   of one length
    ├──────── a shorter length is the beginning of a longer one ───┤

So one text serves all lengths, and its KV is computed once. Needles stand at `places`; lengths share those that lie near.
Each place has a vault with its access code, and the beginning of a chain of variables whose further links stand at other
places of the same length. The kinds of questions are those of RULER (Hsieh et al. 2024, arXiv:2404.06654):

    single   one vault's code
    several  the codes of the vaults at all five depths, in one answer
    chain    the number that a variable has through two to four others

A kind counts where the model masters it in the shortest text: what it cannot do there says nothing of lengths. A length
is followed where PASSING of what counts is right. The effective length is the longest that is followed with all
shorter ones. Knows no tokenizer: lines come with their ids.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.engine.messages import Ids

KINDS = ("single", "several", "chain")
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LENGTHS = 6
# RULER calls a length effective where a model does as well as Llama 2 7B does at 4,000 tokens, 85.6 % over 13 tasks. Here
# five to fifteen answers decide, each a step of 7 to 20 %.
PASSING = 0.8
SHORTEST, LONGEST_FIRST, STEPS = 1024, 4096, 8  # the first of the lengths: an eighth of the longest, between these
RESERVE = 512  # tokens of a prompt and its answer beside the text: instructions, the question, the template
NEAR = 0.05  # of a length: a needle this near to a wanted depth serves
HOPS = (2, 3, 4)  # of a chain, in turn
SEED = 20_240_406
CODE = re.compile(r"(?<!\d)\d{7}(?!\d)")
SHORT_ANSWER, LONG_ANSWER = 64, 160  # tokens; a model that thinks aloud needs more than a number's
INSTRUCTIONS = (
    "You answer questions about the text that follows. Some of its lines state numbers; use no other ones.\n\n"
)
VAULT, VALUE, LINK = "The access code of vault {} is", "The value of variable {} is", "the value of variable"
ONE = "What is the access code of vault {}? Write the number alone."
LIST = "Which access codes do these vaults have? Write each vault with its code on a line of its own, as VAULT: CODE.\n\n{}"
FOLLOW = (
    "Which number does variable {0} have? Write the variables that lead to it, and then the number: {0} = … = NUMBER."
)

FIRST = (
    "amber brisk coral dusky ember fallow gilded hollow ivory jagged kindred lunar mellow northern opal placid quiet "
    "russet silver tawny umber velvet woven young arctic bronze crimson distant eastern frosty golden hidden"
)
SECOND = (
    "anchor badger cedar dune egret falcon glacier harbor island jackal kestrel lantern marten nettle osprey pebble "
    "quarry raven sparrow thistle urchin violet willow yarrow beacon canyon delta ferret grove heron juniper lagoon"
)
THINGS = (
    "buffer cache cursor daemon encoder fixture gateway handler index journal kernel ledger mapper node object parser "
    "queue record socket table update vector worker archive bucket client digest event filter header input layout"
)
DOES = "reads writes merges splits checks opens closes renames copies sorts counts marks holds drops sends packs"
WHEN = (
    "before the caller returns|after the lock is free|while nobody waits|once a minute|when the disk is full|as the "
    "tests expect|in the order of arrival|unless a flag forbids it|without a copy|for every request|at the first "
    "failure|until the peer is gone"
)


# -- lengths and places


def lengths_for(window: int) -> tuple[int, ...]:
    """Six lengths in even steps up to the longest text that a window holds; none for one too short to tell."""
    longest = (window - RESERVE) // 256 * 256
    first = max(SHORTEST, min(LONGEST_FIRST, longest // STEPS))
    if longest < 2 * first:
        return ()
    ratio = (longest / first) ** (1 / (LENGTHS - 1))
    return (*(round(first * ratio**step) for step in range(LENGTHS - 1)), longest)


def places(lengths: Sequence[int]) -> dict[tuple[int, float], int]:
    """Where needles stand for each length and depth, in tokens. The last one of a length is its end."""
    found: dict[tuple[int, float], int] = {}
    for length in lengths:
        for depth in DEPTHS:
            wanted = round(depth * length)
            near = min(found.values(), key=lambda place: abs(place - wanted), default=wanted)
            found[length, depth] = near if abs(near - wanted) <= NEAR * length else wanted
    return found


# -- needles and questions


@dataclass(frozen=True)
class NeedleQuestion:
    """`begun`: how the answer begins, so that it comes to the point, as in RULER. `expected`: the right code for each of
    `depths`. `most`: tokens of an answer."""

    kind: str
    depths: tuple[float, ...]
    text: str
    begun: str
    expected: tuple[str, ...]
    most: int

    def judge(self, answer: str) -> tuple[bool, ...]:
        """For each depth whether the answer has its code, among as many as were asked for."""
        said = CODE.findall(answer)[: len(self.expected)]
        return tuple(code in said for code in self.expected)


@dataclass(frozen=True)
class Needles:
    """All needles of some lengths. `lines` by place; `vaults` and `chains`: at each place what is asked and its code."""

    places: Mapping[tuple[int, float], int]
    lines: Mapping[int, tuple[str, ...]]
    vaults: Mapping[int, tuple[str, str]]
    chains: Mapping[int, tuple[str, str]]

    def questions(self, length: int) -> list[NeedleQuestion]:
        return [
            *(self._single(length, depth) for depth in DEPTHS),
            self._several(length),
            *(self._chain(length, depth) for depth in DEPTHS),
        ]

    def _single(self, length: int, depth: float) -> NeedleQuestion:
        name, code = self.vaults[self.places[length, depth]]
        return NeedleQuestion("single", (depth,), ONE.format(name), VAULT.format(name), (code,), SHORT_ANSWER)

    def _several(self, length: int) -> NeedleQuestion:
        found = [self.vaults[self.places[length, depth]] for depth in DEPTHS]
        names, codes = zip(*found, strict=True)
        return NeedleQuestion(
            "several", DEPTHS, LIST.format("\n".join(names)), f"{names[0]}:", tuple(codes), LONG_ANSWER
        )

    def _chain(self, length: int, depth: float) -> NeedleQuestion:
        name, code = self.chains[self.places[length, depth]]
        return NeedleQuestion("chain", (depth,), FOLLOW.format(name), f"{name} =", (code,), SHORT_ANSWER)


def needles(lengths: Sequence[int], seed: int = SEED) -> Needles:
    """The same for the same lengths and seed, on every machine."""
    at, draw = places(lengths), random.Random(seed)  # noqa: S311 - no secret
    ordered = sorted(set(at.values()))
    names = iter(
        draw.sample([f"{one}-{two}" for one in FIRST.split() for two in SECOND.split()], len(ordered) * (max(HOPS) + 2))
    )
    codes = iter(draw.sample(range(1_000_000, 10_000_000), 2 * len(ordered)))
    lines: dict[int, list[str]] = {place: [] for place in ordered}
    vaults, chains = dict[int, tuple[str, str]](), dict[int, tuple[str, str]]()
    for number, place in enumerate(ordered):
        vaults[place] = next(names), str(next(codes))
        lines[place].append(f"{VAULT.format(vaults[place][0])} {vaults[place][1]}.\n")
        home = min(length for (length, _), one in at.items() if one == place)
        others = [one for one in ordered if one <= home and one != place]
        variable, code = next(names).replace("-", "_"), str(next(codes))
        lines[place].append(f"{VALUE.format(variable)} {code}.\n")
        for where in draw.sample(others, HOPS[number % len(HOPS)]):
            before, variable = variable, next(names).replace("-", "_")
            lines[where].append(f"{VALUE.format(variable)} {LINK} {before}.\n")
        chains[place] = variable, code
    return Needles(at, {place: tuple(some) for place, some in lines.items()}, vaults, chains)


# -- the text


def filler(seed: int = SEED) -> Iterator[str]:
    """Lines that look like a codebase's notes and code, without end. They hold no number."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    while True:
        one, two, three = draw.sample(THINGS.split(), 3)
        does, when = draw.choice(DOES.split()), draw.choice(WHEN.split("|"))
        if draw.random() < 0.6:
            yield f"The {one} {does} the {two} of each {three} {when}.\n"
        else:
            yield f"def {does}_{one}({two}, {three}):\n"
            yield f"    return {two}.{draw.choice(DOES.split())}({three})  # {when}\n"


@dataclass(frozen=True)
class Line:
    text: str
    ids: Ids

    @property
    def tokens(self) -> int:
        return len(self.ids) // 4


@dataclass(frozen=True)
class Haystack:
    """`ends`: by place, how many lines there are to the end of its needles."""

    lines: tuple[Line, ...]
    ends: Mapping[int, int]

    def text(self, length: int) -> tuple[Line, ...]:
        """The text of one of the lengths: the longest's, as far as its own last needles."""
        return self.lines[: self.ends[length]]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each line begins, in tokens."""
        found, at = [], 0
        for line in self.lines:
            found.append(at)
            at += line.tokens
        return tuple(found)


def woven(between: Iterable[Line], groups: Mapping[int, Sequence[Line]]) -> Haystack:
    """Filler and needles by place, which end there, less than a line before; where they are too many, behind it."""
    lines, ends, at = list[Line](), dict[int, int](), 0
    rest = iter(between)
    following = next(rest)
    for place in sorted(groups):
        size = sum(line.tokens for line in groups[place])
        while at + following.tokens + size <= place:
            lines.append(following)
            at += following.tokens
            following = next(rest)
        lines.extend(groups[place])
        at += size
        ends[place] = len(lines)
    return Haystack(tuple(lines), ends)


# -- what the answers say

Results = Mapping[tuple[int, str, float], bool]
"""Whether the answer was right, by length, kind and depth."""


def share(results: Results, length: int, kinds: Sequence[str]) -> float | None:
    """Of the answers that were right; None where one is missing or nothing is asked."""
    cells = [results.get((length, kind, depth)) for kind in kinds for depth in DEPTHS]
    if not cells or any(cell is None for cell in cells):
        return None
    return sum(map(bool, cells)) / len(cells)


@dataclass(frozen=True)
class LengthVerdict:
    """`counted`: kinds that the model masters in the shortest text, None before that is known. `followed`: lengths up to
    the first that is not, which is `lost`, None where there is none. `missing`: lengths that must still be asked."""

    counted: tuple[str, ...] | None
    followed: tuple[int, ...]
    lost: int | None
    missing: tuple[int, ...]

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def effective(self) -> int | None:
        """Tokens; None where the model masters nothing, or nothing is known."""
        return self.followed[-1] if self.complete and self.followed else None

    def limit(self, least: int) -> int | None:
        """The longest window that is of use, never below `least`; None where no length was lost."""
        return None if self.effective is None or self.lost is None else max(self.effective, least)


def judged(lengths: Sequence[int], results: Results) -> LengthVerdict:
    """Nothing is asked of a length beyond the first that is lost, nor of any where nothing counts."""
    if not lengths:
        return LengthVerdict((), (), None, ())
    first = {kind: share(results, lengths[0], [kind]) for kind in KINDS}
    if any(one is None for one in first.values()):
        return LengthVerdict(None, (), None, tuple(lengths))
    counted = tuple(kind for kind, one in first.items() if one is not None and one >= PASSING)
    followed = list[int]()
    for at, length in enumerate(lengths if counted else ()):
        if any(share(results, length, [kind]) is None for kind in KINDS):
            return LengthVerdict(counted, tuple(followed), None, tuple(lengths[at:]))
        found = share(results, length, counted)
        assert found is not None
        if found < PASSING:
            return LengthVerdict(counted, tuple(followed), length, ())
        followed.append(length)
    return LengthVerdict(counted, tuple(followed), None, ())
