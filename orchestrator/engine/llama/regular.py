"""JSON schema's regular expressions (ECMAScript's, without `u`) read into trees of sets of characters. Knows no grammar.

Refused with the reason: what no finite automaton does (looking around, references back), anchors other than at the ends,
and what is too long. A pattern without anchors is found anywhere, as JSON schema has it.

A set of characters is sorted ranges of code points that do not touch. `TEXT` are the characters that a string of a JSON
text may hold: all of Unicode but surrogates and those control characters that JSON has no short escape for.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.engine.backend import SchemaRefused

Ranges = tuple[tuple[int, int], ...]  # inclusive at both ends
LAST = 0x10FFFF
ESCAPES = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}  # how JSON writes them


def union(*sets: Ranges) -> Ranges:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(one for ranges in sets for one in ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def inverse(ranges: Ranges) -> Ranges:
    gaps, start = [], 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    return (*gaps, (start, LAST)) if start <= LAST else tuple(gaps)


def both(left: Ranges, right: Ranges) -> Ranges:
    return inverse(union(inverse(left), inverse(right)))


def of(text: str) -> Ranges:
    return union(*(((ord(character), ord(character)),) for character in text))


def classes(sets: Iterable[Ranges]) -> list[tuple[Ranges, frozenset[Ranges]]]:
    """The fewest sets such that each of the given ones is a union of some; each with those that hold it."""
    given = set(sets)
    events = sorted(
        event for ranges in given for low, high in ranges for event in ((low, True, ranges), (high + 1, False, ranges))
    )
    found: dict[frozenset[Ranges], list[tuple[int, int]]] = {}
    within: set[Ranges] = set()
    start = 0
    for at, opens, ranges in events:
        if within and at > start:
            found.setdefault(frozenset(within), []).append((start, at - 1))
        start = at
        (within.add if opens else within.remove)(ranges)
    return [(union(tuple(pieces)), holders) for holders, pieces in found.items()]


TEXT = union(inverse(((0, 0x1F), (0xD800, 0xDFFF))), of("\b\t\n\f\r"))
DIGITS = of("0123456789")
WORD = union(DIGITS, ((0x41, 0x5A), (0x61, 0x7A)), of("_"))
SPACE = union(of("\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), ((0x2000, 0x200A),))
LINE_ENDS = of("\n\r\u2028\u2029")


MOST_PATTERN = 256  # characters of a regular expression
MOST_REPEATS = 1000
MOST_OPEN = 64  # groups within one another; whoever reads or follows them goes a few calls deeper with each
SETS = {"d": DIGITS, "w": WORD, "s": SPACE, "D": inverse(DIGITS), "W": inverse(WORD), "S": inverse(SPACE)}
SIGNS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d{1,9})(,?)(\d{0,9})\})\??")


@dataclass(frozen=True)
class Character:
    ranges: Ranges


@dataclass(frozen=True)
class Sequence:
    items: tuple["Tree", ...]


@dataclass(frozen=True)
class Alternatives:
    items: tuple["Tree", ...]


@dataclass(frozen=True)
class Repeat:
    item: "Tree"
    least: int
    most: int | None


Tree = Character | Sequence | Alternatives | Repeat
ANYTHING = Repeat(Character(TEXT), 0, None)


def read_pattern(pattern: str) -> Tree:
    """The tree of a whole text that the pattern is found in. Raises SchemaRefused."""
    if len(pattern) > MOST_PATTERN:
        raise SchemaRefused(f"a pattern has {len(pattern)} characters; at most {MOST_PATTERN} are taken")
    return _Reader(pattern).whole()


def read_expression(text: str) -> Tree:
    """One of ours: as long as it is, from its first character to its last."""
    return _Reader(text).choice()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._open = 0

    def whole(self) -> Tree:
        found = [self._anchored()]
        while self._took("|"):
            found.append(self._anchored())
        if self._at < len(self._text):
            raise self._refusal("a bracket is closed that was not opened")
        return Alternatives(tuple(found))

    def _anchored(self) -> Tree:
        begins = self._took("^")
        inner = self._sequence()
        ends = self._took("$")
        return Sequence((*(() if begins else (ANYTHING,)), inner, *(() if ends else (ANYTHING,))))

    def choice(self) -> Tree:
        found = [self._sequence()]
        while self._took("|"):
            found.append(self._sequence())
        return found[0] if len(found) == 1 else Alternatives(tuple(found))

    def _sequence(self) -> Tree:
        items: list[Tree] = []
        while (sign := self._peek()) and sign not in "|)" and not (sign == "$" and self._ends()):
            items.append(self._repeated(self._atom()))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _ends(self) -> bool:
        return self._text[self._at + 1 : self._at + 2] in ("", "|")

    def _repeated(self, item: Tree) -> Tree:
        match = QUANTIFIER.match(self._text, self._at)
        if not match:
            return item
        self._at = match.end()
        least, most = _times(match)
        if max(least, most or 0) > MOST_REPEATS:
            raise SchemaRefused(f"a pattern repeats more than {MOST_REPEATS} times")
        if most is not None and most < least:
            raise self._refusal("a repetition's most is less than its least")
        if QUANTIFIER.match(self._text, self._at):
            raise self._refusal("a repetition is repeated without brackets")
        return Repeat(item, least, most)

    def _atom(self) -> Tree:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            return Character(self._class())
        if sign == ".":
            return Character(inverse(LINE_ENDS))
        if sign == "\\":
            return Character(self._escaped(SETS))
        if sign in "^$":
            raise self._refusal("^ and $ are taken at its ends alone")
        if sign in "*+?" or QUANTIFIER.match(self._text, self._at - 1):
            raise self._refusal("there is nothing to repeat")
        return Character(of(sign))

    def _group(self) -> Tree:
        if self._took("?") and not self._took(":"):
            raise self._refusal("groups that look around or have names are not taken")
        self._open += 1
        if self._open > MOST_OPEN:
            raise self._refusal(f"more than {MOST_OPEN} groups lie within one another")
        inner = self.choice()
        if not self._took(")"):
            raise self._refusal("a bracket is not closed, or $ stands in one")
        self._open -= 1
        return inner

    def _class(self) -> Ranges:
        negated, found = self._took("^"), []
        while not self._took("]"):
            low = self._member()
            ahead = self._text[self._at : self._at + 2]
            if len(ahead) == 2 and ahead[0] == "-" and ahead[1] != "]":
                self._at += 1
                high = self._member()
                if _single(low) is None or _single(high) is None or low > high:
                    raise self._refusal("a range of characters runs backwards or has a set at its end")
                low = ((low[0][0], high[0][0]),)
            found.append(low)
        return inverse(union(*found)) if negated else union(*found)

    def _member(self) -> Ranges:
        sign = self._next()
        return self._escaped({**SETS, "b": of("\b")}) if sign == "\\" else of(sign)

    def _escaped(self, sets: dict[str, Ranges]) -> Ranges:
        sign = self._next()
        if sign in sets:
            return sets[sign]
        if sign in ("x", "u"):
            digits = self._text[self._at : self._at + (2 if sign == "x" else 4)]
            if not re.fullmatch(r"[0-9a-fA-F]{2}|[0-9a-fA-F]{4}", digits):
                raise self._refusal(f"\\{sign} needs its hexadecimal digits")
            self._at += len(digits)
            return of(chr(int(digits, 16)))
        if sign in SIGNS:
            return of(SIGNS[sign])
        if sign.isascii() and sign.isalnum():
            raise self._refusal(f"\\{sign} is not taken")
        return of(sign)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        sign = self._peek()
        if not sign:
            raise self._refusal("it ends where more has to come (a lone backslash, an open bracket)")
        self._at += 1
        return sign

    def _took(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _refusal(self, why: str) -> SchemaRefused:
        return SchemaRefused(f"no grammar can be made of the pattern {self._text!r}, at character {self._at}: {why}")


def _times(match: re.Match[str]) -> tuple[int, int | None]:
    sign, least, comma, most = match.groups()
    if sign:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
    return int(least), (int(most) if most else None) if comma else int(least)


def _single(ranges: Ranges) -> int | None:
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None
