"""The schemas of the daemon's own tools, and of those that packages bring, hold while a model writes a call: what does not
fit cannot be said, and what fits can."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp as lib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.call_forms import form_of
from support.examples import few
from support.vocabularies import Says, saying, vocabulary_model

from formatters.calls import PLAIN_CALLS, CallFormat
from formatters.context import ToolView
from formatters.plugins import ModelTool
from formatters.registry import Registered
from orchestrator.answering.agent import Answerer
from orchestrator.answering.client_tools import own_rules
from orchestrator.answering.codex_tools import CodexTools, SearchArchive
from orchestrator.answering.memory_tools import MemoryTools
from orchestrator.answering.package_tools import PackageTools
from orchestrator.answering.parsing import parsed_calls
from orchestrator.engine.calling import ToolRules
from orchestrator.engine.llama.grammars import Constraint, Grammars
from orchestrator.engine.vocab import Vocabulary
from orchestrator.prompt.situation import OUR_TOOLS

SOON = 40  # tokens
TEMPLATES = ("Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "LFM2.5-8B-A1B", "unsloth-mistral-Devstral-Small-2507")
FORMS = ("plain", *TEMPLATES)
PACKAGED = {
    "type": "object",
    "properties": {
        "town": {"type": "string", "minLength": 1, "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "units": {"$ref": "#/$defs/units"},
        "places": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "high": {"type": ["boolean", "null"]}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
        "share": {"anyOf": [{"enum": ["all", "some"]}, {"type": "number", "minimum": 0, "maximum": 1}]},
    },
    "required": ["town", "units"],
    "additionalProperties": False,
    "$defs": {"units": {"enum": ["metric", "imperial", 3]}},
}
Schema = Mapping[str, Any]
UNUSED: Any = None  # what the tools look into: no call is carried out here


def own_tools() -> tuple[ToolView, ...]:
    weather = Registered(ModelTool("weather", "The weather.", lambda turn, arguments: "", PACKAGED), "acme")
    made = Answerer(
        [
            SearchArchive(UNUSED, UNUSED).search_archive,
            *CodexTools(UNUSED, UNUSED, UNUSED, UNUSED).functions,
            *MemoryTools(UNUSED, UNUSED, UNUSED).functions,
            *PackageTools([weather], lambda failure: None).functions,
        ]
    )
    return made.tools


TOOLS = own_tools()
SCHEMAS = {tool.name: tool.parameters_json_schema for tool in TOOLS}
PLAIN = st.text(st.characters(codec="ascii", categories=["L", "N", "Zs"]), max_size=12)
OTHERS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.sampled_from([0.5, 2.5, -1.5])
    | PLAIN
    | st.lists(st.integers(0, 9) | PLAIN, max_size=3)
    | st.dictionaries(st.sampled_from(["a", "name"]), st.booleans() | PLAIN, max_size=2)
)


@pytest.fixture(scope="module")
def forms(llama_sources: Path) -> Mapping[str, CallFormat]:
    found = {name: form_of(llama_sources / "models" / "templates" / f"{name}.jinja") for name in TEMPLATES}
    return {"plain": PLAIN_CALLS, **found}


@pytest.fixture(scope="module")
def grammars(quoter_model: Path) -> Grammars:
    return Grammars(lib.llama_model_get_vocab(vocabulary_model(quoter_model)))


@pytest.fixture(scope="module")
def says(quoter_model: Path) -> Says:
    return saying(vocabulary_model(quoter_model))


def resolved(inside: Schema, root: Schema) -> Schema:
    return root["$defs"][inside["$ref"].rpartition("/")[2]] if "$ref" in inside else inside  # type: ignore[no-any-return]


def fitting(inside: Schema, root: Schema) -> st.SearchStrategy[Any]:
    """Values that fit, names in the schema's order."""
    inside = resolved(inside, root)
    if "enum" in inside or "const" in inside:
        return st.sampled_from(inside.get("enum") or [inside["const"]])
    if "anyOf" in inside:
        return st.one_of([fitting(one, root) for one in inside["anyOf"]])
    kinds = inside["type"] if isinstance(inside["type"], list) else [inside["type"]]
    return st.one_of([of_kind(kind, inside, root) for kind in kinds])


def of_kind(kind: str, inside: Schema, root: Schema) -> st.SearchStrategy[Any]:
    low, high = inside.get("minimum", -(10**6)), inside.get("maximum", 10**6)
    if kind == "object":
        named = {name: fitting(one, root) for name, one in inside["properties"].items()}
        needed = {name: named[name] for name in inside.get("required", ())}
        rest = {name: one for name, one in named.items() if name not in needed}
        drawn = st.fixed_dictionaries(needed, optional=rest)
        return drawn.map(lambda made: {name: made[name] for name in named if name in made})
    if kind == "array":
        least, most = inside.get("minItems", 0), inside.get("maxItems", 3)
        return st.lists(fitting(inside["items"], root), min_size=least, max_size=most)
    if kind == "string":
        least, most = inside.get("minLength", 0), inside.get("maxLength", 12)
        return PLAIN.filter(lambda text: least <= len(text) <= most)
    return {
        "boolean": st.booleans(),
        "null": st.none(),
        "integer": st.integers(low, high),
        "number": st.sampled_from([low, high, (low + high) / 4]),
    }[kind]


