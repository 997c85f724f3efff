"""Sets of characters, as sorted ranges of code points that do not touch. Knows no grammar.

What stands in a JSON text as a character of a string is all of Unicode but surrogates and those control characters that
JSON has no short escape for.
"""

from collections.abc import Iterable

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
