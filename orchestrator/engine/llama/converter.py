"""llama-cpp-python's converter with what it gets wrong made right, for schemas in plain words (`keywords.py`).

It leaves backslashes in names and constants as they are, which would let a schema write grammar of its own; lets
constants that begin alike be as many ways; finds a definition's rule by the last part of its name, which a property may
have too; knows no bounds of numbers; and writes patterns as they come, quotes and ambiguities included. Everything here
may raise SchemaRefused.
"""

import json
import math
import re
from collections.abc import Callable, Collection
from itertools import count, groupby
from os.path import commonprefix
from typing import Any

from llama_cpp.llama_grammar import (
    PRIMITIVE_RULES,
    RESERVED_NAMES,
    STRING_FORMAT_RULES,
    SchemaConverter,
)

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.automaton import Automaton, StateBudget, determine, plain_rules, string_rules
from orchestrator.engine.llama.keywords import LIMITS
from orchestrator.engine.llama.regular import Tree, read_expression, read_pattern

OURS = {
    # As it comes, a string may hold bare line ends and other control characters, which JSON forbids.
    "char": r'[^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])',
    # As it comes, each digit can be read in two ways: an array of them doubles the work with every number.
    "integral-part": '"0" | [1-9] ' + "([0-9] " * 14 + "([0-9])?" + ")?" * 14,
}
MOST_NAME = 100  # characters of a rule's name: one of a property holds those of all around it, and is told many times
OTHERS = re.compile(r"[^a-zA-Z0-9]+")
Spelled = Callable[[Automaton, str], dict[str, str]]


Part = str | list[str]  # of an expression: what is written already, or texts to choose from


MOST = 10**16 - 1  # of numbers with bounds: 16 digits, as in llama.cpp's own rules
FRACTION = "[0-9]{1,15}"  # of numbers with bounds, which have no exponent