FITTING = {name: fitting(schema, schema) for name, schema in SCHEMAS.items()}


@st.composite
def calls(draw: st.DrawFn, *, fit: bool) -> tuple[str, dict[str, Any]]:
    """A tool's name with arguments that fit its schema, or that fit but in one place."""
    name = draw(st.sampled_from(sorted(SCHEMAS)))
    schema = SCHEMAS[name]
    made = draw(FITTING[name])
    if not fit:
        made = draw(broken(made, schema).filter(lambda one: not fits(one, name)))
    return name, made


def broken(made: dict[str, Any], schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    """With another value in one place, an argument that there is none, or one left out."""
    names = list(schema["properties"])
    order = {name: at for at, name in enumerate(names)}
    inside = [(name, at) for name in made if isinstance(made[name], list) for at in range(len(made[name]))]
    ways = [
        st.tuples(st.sampled_from(names), OTHERS).map(lambda one: {**made, one[0]: one[1]}),
        OTHERS.map(lambda value: {**made, "none_of_these": value}),
        *([st.sampled_from(sorted(made)).map(lambda gone: {k: made[k] for k in made if k != gone})] if made else []),
        *(OTHERS.map(lambda value, name=name, at=at: replaced(made, name, at, value)) for name, at in inside),  # type: ignore[misc]
    ]
    return st.one_of(ways).map(lambda one: {k: one[k] for k in sorted(one, key=lambda k: order.get(k, len(order)))})


def replaced(made: dict[str, Any], name: str, at: int, value: Any) -> dict[str, Any]:
    return {**made, name: [*made[name][:at], value, *made[name][at + 1 :]]}


def fits(arguments: Any, name: str) -> bool:
    return Draft202012Validator(SCHEMAS[name]).is_valid(arguments)


def rules_of(form: CallFormat, *names: str) -> ToolRules:
    """Of an answer that has to call one of these tools, or of all; as the engine is given them."""
    made = own_rules(form, [tool for tool in TOOLS if not names or tool.name in names])
    assert made is not None
    return replace(made, required=True, parallel=False)


def test_each_of_our_own_tools_is_tried() -> None:
    assert SCHEMAS.keys() == OUR_TOOLS | {"weather"}


@settings(few(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FORMS), calls(fit=True))
def test_arguments_that_fit_the_schema_can_be_said_and_are_read_as_they_are(
    says: Says, forms: Mapping[str, CallFormat], form: str, call: tuple[str, dict[str, Any]]
) -> None:
    name, made = call
    text = forms[form].written([(name, json.dumps(made))])
    assert fits(made, name)
    assert says(text, rules_of(forms[form])), text
    assert [(one.name, one.arguments) for one in parsed_calls(forms[form], text, SCHEMAS)] == [call]


@settings(few(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls(fit=False))
def test_arguments_that_break_the_schema_cannot_be_said(says: Says, call: tuple[str, dict[str, Any]]) -> None:
    name, made = call
    text = PLAIN_CALLS.written([(name, json.dumps(made))])
    assert not says(text, rules_of(PLAIN_CALLS)), text


@settings(few(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TEMPLATES), calls(fit=False))
def test_what_a_form_of_raw_texts_lets_be_said_is_read_as_arguments_that_fit(
    says: Says, forms: Mapping[str, CallFormat], form: str, call: tuple[str, dict[str, Any]]
) -> None:
    """Between such marks 3 is a text where a text is wanted."""
    name, made = call
    text = forms[form].written([(name, json.dumps(made))])
    if says(text, rules_of(forms[form])):
        (read,) = parsed_calls(forms[form], text, SCHEMAS)
        assert fits(read.arguments, name), text


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_model_of_noise_makes_calls_that_fit(quoter_model: Path, grammars: Grammars, name: str) -> None:
    model = vocabulary_model(quoter_model)
    vocabulary, end = Vocabulary(model), lib.llama_vocab_eos(lib.llama_model_get_vocab(model))
    for seed in range(12):
        text = noise(grammars.constraint("", rules_of(PLAIN_CALLS, name)), vocabulary, end, random.Random(seed))
        (read,) = parsed_calls(PLAIN_CALLS, text, SCHEMAS)
        assert fits(read.arguments, name), text


def noise(constraint: Constraint, vocabulary: Vocabulary, end: int, draw: random.Random) -> str:
    """What a model says that means nothing, and soon likes to close what is open."""
    closing, ids = [vocabulary.content(sign)[0] for sign in '"}]'], list[int]()
    while not (allowed := constraint.mask())[end]:
        closes = [token for token in closing if allowed[token]] if len(ids) > SOON else []
        ids.append(draw.choice(closes or np.flatnonzero(allowed).tolist()))
        constraint.accept(ids[-1])
    return vocabulary.text(ids).decode()
