"""How much of a question texts hold, and which of them answer it best. Pure: the same texts and weights give the same.

    text ─▶ passages, its lines ─▶ BM25 of each, of its words, of pieces of its words and of pairs of words in a row
            a passage counts as itself, + 0.5 of each one beside it, + 0.2 of each one behind that
            of several lines the best counts by half, the next by a quarter and so on, and the whole text is added

A reply ("Yes, last week") belongs to what it replies to: the texts before and after one stand beside its lines.
Two words in a row, as in "road trip", say more than each alone; one of them may be a function word ("a break").
Pieces are three letters of a word and its ends: `_fe fes est st_`. They make words of one stem that the index parts
(health, healthy), compounds, and misspelt words resemble each other. Knows no memory and no database.
"""

import math
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from codex.words import STOP_WORDS
from orchestrator.karma.forms import base_of

TOKENIZER = "porter unicode61"  # of the index of memories: English endings do not matter
K1, B = 1.2, 0.75  # of BM25: the values of Robertson and Zaragoza (2009), which are also SQLite's
BESIDE, BEHIND = 0.5, 0.2  # what the passage beside one counts, and the one behind that
PIECE = 0.125  # what a piece of a word counts, of a word; a word has about five
PAIR = 0.2  # what two words in a row count, of a word; 0.1 to 0.3 find the same (decision 0033)
NEXT = 0.5  # what the next best line counts, of the one before
_WORD = re.compile(r"[^\W_]+")
# The same of an ASCII text, in a quarter of the time.
_BETWEEN = {sign: " " for sign in range(128) if not chr(sign).isalnum()}

Bag = tuple[Mapping[str, int], int]  # how often a text holds each feature, and its length in words


@dataclass(frozen=True)
class Term:
    """A word of a question. `weight`: what it counts, by its idf among all that is searched. A compound has several tokens;
    a text that holds them all holds it."""

    word: str
    weight: float


@dataclass(frozen=True)
class Candidate:
    """A text that may answer, with the texts `before` and `after` it in its conversation, the nearest first."""

    text: str
    before: Sequence[str] = ()
    after: Sequence[str] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, *self.before, *self.after)


@dataclass(frozen=True)
class TextMatch:
    """`similarity`: the share of the question's weight that a text holds, 0..1; what stands beside it counts less.
    `strength`: by BM25, comparable among the texts of one call alone."""

    similarity: float
    strength: float


def matches(question: str, terms: Sequence[Term], candidates: Sequence[Candidate]) -> list[TextMatch]:
    """Of each candidate, in their order. `terms`: what is asked for of the question's words."""
    reader = _Reader(question, terms, {line for one in candidates for text in one.texts for line in lines_of(text)})
    read = [list(map(reader.bag, lines_of(one.text))) for one in candidates]
    wholes = list(map(_joined, read))
    of_lines = _Okapi([line for lines in read for line in lines], reader.weights)
    of_wholes = of_lines if all(len(lines) == 1 for lines in read) else _Okapi(wholes, reader.weights)
    found = []
    for one, lines, whole in zip(candidates, read, wholes, strict=True):
        before, after = (
            [_joined(list(map(reader.bag, lines_of(text)))) for text in texts] for texts in (one.before, one.after)
        )
        scores = windows([of_lines.score(bag) for bag in (*reversed(before), *lines, *after)])
        strength = together(scores[len(before) : len(before) + len(lines)])
        strength += of_wholes.score(whole) if len(lines) > 1 else 0.0
        found.append(TextMatch(reader.share(whole, before, after), strength))
    return found


def windows(scores: Sequence[float]) -> list[float]:
    """Each with its share of those beside it."""
    padded = [0.0, 0.0, *scores, 0.0, 0.0]
    return [
        one + BESIDE * (padded[at + 1] + padded[at + 3]) + BEHIND * (padded[at] + padded[at + 4])
        for at, one in enumerate(scores)
    ]


def together(scores: Sequence[float]) -> float:
    """Of one line its own; of several a half of the best, a quarter of the next and so on."""
    if len(scores) == 1:
        return scores[0]
    return (1 - NEXT) * sum(one * NEXT**place for place, one in enumerate(sorted(scores, reverse=True)))


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()] or [text]


def tokens(text: str) -> list[str]:
    """Its words as the index parts them, in small letters, not stemmed."""
    small = text.lower()
    return small.translate(_BETWEEN).split() if small.isascii() else _WORD.findall(small)


@lru_cache(maxsize=20_000)  # the frequent words of all memories: 10 MB at most
def pieces(token: str) -> tuple[str, ...]:
    bounded = f"_{token}_"
    return tuple(sys.intern(bounded[at : at + 3]) for at in range(len(bounded) - 2))


