"""The part of PromQL that the dashboard speaks, evaluated on two scrapes: stricter than Prometheus, which answers a name
that nobody exposes with nothing. Here a metric, a label or a value of a label that is not there is an error.

    expression  term (("+" | "-") term)*          term  factor (("*" | "/") factor)*
    factor      number │ ( expression ) │ FUNCTION ( … ) │ AGGREGATION [by (labels)] ( expression ) │ selector
    selector    name [{label="value", …}] [[range]]

A range spans from the earlier scrape to the later one; a selector without one sees the later.
"""

import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

TOKEN = re.compile(r'\s*(?:([a-zA-Z_:][\w:]*)|(\d+(?:\.\d+)?)|"([^"]*)"|\[([^\]]*)\]|(!=|[-+*/(){},=]))')
AGGREGATIONS: Mapping[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "max": max}
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]


class QueryError(Exception):
    """What makes a query wrong, or empty on a dashboard."""


@dataclass(frozen=True)
class Scrapes:
    """Samples by name, then by labels, of two moments that lie so many seconds apart."""

    before: Mapping[str, Vector]
    after: Mapping[str, Vector]
    seconds: float


def evaluated(query: str, scrapes: Scrapes) -> Vector:
    """Its series by their labels; a number has none. Raises QueryError."""
    parser = _Parser(query, scrapes)
    found = parser.expression()
    if parser.at < len(parser.tokens):
        raise QueryError(f"{parser.peek!r} is left in {query}")
    return found


class _Parser:
    def __init__(self, query: str, scrapes: Scrapes) -> None:
        self.scrapes, self.at, self.tokens = scrapes, 0, list[tuple[str, str]]()
        place, text = 0, query.rstrip()
        while place < len(text):
            if (found := TOKEN.match(text, place)) is None:
                raise QueryError(f"{text[place:]!r} is not understood")
            kind = ("name", "number", "string", "range", "mark")[found.lastindex - 1]
            self.tokens.append((kind, found.group(found.lastindex)))
            place = found.end()

    @property
    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek
        if wanted and token != wanted:
            raise QueryError(f"{token!r} stands where {wanted!r} belongs")
        self.at += 1
        return token

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end"

    def expression(self) -> Vector:
        left = self.term()
        while self.peek in ("+", "-") and self.kind() == "mark":
            left = joined(self.take(), left, self.term())
        return left

    def term(self) -> Vector:
        left = self.factor()
        while self.peek in ("*", "/") and self.kind() == "mark":
            left = joined(self.take(), left, self.factor())
        return left

    def factor(self) -> Vector:
        if self.kind() == "number":
            return {frozenset(): float(self.take())}
        if self.peek == "(":
            return self.in_brackets(self.expression)
        name = self.take()
        if name in AGGREGATIONS:
            return self.aggregation(AGGREGATIONS[name])
        if name in ("rate", "increase"):
            return self.in_brackets(
                lambda: self.selector(self.take(), per=self.scrapes.seconds if name == "rate" else 1.0)
            )
        if name == "histogram_quantile":
            return self.in_brackets(self.quantile)
        return self.selector(name)

    def in_brackets(self, inside: Callable[[], Vector]) -> Vector:
        self.take("(")
        found = inside()
        self.take(")")
        return found

    def aggregation(self, together: Callable[[list[float]], float]) -> Vector:
        names: list[str] = []
        if self.peek == "by":
            self.take()
            self.take("(")
            while self.peek != ")":
                names.append(self.take())
                if self.peek == ",":
                    self.take()
            self.take(")")
        groups = defaultdict[Labels, list[float]](list)
        for labels, value in self.in_brackets(self.expression).items():
            if missing := set(names) - dict(labels).keys():
                raise QueryError(f"no series has the label {', '.join(missing)}")
            groups[frozenset(pair for pair in labels if pair[0] in names)].append(value)
        return {labels: together(values) for labels, values in groups.items()}

    def quantile(self) -> Vector:
        share = float(self.take())
        self.take(",")
        groups = defaultdict[Labels, dict[float, float]](dict)
        for labels, value in self.expression().items():
            bounds = dict(labels)
            if "le" not in bounds:
                raise QueryError("histogram_quantile of what has no label le")
            groups[labels - {("le", bounds["le"])}][float(bounds["le"])] = value
        return {labels: quantile_of(share, buckets) for labels, buckets in groups.items()}

    def selector(self, name: str, per: float | None = None) -> Vector:
        if name not in self.scrapes.after:
            raise QueryError(f"no metric named {name} is exposed")
        wanted = self.matchers() if self.peek == "{" else {}
        found = {
            labels: value
            for labels, value in self.scrapes.after[name].items()
            if wanted.items() <= dict(labels).items()
        }
        if not found:
            raise QueryError(f"no series of {name} has {wanted}")
        if (per is not None) != (self.kind() == "range"):
            raise QueryError(f"{name}: a range belongs into rate() and increase(), and nowhere else")
        if per is None:
            return found
        self.take()
        before = self.scrapes.before.get(name, {})
        return {labels: (value - before.get(labels, 0.0)) / per for labels, value in found.items()}

    def matchers(self) -> dict[str, str]:
        wanted = {}
        self.take("{")
        while self.peek != "}":
            label = self.take()
            self.take("=")
            wanted[label] = self.take()
            if self.peek == ",":
                self.take()
        self.take("}")
        return wanted


def joined(mark: str, left: Vector, right: Vector) -> Vector:
    """A number with each series, or the series of both sides that have the same labels."""
    number = frozenset[tuple[str, str]]()
    if set(left) == {number}:
        left = dict.fromkeys(right, left[number])
    elif set(right) == {number}:
        right = dict.fromkeys(left, right[number])
    return {labels: calculated(mark, left[labels], right[labels]) for labels in left if labels in right}


def calculated(mark: str, left: float, right: float) -> float:
    if mark == "/":
        return left / right if right else math.nan
    return OPERATORS[mark](left, right)


def quantile_of(share: float, buckets: Mapping[float, float]) -> float:
    """By straight lines within a bucket, as Prometheus has it; NaN of nothing."""
    bounds = sorted(buckets)
    if bounds[-1] != math.inf:
        raise QueryError("a histogram without the bucket +Inf")
    rank, low, below = share * buckets[math.inf], 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank and buckets[bound] > 0:
            inside = buckets[bound] - below
            return low if bound == math.inf or not inside else low + (bound - low) * (rank - below) / inside
        low, below = bound, buckets[bound]
    return math.nan
