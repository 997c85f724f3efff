"""Alternatives that begin alike: those people write are taken, those that multiply within a token are refused."""

import json
from typing import Any

import pytest

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.schema import MOST_WAYS, grammar_of


def node(name: str, **properties: Any) -> dict[str, Any]:
    inside = {"type": {"const": name}, **properties}
    return {"type": "object", "properties": inside, "required": list(inside)}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


EXPRESSION = {"$ref": "#/$defs/e"}
MAPPING = {"type": "object", "additionalProperties": EXPRESSION}


def below(number: int) -> dict[str, Any]:
    deeper = {"$ref": f"#/$defs/l{number + 1}"}
    return {"anyOf": [array(deeper), array(array(deeper))]}


def strings(many: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "string", "maxLength": most} for most in range(many)]}


ORDINARY: list[dict[str, Any]] = [
    array({"oneOf": [node(f"kind{number}") for number in range(20)]}),
    {"$defs": {"e": {"anyOf": [node(f"op{n}", left=EXPRESSION, right=EXPRESSION) for n in range(6)]}}, **EXPRESSION},
    {"anyOf": [array({"type": "string"}), array({"type": "integer"}), {"type": "null"}]},
    {"type": "array", "items": {"enum": [f"name{number}" for number in range(2000)]}},
    {"$defs": {"e": array(EXPRESSION)}, **EXPRESSION},
    array({"type": ["string", "number", "boolean", "null"]}),
    {"type": "object", "properties": {f"k{n}": {"type": ["string", "null"]} for n in range(100)}},
    array({"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "format": "uuid"}]}),
    {"$defs": {"e": {"anyOf": [{"type": "string"}, array(EXPRESSION), MAPPING]}}, **EXPRESSION},
]
MULTIPLYING: list[dict[str, Any]] = [
    {
        "$defs": {"e": {"anyOf": [array(EXPRESSION), {"type": "array", "items": EXPRESSION, "minItems": 1}]}},
        **EXPRESSION,
    },
    {"$defs": {**{f"l{n}": below(n) for n in range(20)}, "l20": {"type": "null"}}, "$ref": "#/$defs/l0"},
    array(strings(900)),
    array({"anyOf": [{"type": "integer", "maximum": most} for most in range(9)]}),
    {"anyOf": [{"type": "null"}, array(strings(20))]},
]


@pytest.mark.parametrize("schema", ORDINARY)
def test_unions_that_people_write_are_taken(schema: dict[str, Any]) -> None:
    assert grammar_of(json.dumps(schema))


@pytest.mark.parametrize("schema", MULTIPLYING)
def test_ways_that_multiply_within_a_token_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaRefused, match=f"more than {MOST_WAYS} ways|alternatives within one another"):
        grammar_of(json.dumps(schema))


def test_an_alternative_said_twice_counts_once() -> None:
    string = {"type": "string"}
    assert grammar_of(json.dumps(array({"anyOf": [string] * 900})))