def stems(words: Iterable[str]) -> dict[str, str]:
    """Of each word, as the index has it: an index of these words alone says so."""
    listed = list(words)
    with closing(sqlite3.connect(":memory:")) as small:
        small.execute(f"CREATE VIRTUAL TABLE one USING fts5 (word, tokenize = '{TOKENIZER}')")
        small.execute("CREATE VIRTUAL TABLE each USING fts5vocab (one, instance)")
        small.executemany("INSERT INTO one VALUES (?)", [(word,) for word in listed])
        return {listed[row - 1]: stem for stem, row in small.execute("SELECT term, doc FROM each")}


def _stems_of_bases(words: Collection[str]) -> dict[str, str]:
    """Of each word that of its base: bought has that of buy."""
    found = stems({base_of(word) for word in words})
    return {word: found[base] for word in words if (base := base_of(word)) in found}


def idf(held: int, total: int) -> float:
    """Never negative: a word that all hold says a little."""
    return math.log(1 + (max(total, held) - held + 0.5) / (held + 0.5))


class _Reader:
    """Reads texts for one question: of each word what the question has too, which is its stem (`=stem`) and its pieces; and
    pairs of words (`+one two`). Function words are in no piece, and two of them are no pair: they are in every text."""

    def __init__(self, question: str, terms: Sequence[Term], lines: Iterable[str]) -> None:
        self._tokens = {line: tokens(line) for line in lines}
        asked = {term.word: tokens(term.word) for term in terms}
        own = frozenset(token for parts in asked.values() for token in parts)
        vocabulary = set[str]().union(*self._tokens.values())
        heads = {base_of(token)[:2] for token in own}  # a stem keeps them
        stem = _stems_of_bases(own | {one for one in vocabulary if base_of(one)[:2] in heads or not one.isascii()})
        self._terms = [(term.weight, {"=" + stem.get(token, token) for token in asked[term.word]}) for term in terms]
        self.weights = {part: weight for weight, parts in self._terms if len(parts) == 1 for part in parts}
        stemmed = {token: "=" + stem[token] for token in vocabulary & stem.keys()}
        held = frozenset(part for _, parts in self._terms for part in parts)
        self._stems = {token: part for token, part in stemmed.items() if part in held}
        wanted = frozenset(piece for token in own for piece in pieces(token))
        shared = {token: wanted.intersection(pieces(token)) for token in vocabulary - STOP_WORDS}
        self._pieces = {token: found for token, found in shared.items() if found}
        self._pairs = {pair for pair in pairwise(tokens(question)) if not STOP_WORDS.issuperset(pair)}
        self._bags: dict[str, Bag] = {}

    def bag(self, line: str) -> Bag:
        """Of one of the lines."""
        if line not in self._bags:
            read = self._tokens[line]
            counts = dict[str, int]()
            for token in filter(self._pieces.__contains__, read):
                for piece in self._pieces[token]:
                    counts[piece] = counts.get(piece, 0) + 1
            for token in filter(self._stems.__contains__, read):
                counts[self._stems[token]] = counts.get(self._stems[token], 0) + 1
            for pair in self._pairs.intersection(pairwise(read)):
                counts["+" + " ".join(pair)] = 1
            self._bags[line] = counts, len(read)
        return self._bags[line]

    def share(self, whole: Bag, before: Sequence[Bag], after: Sequence[Bag]) -> float:
        """Of the weight of the question's words: those that it holds; those beside it at what that counts."""
        total, held = sum(weight for weight, _ in self._terms), 0.0
        missing = self._terms
        beside, behind = [*before[:1], *after[:1]], [*before[1:2], *after[1:2]]
        for part, bags in ((1.0, [whole]), (BESIDE, beside), (BEHIND, behind)):
            if not bags:
                continue
            here = [term for term in missing if any(bag[0].keys() >= term[1] for bag in bags)]
            held += part * sum(weight for weight, _ in here)
            missing = [term for term in missing if term not in here]
        return held / total if total else 0.0


class _Okapi:
    """BM25 among some texts. Pieces of words and pairs of words weigh by their idf among them."""

    def __init__(self, bags: Sequence[Bag], weights: Mapping[str, float]) -> None:
        held = Counter(chain.from_iterable(counts for counts, _ in bags))
        number, kinds = len(bags), {"+": PAIR}
        self._weights = {
            part: weights.get(part, kinds.get(part[0], PIECE) * idf(count, number)) for part, count in held.items()
        }
        self._usual = sum(length for _, length in bags) / max(1, len(bags)) or 1.0

    def score(self, bag: Bag) -> float:
        counts, length = bag
        damped = K1 * (1 - B + B * length / self._usual)
        weights, whole = self._weights, 0.0
        for part, count in counts.items():
            if part in weights:
                whole += weights[part] * count * (K1 + 1) / (count + damped)
        return whole


def _joined(bags: Sequence[Bag]) -> Bag:
    """Of several lines the words alone: pieces and pairs are compared line by line."""
    if len(bags) == 1:
        return bags[0]
    counts = dict[str, int]()
    for more, _ in bags:
        for part, count in more.items():
            if part[0] == "=":
                counts[part] = counts.get(part, 0) + count
    return counts, sum(length for _, length in bags)
