"""Tools come from clients as schemas do: none holds up or ends the process, in whatever form the model writes calls."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import llama_cpp as lib
import pytest
from support.call_forms import CODER, HERMES, PYTHONIC
from support.hostile_schemas import EVERY_HOSTILE, HOLDING, LONGEST_S, pattern, slowest_token, taking, token_times
from support.vocabularies import vocabulary_model

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.calling import MOST_CALLS_BYTES, MOST_TOOLS, CallForm, OfferedTool, ToolRules
from orchestrator.engine.llama.grammars import Constraint, Grammars
from orchestrator.engine.vocab import Vocabulary

ROOT = Path(__file__).resolve().parents[4]
FORMS = {"one JSON object": HERMES, "raw texts": CODER, "as in Python": PYTHONIC}
MOST_S = 3.0  # of a thread, to compile the tools of one question


def rules(form: CallForm, *parameters: str, strict: bool = False) -> ToolRules:
    tools = tuple(OfferedTool(f"t{number}", one, strict) for number, one in enumerate(parameters))
    return ToolRules(form, tools, required=True)


@pytest.fixture(scope="module")
def grammars(qwen_model: Path) -> Grammars:
    """Of 151,936 words, as a real model has."""
    return Grammars(lib.llama_model_get_vocab(vocabulary_model(qwen_model)))


@pytest.fixture(scope="module")
def vocabulary(qwen_model: Path) -> Vocabulary:
    return Vocabulary(vocabulary_model(qwen_model))


def head(form: CallForm, vocabulary: Vocabulary) -> list[int]:
    """Of a call of the first tool, up to the value of its argument."""
    style = form.style
    argument = f"{style.begin}a{style.equals}" if style else '{"a":'
    return vocabulary.template(f"{form.begin}t0{form.before}{argument}")


def in_time(took: float, most: float, grammars: Grammars) -> bool:
    return took <= most or took <= most * slowness(grammars)


def slowness(grammars: Grammars) -> float:
    """How many times slower this machine is now than a quiet one, by a pattern whose tokens take 5 ms there; 1 at least."""
    known = token_times(partial(grammars.constraint, pattern("^a{5000}$")), steps=5)
    return max(1.0, max(known) / 0.005)


def longest(grammars: Grammars, offered: Sequence[ToolRules], begun: list[int]) -> float:
    return slowest_token(token_times(partial(grammars.constraint, "", one), head=begun) for one in offered)


def every_one_in_a_form_and_one_in_each(ones: Mapping[str, Any]) -> list[Any]:
    """What holds up is the schema; of a form it is seen by one whether it gets that far."""
    first, *_ = ones
    wanted = [("one JSON object", name) for name in ones] + [("raw texts", first), ("as in Python", first)]
    return [pytest.param(FORMS[form], ones[name], id=f"{name}-{form}") for form, name in wanted]


@pytest.mark.parametrize(
    ("form", "schema"), every_one_in_a_form_and_one_in_each({one: pattern(one) for one in HOLDING})
)
def test_no_token_of_a_call_of_a_hostile_tool_holds_up_the_others(
    grammars: Grammars, vocabulary: Vocabulary, form: CallForm, schema: str
) -> None:
    anew = [rules(form, taking(schema) + " " * number) for number in range(2)]
    assert in_time(longest(grammars, anew, head(form, vocabulary)), LONGEST_S, grammars)


@pytest.mark.parametrize("schema", EVERY_HOSTILE, ids=range(len(EVERY_HOSTILE)))
def test_a_hostile_tool_is_bound_or_refused_by_its_name_where_it_is_strict(grammars: Grammars, schema: str) -> None:
    assert not isinstance(outcome(grammars, rules(HERMES, taking(schema))), SchemaRefused), "a loose one is any object"
    strict = outcome(grammars, rules(HERMES, taking(schema), strict=True))
    assert not isinstance(strict, SchemaRefused) or "the tool t0" in str(strict)


def outcome(grammars: Grammars, offered: ToolRules) -> Constraint | SchemaRefused:
    try:
        return grammars.constraint("", offered)
    except SchemaRefused as refused:
        return refused


def many(form: CallForm, schemas: Sequence[str], *, strict: bool = False) -> ToolRules:
    """As many tools as are taken, of as many bytes as are taken."""
    chosen, size = list[str](), 0
    for one in islice(cycle(map(taking, schemas)), MOST_TOOLS):
        if size + len(one) <= MOST_CALLS_BYTES:
            chosen.append(one)
            size += len(one)
    return rules(form, *chosen, strict=strict)


SMALL = [one for one in EVERY_HOSTILE if len(one) < 2000]
TOGETHER = {
    "as many ambiguous ones as are taken": list(map(pattern, HOLDING)),
    "as many of every kind": SMALL,
    "256 KiB": sorted(EVERY_HOSTILE, key=len, reverse=True),
}


@pytest.mark.parametrize(("form", "schemas"), every_one_in_a_form_and_one_in_each(TOGETHER))
def test_many_hostile_tools_together_take_a_second_or_two_and_little_a_token(
    grammars: Grammars, vocabulary: Vocabulary, form: CallForm, schemas: list[str]
) -> None:
    """One that cannot be compiled has each compiled by itself."""
    offered = many(form, schemas)
    began = time.thread_time()
    assert not isinstance(outcome(grammars, offered), SchemaRefused)
    assert in_time(time.thread_time() - began, MOST_S, grammars)
    assert in_time(longest(grammars, [offered] * 2, head(form, vocabulary)), LONGEST_S, grammars)
