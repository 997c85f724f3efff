"""A `oneOf` is taken where no answer fits two of its alternatives; where one might, it is refused."""

import json
from typing import Any

import pytest

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.schema import read


def tagged(tag: str, *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"const": tag}, tag: {"type": "string"}}, "required": [*required]}


def owning(name: str, **more: Any) -> dict[str, Any]:
    return {"properties": {name: {}}, "required": [name], **more}


REFERRED = {"$defs": {"a": tagged("a", "kind"), "b": tagged("b", "kind")}}
EITHER = [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]
BRANCH = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}, "required": ["left"]}
APART: dict[str, Any] = {
    "types": {"oneOf": [{"type": "string"}, {"type": ["null", "integer"]}]},
    "constants": {"oneOf": [{"const": 1}, {"enum": [2, "1"]}]},
    "one alone": {"oneOf": [{}]},
    "a property that both require": {"oneOf": [tagged("a", "kind"), tagged("b", "kind")]},
    "definitions": {**REFERRED, "items": {"oneOf": EITHER}},
    "alternatives within one": {**REFERRED, "oneOf": [{"anyOf": EITHER}, {"type": "null"}]},
    "a property that the other has not": {"oneOf": [owning("a"), owning("b")]},
    "a property that the other forbids": {"oneOf": [owning("a"), {"type": "object", "additionalProperties": False}]},
    "a property that is required beside": {"required": ["kind"], "oneOf": [tagged("a"), tagged("b")]},
    "only as none has what is named beside": {"properties": {"a": {}, "b": {}}, "oneOf": [owning("a"), owning("b")]},
    "a tree": {"$defs": {"tree": {"oneOf": [{"type": "integer"}, BRANCH]}}, "$ref": "#/$defs/tree"},
}
UNDECIDED: dict[str, Any] = {
    "an integer fits what is said of objects": {"oneOf": [{"type": "integer"}, owning("a")]},
    "an integer is a number": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "the same constant": {"oneOf": [{"enum": [1, 2]}, {"const": 2.0}]},
    "anything": {"oneOf": [{}, {"type": "null"}]},
    "both are allowed beside": {"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "the other is open": {"oneOf": [owning("a"), {"properties": {"b": {}}}]},
    "others are allowed": {"oneOf": [owning("a", additionalProperties=True), owning("b")]},
    "what is said of one has parts": {"oneOf": [owning("a", anyOf=[owning("b")]), owning("b")]},
    "merged with a property of the other": {"oneOf": [{"allOf": [owning("a"), owning("b")]}, owning("b")]},
    "a tag that nobody requires": {"oneOf": [tagged("a"), tagged("b")]},
    "lengths": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 4}]},
    "numbers": {"oneOf": [{"type": "integer", "maximum": 3}, {"type": "number", "minimum": 3.5}]},
    "patterns": {"oneOf": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]},
}


@pytest.mark.parametrize("schema", APART.values(), ids=APART)
def test_alternatives_that_no_answer_has_in_common_are_taken(schema: Any) -> None:
    assert read(json.dumps(schema))


@pytest.mark.parametrize("schema", UNDECIDED.values(), ids=UNDECIDED)
def test_alternatives_that_an_answer_might_have_in_common_are_refused_and_taken_as_any_of_them_loosely(
    schema: Any,
) -> None:
    with pytest.raises(SchemaRefused, match="might fit two alternatives of a oneOf"):
        read(json.dumps(schema))
    assert read(json.dumps(schema), loosely=True)


def test_a_discriminator_is_a_property_of_each_answer() -> None:
    """As pydantic writes a union of models whose tags have defaults."""
    models = {"$defs": {"a": tagged("a"), "b": tagged("b")}}
    found = read(json.dumps({**models, "oneOf": EITHER, "discriminator": {"propertyName": "kind"}}))
    assert [one["required"] for one in found["oneOf"]] == [["kind"], ["kind"]]


def test_alternatives_that_take_long_to_tell_apart_are_refused() -> None:
    names = [f"a{number}" for number in range(30)]
    levels = {
        f"n{at}": {"properties": {key: {"$ref": f"#/$defs/n{at + 1}"} for key in names}, "required": names}
        for at in range(3)
    }
    with pytest.raises(SchemaRefused, match="too many alternatives"):
        read(json.dumps({"$defs": {**levels, "n3": {}}, "oneOf": [{"$ref": "#/$defs/n0"}] * 2}))
