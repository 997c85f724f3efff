"""Patterns become deterministic: one way for each text, whatever they say. Python's `re` is the oracle of what fits."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.automaton import MOST_STATES, Automaton, StateBudget, determine
from orchestrator.engine.llama.converter import integers, numbers
from orchestrator.engine.llama.regular import both, inverse, of, read_expression, read_pattern, union
from orchestrator.engine.llama.schema import grammar_of

ORDINARY = {
    r"^\d{4}-\d{2}-\d{2}$": "2026-11-21",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$": "2026-11-21T10:00:00.5+01:00",
    r"^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$": "123e4567-e89b-12d3-a456-426614174000",
    r"^[a-zA-Z0-9_.+-]+@[a-zA-Z0-9-]+\.[a-zA-Z0-9-.]+$": "a.b+c@example.org",
    r"^(?:[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*)@(?:[a-z0-9-]+\.)+[a-z]{2,63}$": "x@y.de",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "a_name1",
    r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$": "kebab-case-1",
    r"^[a-z]{1,63}$": "label",
    r"^(red|green|blue)$": "green",
    r"^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-.]+)?$": "1.2.3-rc.1+b",
    r"^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$": "192.168.0.1",
    r"^https?://[^\s/$.?#].[^\s]*$": "https://example.org/a?b",
    r"^\+?[1-9]\d{1,14}$": "+4930123456",
    r"^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$": "#ffcc00",
    r"^(/[^/\0]+)+$": "/etc/hosts",
    r"^\$?\d{1,3}(,\d{3})*(\.\d{2})?$": "$1,234.50",
    r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$": "DE89370400440532013000",
    r"^[\w\s,.!?'-]{1,200}$": "Plain words, it's so.",
    r"^.{1,1000}$": "anything",
    r"^([01]?\d|2[0-3]):[0-5]\d$": "23:59",
    r"^src/.*\.py$": "src/a/b.py",
    r"error|warning": "an error here",
    r"^.*foo.*bar.*$": "a foo, a bar",
}


@pytest.mark.parametrize("pattern", ORDINARY)
def test_patterns_that_people_use_are_taken(pattern: str) -> None:
    assert fits(determine(read_pattern(pattern), StateBudget()), ORDINARY[pattern])
    assert grammar_of(json.dumps({"type": "string", "pattern": pattern}))


SIGNS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "1"])
TIMES = st.sampled_from(["*", "+", "?", "{2}", "{0,3}", "{2,}", "*?", "{30}", "{1000}", "{0,1000}"])
HOSTILE = st.recursive(
    SIGNS,
    lambda inner: (
        st.tuples(inner, TIMES).map(lambda drawn: f"({drawn[0]}){drawn[1]}")
        | st.lists(inner, min_size=1, max_size=4).map(lambda drawn: f"({'|'.join(drawn)})")
        | st.lists(inner, min_size=1, max_size=4).map("".join)
    ),
    max_leaves=12,
)
MODEST = st.recursive(
    SIGNS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,3}", "{2,}"])).map(lambda d: f"({d[0]}){d[1]}")
        | st.lists(inner, min_size=1, max_size=3).map(lambda drawn: f"(?:{'|'.join(drawn)})")
        | st.lists(inner, min_size=1, max_size=3).map("".join)
    ),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(HOSTILE, st.booleans())
def test_a_hostile_pattern_is_refused_or_has_one_way_for_each_text(inner: str, anchored: bool) -> None:
    try:
        automaton = determine(read_pattern(f"^({inner})$" if anchored else inner), StateBudget())
    except SchemaRefused:
        return
    assert len(automaton.steps) <= MOST_STATES
    for steps in automaton.steps:
        sets = [ranges for ranges, _ in steps]
        assert not any(both(left, right) for at, left in enumerate(sets) for right in sets[:at])


@settings(max_examples=300, deadline=None)
@given(MODEST, st.text("ab1\nx", max_size=7))
def test_what_fits_is_what_fits_the_expression(inner: str, text: str) -> None:
    automaton = determine(read_pattern(f"^(?:{inner})$"), StateBudget())
    assert fits(automaton, text) == (re.fullmatch(inner, text) is not None)


@pytest.mark.parametrize("text", ["", "a", "b", "ab", "ba", "xax", "xbx", "bxa"])
@pytest.mark.parametrize("pattern", ["a", "^a", "a$", "^a|b$", "^a$|^b", "a|^b$", ""])
def test_a_pattern_without_anchors_is_found_anywhere(pattern: str, text: str) -> None:
    assert fits(determine(read_pattern(pattern), StateBudget()), text) == (re.search(pattern, text) is not None)


@given(st.integers(-3000, 3000), st.integers(0, 3000), st.integers(-7000, 7000))
def test_whole_numbers_fit_their_bounds_exactly(low: int, more: int, number: int) -> None:
    automaton = determine(read_expression(integers(low, low + more)), StateBudget())
    for one in (number, low, low + more, low - 1, low + more + 1):
        assert fits(automaton, str(one)) == (low <= one <= low + more)


@given(st.integers(-99, 99), st.integers(1, 99), st.booleans(), st.booleans(), st.integers(-8000, 8000))
def test_fractions_fit_their_bounds_exactly(low: int, more: int, above: bool, below: bool, quarters: int) -> None:
    high = low + more
    automaton = determine(read_expression(numbers(low, high, above, below)), StateBudget())
    for one in (quarters / 4, low + 0.25, high - 0.25, low - 0.25, high + 0.25, float(low), float(high)):
        inside = (low < one if above else low <= one) and (one < high if below else one <= high)
        assert fits(automaton, str(one).replace("-0.0", "0.0")) == inside


CHARACTERS = st.text("abcdefg\x00\U0010ffff")


@given(CHARACTERS, CHARACTERS)
def test_sets_of_characters_are_sets(left: str, right: str) -> None:
    assert both(of(left), of(right)) == of("".join(set(left) & set(right)))
    assert union(of(left), of(right)) == of(left + right)
    assert inverse(inverse(of(left))) == of(left)


def fits(automaton: Automaton, text: str) -> bool:
    state = 0
    for code in map(ord, text):
        after = [to for ranges, to in automaton.steps[state] if any(low <= code <= high for low, high in ranges)]
        if not after:
            return False
        (state,) = after
    return state in automaton.accepting