class Converter(SchemaConverter):  # type: ignore[misc]  # the binding has no types
    """`most`: characters of the rules. Names that a schema has a part in never have two dashes in a row, ours do."""

    def __init__(self, most: int) -> None:
        super().__init__(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        self._budget = StateBudget()
        self._most, self._written, self._numbers = most, 0, count()
        self._named: dict[str, str] = {}  # references, to their rules
        # All of them at once: one that came later would find a property's rule under its name.
        for name, rule in {**PRIMITIVE_RULES, **STRING_FORMAT_RULES}.items():
            self._rules[name] = OURS.get(name, rule.content)

    def grammar(self, schema: dict[str, Any]) -> str:
        self.visit(self.resolve_refs(schema, "schema"), "")
        return str(self.format_grammar())

    def visit(self, schema: Any, name: str) -> str:
        kind = schema.get("type")
        if kind == "string" and "pattern" in schema:
            return self._rule_of(read_pattern(schema["pattern"]), name, string_rules)
        if kind in ("integer", "number") and any(keyword in schema for keyword in LIMITS):
            return self._rule_of(read_expression(_numerals(schema)), name, plain_rules)
        if "enum" in schema:
            values = [json.dumps(value, ensure_ascii=False) for value in schema["enum"]]
            return self._add_rule(_rule_name(name), one_of(values))
        if not schema:
            return self._add_rule(_rule_name(name), "value")
        return str(super().visit(schema, name))

    def _rule_of(self, tree: Tree, name: str, spelled: Spelled) -> str:
        base = f"automaton--{next(self._numbers)}"
        self._rules.update(spelled(determine(tree, self._budget), base))
        return self._add_rule(_rule_name(name), base)

    def _add_rule(self, name: str, rule: str) -> str:
        """Under its name where that is free or says the same, else under one with a number."""
        own = found = OTHERS.sub("-", name[:MOST_NAME])
        while self._rules.get(found, rule) != rule:
            found = f"{own}{next(self._numbers)}"
        self._written += len(rule)
        if self._written > self._most:
            raise SchemaRefused(f"the JSON schema's grammar has more than {self._most} characters")
        self._rules[found] = rule
        return found

    def _add_primitive(self, name: str, rule: Any) -> str:
        known = rule is PRIMITIVE_RULES.get(name) or rule is STRING_FORMAT_RULES.get(name)
        return name if known else self._add_rule(name, rule.content)

    def _format_literal(self, json_text: str) -> str:
        return literal(json.dumps(json.loads(json_text), ensure_ascii=False))

    def _resolve_ref(self, ref: str) -> str:
        if ref not in self._named:
            self._named[ref] = name = f"reference--{next(self._numbers)}"
            self._rules[name] = self.visit(self._refs[ref], name)
        return self._named[ref]


def _rule_name(name: str) -> str:
    return f"{name}-" if name in RESERVED_NAMES else name or "root"


def _numerals(schema: dict[str, Any]) -> str:
    low, above = _bound(
        [(schema[key], key != "minimum") for key in ("minimum", "exclusiveMinimum") if key in schema], max
    )
    high, below = _bound(
        [(schema[key], key != "maximum") for key in ("maximum", "exclusiveMaximum") if key in schema], min
    )
    low, high = -MOST if low is None else low, MOST if high is None else high
    if schema["type"] == "number":
        return numbers(int(low), int(high), above, below)
    return integers(
        math.floor(low) + 1 if above else math.ceil(low), math.ceil(high) - 1 if below else math.floor(high)
    )


def _bound(told: list[tuple[float, bool]], tightest: Callable[..., float]) -> tuple[float | None, bool]:
    """The tighter of both kinds, and whether it is itself excluded."""
    if not told:
        return None, False
    bound = tightest(value for value, _ in told)
    return bound, any(excluded for value, excluded in told if value == bound)


# -- texts to choose from


def one_of(texts: Collection[str]) -> str:
    """Alternatives that differ in their first characters, and within each again; at most as deep as texts are long.

    llama.cpp follows each alternative by itself until they part: of two thousand names in one folder, two thousand ways as
    far as the folder's name goes.
    """
    written: list[str] = []
    todo: list[Part] = [sorted(set(texts))]  # the next one last
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            written.append(part)
        else:
            todo += reversed(_alternatives(part))
    return "".join(written)


def literal(text: str) -> str:
    """Any text stays text: nothing of it is read as grammar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _alternatives(texts: list[str]) -> list[Part]:
    """How each beginning is written, and in brackets the texts that go on from it."""
    found: list[Part] = []
    for _, alike in groupby(texts, key=lambda text: text[:1]):
        branch = list(alike)
        start = commonprefix(branch)  # noqa: RUF071 - by characters, as is meant here
        rest = [text[len(start) :] for text in branch]
        found += [" | ", literal(start), *((" (", rest, ")") if len(rest) > 1 else ())]
    return found[1:]


# -- numbers between bounds, as regular expressions


def integers(low: int, high: int) -> str:
    """Those from `low` to `high`, both included."""
    check(low, high)
    found = []
    if low < 0:
        found.append("-" + digits(max(1, -high), -low))
    if high >= 0:
        found.append(digits(max(0, low), high))
    return "|".join(found)


def numbers(low: int, high: int, above: bool, below: bool) -> str:
    """Those between; `above`: `low` itself is none of them, `below`: `high` itself is none."""
    check(low, high)
    found = []
    if low < 0:
        nearest = max(0, -high)
        found += [f"-{one}" for one in _positive(nearest, -low, below if high < 0 else True, above)]
    if high >= 0:
        found += _positive(max(0, low), high, above and low >= 0, below)
    if not found:
        raise SchemaRefused("no number is within the JSON schema's bounds")
    return "|".join(found)


def check(low: int, high: int) -> None:
    if max(abs(low), abs(high)) > MOST:
        raise SchemaRefused("minimum and maximum are enforced for numbers of at most 16 digits")
    if low > high:
        raise SchemaRefused("no number is within the JSON schema's bounds")


def _positive(low: int, high: int, above: bool, below: bool) -> list[str]:
    first, found = low + above, []
    if first < high:
        found.append(rf"{digits(first, high - 1)}(?:\.{FRACTION})?")
    if above and low < high:
        found.append(rf"{low}\.0{{0,7}}[1-9][0-9]{{0,7}}")
    if not below and first <= high:
        found.append(rf"{high}(?:\.0{{1,15}})?")
    return found


def digits(low: int, high: int) -> str:
    """Numerals from `low` to `high`, not negative, without leading zeros."""
    lengths = range(len(str(low)), len(str(high)) + 1)
    spans = ((max(low, 10 ** (n - 1) if n > 1 else 0), min(high, 10**n - 1)) for n in lengths)
    return "(?:" + "|".join(_alike(str(first), str(last)) for first, last in spans) + ")"


def _alike(low: str, high: str) -> str:
    """Numerals between two that are as long."""
    if not low:
        return ""
    if low[0] == high[0]:
        return low[0] + _alike(low[1:], high[1:])
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return f"[{low[0]}-{high[0]}][0-9]{{{rest}}}"
    between = [f"[{int(low[0]) + 1}-{int(high[0]) - 1}][0-9]{{{rest}}}"] if int(high[0]) - int(low[0]) > 1 else []
    ends = [low[0] + _alike(low[1:], "9" * rest), high[0] + _alike("0" * rest, high[1:])]
    return "(?:" + "|".join([*ends, *between]) + ")"
