"""No keyword of a JSON schema is ignored: it is enforced, or refused by its name."""

import json
from typing import Any

import pytest

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.keywords import plain
from orchestrator.engine.llama.schema import grammar_of

REFUSED: list[tuple[Any, str]] = [
    ({"type": "integer", "multipleOf": 7}, "multipleOf"),
    ({"type": "number", "minimum": 0.5}, "minimum 0.5"),
    ({"type": "integer", "minimum": True}, "minimum True"),
    ({"type": "integer", "minimum": 10**17}, "16 digits"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "no number"),
    ({"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 5}, "no number"),
    ({"type": "number", "minimum": 4, "exclusiveMaximum": 4}, "no number"),
    ({"type": "string", "format": "email"}, "format 'email'"),
    ({"type": "string", "pattern": "^a*$", "maxLength": 3}, "maxLength"),
    ({"type": "string", "format": "date", "minLength": 3}, "minLength"),
    ({"type": "string", "minLength": 9, "maxLength": 3}, "minLength 9 and maxLength 3"),
    ({"type": "string", "minimum": 5}, "minimum"),
    ({"type": "string", "contentEncoding": "base64"}, "contentEncoding"),
    ({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "contains": {"type": "null"}}, "contains"),
    ({"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "null"}}, "beside prefixItems"),
    ({"type": "array", "prefixItems": [{"type": "null"}], "minItems": 2}, "minItems"),
    ({"type": "object", "patternProperties": {}}, "patternProperties"),
    ({"type": "object", "minProperties": 2}, "minProperties"),
    ({"type": "object", "required": ["a"]}, "'a'"),
    ({"type": "object", "properties": {}, "dependentRequired": {}}, "dependentRequired"),
    ({"allOf": [{"anyOf": [{"type": "string"}]}, {"type": "string"}]}, "allOf"),
    ({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]}, "'a' differently"),
    ({"anyOf": [{"type": "null"}], "properties": {"a": {}}}, "properties"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}, "maxLength": 3}, "maxLength"),
    ({"const": 5, "type": "string"}, "fits the type"),
    ({"enum": ["a", "b"], "pattern": "^a$"}, "pattern"),
    ({"not": {"type": "null"}}, "not"),
    ({"if": {"type": "null"}, "type": "null"}, "if"),
    ({"type": ["string", "null"], "minimum": 4}, "minimum"),
    ({"type": "nul"}, "type 'nul'"),
    ({"typo": "string"}, "typo"),
    (False, "False"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "named"), REFUSED)
def test_what_is_not_enforced_is_refused_by_its_name(schema: Any, named: str) -> None:
    with pytest.raises(SchemaRefused, match=named):
        grammar_of(json.dumps(schema))


@pytest.mark.parametrize(("schema", "named"), REFUSED)
def test_it_is_refused_wherever_it_stands(schema: Any, named: str) -> None:
    within = {"type": "object", "properties": {"x": {"type": "array", "items": {"anyOf": [{"type": "null"}, schema]}}}}
    with pytest.raises(SchemaRefused, match=named):
        grammar_of(json.dumps(within))


def test_annotations_pass_and_are_left_out() -> None:
    notes = {
        "title": "T",
        "description": "d",
        "default": 1,
        "examples": [1],
        "$schema": "s",
        "$id": "i",
        "$comment": "c",
    }
    assert plain({**notes, "deprecated": True, "readOnly": True, "writeOnly": True, "type": "null"}) == {"type": "null"}


def test_properties_named_like_annotations_stay() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "null"}, "format": {"const": "email"}}}
    assert set(plain(schema)["properties"]) == {"title", "format"}


def test_a_type_among_several_keeps_what_is_said_about_it() -> None:
    both = plain({"type": ["string", "integer"], "maxLength": 3, "minimum": 2})
    assert both == {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 2}]}


def test_parts_of_an_object_are_merged() -> None:
    base = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    schema = {"$defs": {"base": base}, "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "null"}}}]}
    merged = plain(schema)
    assert (list(merged["properties"]), merged["required"]) == (["a", "b"], ["a"])


def test_what_is_named_nowhere_cannot_take_a_named_property_s_place() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "string"}}
    assert "additionalProperties" not in plain(schema)
