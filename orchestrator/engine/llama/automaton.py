"""Trees of regular expressions to deterministic automata, within a budget of work, and these to rules of a grammar.

llama.cpp follows each way to read a text by itself, and never sees that two of them have met: `(a|a)*` doubles with each
character of a token. A deterministic automaton has one way for each text, so what a pattern says cannot cost more than
what it reads. Glushkov's construction: a state is the set of the expression's characters that may have been read last.
Built from right to left, so that each character's followers are joined once.

Each state is one rule. Inside a JSON string some characters are written as escapes; all of them begin alike, so a state has
at most one more rule, behind the backslash. Every reference stands last in its alternative: llama.cpp's stacks do not grow.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.regular import (
    ESCAPES,
    TEXT,
    Alternatives,
    Character,
    Ranges,
    Repeat,
    Sequence,
    Tree,
    both,
    classes,
    inverse,
    of,
    union,
)

MOST_WORK = 150_000  # joined sets of one schema, about 0.1 s
MOST_POSITIONS = 5000  # of one schema: each holds a bit for every other
MOST_STATES = 3000  # of one schema; each is a rule of the grammar


ESCAPED = union(*(((code, code),) for code in ESCAPES))


@dataclass(frozen=True)
class Automaton:
    """Deterministic; begins in state 0. From every state an accepting one can be reached."""

    steps: tuple[tuple[tuple[Ranges, int], ...], ...]  # of each state: characters, and the state after one of them
    accepting: frozenset[int]


class StateBudget:
    """What the patterns of one schema may take together."""

    def __init__(self) -> None:
        self._work, self._states, self._positions = MOST_WORK, MOST_STATES, MOST_POSITIONS

    def position(self) -> None:
        self._positions -= 1
        if self._positions < 0:
            raise SchemaRefused(f"the JSON schema's patterns have more than {MOST_POSITIONS} characters when repeated")

    def work(self, amount: int) -> None:
        self._work -= amount
        if self._work < 0:
            raise SchemaRefused(
                "the JSON schema's patterns are too ambiguous or repeat too much: they take too many steps"
            )

    def state(self) -> None:
        self._states -= 1
        if self._states < 0:
            raise SchemaRefused(f"the JSON schema's patterns need more than {MOST_STATES} states")


def determine(tree: Tree, budget: StateBudget) -> Automaton:
    """Raises SchemaRefused past the budget, and where no text fits."""
    return _pruned(*_subsets(_Positions(budget), tree, budget))


@dataclass(frozen=True)
class _Part:
    """Of an expression: whether it may be empty, and the characters that it may begin and end with, as bits."""

    empty: bool
    first: int
    last: int


NOTHING = _Part(True, 0, 0)


class _Positions:
    def __init__(self, budget: StateBudget) -> None:
        self.sets: list[Ranges] = []
        self.after: list[int] = []
        self._budget = budget

    def add(self, tree: Tree) -> _Part:
        self._budget.work(1)
        match tree:
            case Character(ranges):
                self._budget.position()
                self.sets.append(ranges)
                self.after.append(0)
                bit = 1 << (len(self.sets) - 1)
                return _Part(False, bit, bit)
            case Alternatives(items):
                parts = [self.add(item) for item in items]
                return _Part(
                    any(p.empty for p in parts), _joined(p.first for p in parts), _joined(p.last for p in parts)
                )
            case Sequence(items):
                part = NOTHING
                for item in reversed(items):
                    part = self._before(self.add(item), part)
                return part
            case Repeat(item, least, most):
                return self._repeated(item, least, most)

    def _repeated(self, item: Tree, least: int, most: int | None) -> _Part:
        part = NOTHING
        if most is None:
            part = self.add(item)
            self._follow(part.last, part.first)
            part = _Part(part.empty or not least, part.first, part.last)
            least = max(least - 1, 0)
        for _ in range((most or least) - least):
            part = self._before(self.add(item), part)
            part = _Part(True, part.first, part.last)
        for _ in range(least):
            part = self._before(self.add(item), part)
        return part

    def _before(self, left: _Part, right: _Part) -> _Part:
        self._follow(left.last, right.first)
        return _Part(
            left.empty and right.empty,
            left.first | (right.first if left.empty else 0),
            right.last | (left.last if right.empty else 0),
        )

    def _follow(self, last: int, first: int) -> None:
        for position in _bits(last):
            self._budget.work(1)
            self.after[position] |= first


def _subsets(positions: _Positions, tree: Tree, budget: StateBudget) -> tuple[list[dict[int, Ranges]], set[int]]:
    """Of each state the characters that lead to others, and the states in which a text may end."""
    whole = positions.add(tree)
    kinds = _kinds(positions.sets, budget)
    numbers, reads, steps, accepting = {-1: 0}, [-1], list[dict[int, Ranges]](), set[int]()
    while len(steps) < len(reads):
        read = reads[len(steps)]  # the positions read last; -1 at the beginning
        budget.state()
        follow = whole.first
        if read != -1:
            follow = 0
            for position in _bits(read):
                budget.work(1)
                follow |= positions.after[position]
        if whole.empty if read == -1 else read & whole.last:
            accepting.add(len(steps))
        found: dict[int, Ranges] = {}
        for characters, members in kinds:
            budget.work(1)
            target = follow & members
            if target:
                if target not in numbers:
                    numbers[target] = len(reads)
                    reads.append(target)
                number = numbers[target]
                found[number] = union(found[number], characters) if number in found else characters
        steps.append(found)
    return steps, accepting


def _kinds(sets: list[Ranges], budget: StateBudget) -> list[tuple[Ranges, int]]:
    """Characters that the expression never tells apart, with the positions that take them."""
    members: dict[Ranges, int] = {}
    for position, ranges in enumerate(sets):
        members[ranges] = members.get(ranges, 0) | 1 << position
    budget.work(sum(len(ranges) for ranges in members))
    found = ((both(characters, TEXT), holders) for characters, holders in classes(members))
    return [(text, _joined(members[ranges] for ranges in holders)) for text, holders in found if text]


def _pruned(steps: list[dict[int, Ranges]], accepting: set[int]) -> Automaton:
    before: dict[int, list[int]] = {}
    for state, found in enumerate(steps):
        for target in found:
            before.setdefault(target, []).append(state)
    alive, todo = set(accepting), list(accepting)
    while todo:
        for state in before.get(todo.pop(), ()):
            if state not in alive:
                alive.add(state)
                todo.append(state)
    if 0 not in alive:
        raise SchemaRefused("no grammar can be made of a pattern that no text fits")
    numbers = {state: number for number, state in enumerate(sorted(alive))}
    return Automaton(
        tuple(
            tuple((found[target], numbers[target]) for target in found if target in alive)
            for found in _of(steps, alive)
        ),
        frozenset(numbers[state] for state in accepting),
    )


def _of(steps: list[dict[int, Ranges]], states: set[int]) -> Iterator[dict[int, Ranges]]:
    return (steps[state] for state in sorted(states))


def _joined(sets: Iterable[int]) -> int:
    joined = 0
    for one in sets:
        joined |= one
    return joined


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


# -- as rules of a grammar


def string_rules(automaton: Automaton, name: str) -> dict[str, str]:
    """The rules of JSON strings with the automaton's texts, their quotes included; `name` is the one to begin with."""
    rules = {name: rf'"\"" {name}-0'}
    for state, steps in enumerate(automaton.steps):
        alternatives = [
            f"{_class(plain)} {name}-{target}" for ranges, target in steps if (plain := both(ranges, inverse(ESCAPED)))
        ]
        escaped = [f"{_class(letters)} {name}-{target}" for ranges, target in steps if (letters := _letters(ranges))]
        if escaped:
            alternatives.append(rf'"\\" {name}-{state}-e')
            rules[f"{name}-{state}-e"] = " | ".join(escaped)
        if state in automaton.accepting:
            alternatives.append(r'"\"" space')
        rules[f"{name}-{state}"] = " | ".join(alternatives)
    return rules


def plain_rules(automaton: Automaton, name: str) -> dict[str, str]:
    """The rules of the automaton's texts as they are: numbers."""
    rules = {name: f"{name}-0"}
    for state, steps in enumerate(automaton.steps):
        alternatives = [f"{_class(ranges)} {name}-{target}" for ranges, target in steps]
        rules[f"{name}-{state}"] = " | ".join([*alternatives, *(["space"] if state in automaton.accepting else [])])
    return rules


def _letters(ranges: Ranges) -> Ranges:
    """What stands behind a backslash for those of the characters that are escaped."""
    inside = both(ranges, ESCAPED)
    return of("".join(letter for code, letter in ESCAPES.items() if any(low <= code <= high for low, high in inside)))


def _class(ranges: Ranges) -> str:
    return f"[{''.join(_spelled(ranges))}]"


def _spelled(ranges: Ranges) -> Iterator[str]:
    for low, high in ranges:
        yield _sign(low) + (f"-{_sign(high)}" if high > low else "")


def _sign(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\U{code:08X}"
