"""JSON schemas come from clients: each is enforced, or refused with the reason, and none holds up or ends the process."""

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import llama_cpp as lib
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.examples import few
from support.hostile_schemas import (
    EVERY_HOSTILE,
    GROWING,
    HOLDING,
    LARGE,
    LONGEST_S,
    MOST_MB,
    pattern,
    slowest_token,
    token_times,
)
from support.vocabularies import vocabulary_model

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.grammars import KEPT, Constraint, Grammars
from orchestrator.engine.llama.schema import (
    ANNOTATIONS,
    ENFORCED,
    MOST_SAID,
    SAYS_NOTHING,
    read,
    shared,
)
from orchestrator.engine.vocab import Vocabulary

ROOT = Path(__file__).resolve().parents[4]
WORDS = 4096


@pytest.fixture(scope="module")
def model(quoter_model: Path) -> Any:
    return vocabulary_model(quoter_model)


@pytest.fixture(scope="module")
def schemas(model: Any) -> Grammars:
    return Grammars(lib.llama_model_get_vocab(model))


@pytest.fixture(scope="module")
def vocabulary(model: Any) -> Vocabulary:
    return Vocabulary(model)


@pytest.fixture(scope="module")
def takes(schemas: Grammars, vocabulary: Vocabulary) -> Callable[[Any, str], bool]:
    """Whether an answer that ends here may be this text."""

    def takes(schema: Any, text: str) -> bool:
        constraint = schemas.constraint(json.dumps(schema))
        for token in vocabulary.content(text):
            if not constraint.allows(token):
                return False
            constraint.accept(token)
        return bool(constraint.mask()[WORDS - 1])

    return takes


def nested(depth: int) -> str:
    return '{"type": "array", "items":' * (depth - 1) + '{"type": "null"}' + "}" * (depth - 1)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "because"),
    [
        ("{", "not JSON"),
        ('{"enum": ["' + "x" * 65_536 + '"]}', "65550 bytes"),
        (nested(33), "deeper than 32"),
        ('{"$ref": "https://example.org/schema"}', "only references inside"),
        ('{"$ref": 3}', "only references inside"),
        ('{"enum": [{"x": 1}], "$defs": {"a": {"$ref": "#/enum/0"}}}', "only references inside"),
        ('{"type": "string", "maxLength": 5001}', "maxLength 5001"),
        ('{"type": "array", "items": {}, "minItems": 100000}', "minItems 100000"),
        (pattern("^a{100000000}$"), "more than 5000 times"),
        (pattern("^a{2,5001}$"), "more than 5000 times"),
        (pattern("^((a{50}|b{2,60}){10,}[a-z]){20}$"), "more than 5000 times"),
        (pattern("^a\\"), "not enforced"),
        (pattern("(" * 256), "a pattern cannot be read: unclosed group"),
        (pattern("(?=a)b"), "look-ahead"),
        (pattern("^(a)\\1$"), "backreferences"),
        (pattern("a[^\\s\\S]"), "no text fits its patterns"),
        (pattern("^[^]$"), "not enforced"),
        (pattern("^[a\\]$"), "not enforced"),
        (pattern("^[+--]$"), "not enforced"),
        (json.dumps({"properties": {f"k{number}": {} for number in range(401)}}), "401 properties"),
        (json.dumps({"properties": {"a": {}}, "required": [f"k{n}" for n in range(4500)]}), "4501 properties"),
        (json.dumps({"patternProperties": {f"^k{n}$": {} for n in range(65)}}), "more than 64 patternProperties"),
        ("[]", "it should be an object"),
        ("3", "it should be an object"),
        ("false", "it should be an object"),
        ('{"type": "banana"}', "banana"),
        ('{"$ref": "#/$defs/nowhere"}', "no grammar"),
        ('{"const": "\\ud800"}', "lone surrogate"),
        ('{"type": "string", "maxLength": "9"}', "a value of another kind"),
        ('{"const": "\ud800"}', "lone surrogate"),
        ('{"title": "' + "]}" * 20 + '", "items": ' + nested(32) + "}", "deeper than 32"),
        ('{"title": "' + "}" * 12_000 + '", "items": ' + nested(1500) + "}", "deeper than 32"),
        (json.dumps({"type": "integer", "maximum": 10**400}), "maximum 1000"),
        (json.dumps({"type": "number", "exclusiveMinimum": -(10**17)}), "exclusiveMinimum"),
        ('{"type": "integer", "minimum": 1e999}', "minimum inf"),
        ('{"type": "integer", "minimum": NaN}', "a number in it is beyond 1e308, or none"),
        ('{"type": "integer", "minimum": ' + "9" * 5000 + "}", "4300 digits"),
        ('{"type": "integer", "multipleOf": 999983}', "multipleOf"),
        ('{"allOf": [{"type": "integer", "multipleOf": 97}, {"multipleOf": 89}]}', "multipleOf"),
        ('{"type": "integer", "multipleOf": -7}', "multipleOf must be above 0"),
        ('{"enum": [1e999]}', "a number in it is beyond 1e308, or none"),
        (json.dumps({"enum": [10**400]}), "a number in it is beyond 1e308"),
        ('{"type": "number", "multipleOf": NaN}', "a number in it is beyond 1e308"),
        ('{"const": {"a": NaN}}', "a number in it is beyond 1e308, or none"),
        ('{"anyOf": [{"$ref": "#"}]}', "allows nothing"),
        ('{"type": "integer", "minimum": 5, "maximum": 4}', "nothing fits it: minimum"),
        (json.dumps({"allOf": [{"type": "string", "pattern": f".*{n}.*$"} for n in range(9)]}), "it is too complex"),
        ('{"type": "string", "minLength": 9, "maxLength": 3}', "no grammar"),
        ('{"type": "integer", "minimum": true}', "minimum"),
        ('{"const": 5, "type": "string"}', "no grammar"),
        ('{"type": "string", "format": "regex"}', "format 'regex'"),
        ('{"type": "string", "format": "unknown"}', "format 'unknown'"),
        ('{"type": "object", "minProperties": 2}', "minProperties 2"),
        (json.dumps({"enum": [[{"a": "x" * 8193}]]}), "has 8193 characters"),
        (json.dumps({"properties": {"x" * 8193: {}}}), "has 8193 characters"),
    ],
)  # fmt: skip
def test_a_schema_outside_the_bounds_is_refused_with_the_reason(schemas: Grammars, schema: str, because: str) -> None:
    with pytest.raises(SchemaRefused, match=because):
        schemas.constraint(schema)


@pytest.mark.parametrize(
    "keyword", ["typo", "uniqueItems", "contains", "not", "if", "dependentRequired", "contentEncoding", "x-guidance"]
)
@pytest.mark.parametrize("place", ["{}", '{{"items": {}}}', '{{"properties": {{"a": {}}}}}', '{{"anyOf": [{}]}}'])
def test_what_is_not_enforced_is_refused_by_its_name(schemas: Grammars, keyword: str, place: str) -> None:
    with pytest.raises(SchemaRefused, match=f"the keyword {keyword} is not enforced"):
        schemas.constraint(place.format(json.dumps({"type": "array", keyword: True})))


@pytest.mark.parametrize("word", ["anyof", "additonalProperties", "min", "optional", "Type", "enums", "uniqueItem"])
def test_a_word_that_may_be_a_misspelt_keyword_is_refused(schemas: Grammars, word: str) -> None:
    with pytest.raises(SchemaRefused, match=f"the keyword {word} is not enforced"):
        schemas.constraint(json.dumps({"type": "object", word: []}))


def test_words_of_editors_and_generators_bind_nothing_unless_they_hold_a_schema(schemas: Grammars) -> None:
    words = {
        "id": "https://example.org/a",
        "x-order": 1,
        "_comment": "no",
        "javaType": "A",
        "self": {"format": "jsonschema"},
    }
    assert read(json.dumps({"type": "null", **words})) == {"type": "null"}
    with pytest.raises(SchemaRefused, match="the keyword id is not enforced"):
        schemas.constraint(json.dumps({"type": "object", "id": {"type": "string"}}))


def test_a_refusal_that_repeats_what_the_schema_says_is_short_and_can_be_shown(schemas: Grammars) -> None:
    with pytest.raises(SchemaRefused) as refused:
        schemas.constraint(json.dumps({"type": "null", "\ud800" + "x" * 9000: 1}))
    assert len(str(refused.value).encode()) <= MOST_SAID + 3
    assert "\\ud800xxx" in str(refused.value)


def test_the_outcomes_of_the_schemas_that_were_used_last_are_known(model: Any) -> None:
    schemas = Grammars(lib.llama_model_get_vocab(model))
    for size in (*range(KEPT), 0, KEPT):
        schemas.constraint(json.dumps({"type": "integer", "maximum": size}))
    known = [schemas.knows(json.dumps({"type": "integer", "maximum": size})) for size in range(KEPT + 1)]
    assert known == [True, False, *(True for _ in range(2, KEPT + 1))]


def test_what_was_refused_or_compiled_once_is_not_read_again(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = Grammars(lib.llama_model_get_vocab(model))
    schemas.constraint('{"type": "null"}')
    with pytest.raises(SchemaRefused):
        schemas.constraint("{")
    monkeypatch.setattr("orchestrator.engine.llama.grammars.read", None)
    schemas.constraint('{"type": "null"}')
    with pytest.raises(SchemaRefused, match="not JSON"):
        schemas.constraint("{")


# ---- what is enforced ------------------------------------------------------------------------------------------------

DEFS = {"$defs": {"integer": {"const": 4}, "x": {"maxLength": 0, "type": "string"}, "a/b": {"type": "null"}}}
NODE = {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}
BASE = {"$defs": {"base": {"properties": {"a": {"type": "null"}}, "required": ["a"]}}}
SHAPES = {
    "properties": {"shape": {"enum": ["circle", "square"]}, "note": {"type": "null"}}, "required": ["shape"],
    "oneOf": [{"properties": {"shape": {"const": one}, size: {"const": 1}}, "required": [size]}
              for one, size in (("circle", "radius"), ("square", "side"))],
}  # fmt: skip
NESTED = {
    "$defs": {"id": {"properties": {"id": {"const": 0}}, "required": ["id"]}},
    "allOf": [{"$ref": "#/$defs/id"}, {"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
                                                 {"properties": {"b": {"const": 2}}, "required": ["b"]}]}],
}  # fmt: skip
EXACT: list[tuple[Any, list[str], list[str]]] = [
    ({"type": "integer", "minimum": 5, "maximum": 9}, ["5", "9"], ["4", "10", "5.5", "true", '"5"']),
    ({"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 5}, ["-2", "4"], ["-3", "5"]),
    ({"type": "integer", "minimum": 1.5, "maximum": 1000}, ["2", "1000"], ["1", "1001"]),
    ({"type": "integer"}, ["-12", str(2**53)], [str(2**53 + 1), "9" * 17]),
    ({"type": "integer", "maximum": 2**53}, [str(2**53)], [str(2**53 + 1)]),
    ({"type": "integer", "multipleOf": 7}, ["0", "-14"], ["6", "1"]),
    ({"type": "number", "minimum": 0, "maximum": 1}, ["0", "0.25", "1"], ["1.01", "-0.1", "2"]),
    ({"type": "number", "exclusiveMinimum": -2, "maximum": 0.5}, ["-1.99", "0.5"], ["-2", "0.51"]),
    ({"minimum": 3}, ["3"], ["2", '"x"']),
    ({"type": "string", "pattern": "^x?b[0-9]$|^no$"}, ['"xb3"', '"no"'], ['"x"', '"xno"']),
    ({"type": "string", "pattern": r'^"\\[\n\t"]+$'}, [json.dumps('"\\\n"')], ['"a"']),
    ({"type": "string", "pattern": "^a+$", "minLength": 2, "maxLength": 3}, ['"aa"', '"aaa"'], ['"a"', '"aaaa"']),
    ({"type": "string", "pattern": "^.$"}, ['"x"', '"é"'], ['"\\n"', '"\\r"', '"\u2028"']),
    ({"type": "string", "pattern": "^[[&&b]$"}, ['"["', '"&"', '"b"'], ['"a"']),
    ({"type": "string", "pattern": r"^\d\w\s$"}, ['"1a "'], ['"٣a "', '"1é "']),
    ({"type": "string", "minLength": 2, "maxLength": 2}, ['"ab"', '"é🦉"', '"\\n\\""'], ['"a"', '"abc"', '"a\n"']),
    ({"type": "string", "format": "date"}, ['"2026-11-22"'], ['"2026-13-22"', '""']),
    ({"format": "date"}, ['"2024-02-29"', '"2000-02-29"', '"0001-12-31"'],
     ['"2023-02-29"', '"1900-02-29"', '"0000-03-03"', '"2026-04-31"', '"2026-00-01"']),
    ({"format": "date-time"}, ['"2024-02-29T23:59:59.5Z"', '"2026-01-01T00:00:00-08:00"'],
     ['"2024-02-29t23:59:59z"', '"2026-01-01T23:59:60Z"', '"2026-01-01T24:00:00Z"', '"2026-01-01"']),
    ({"format": "time"}, ['"00:00:00Z"'], ['"00:00:60Z"', '"00:00:00"']),
    ({"format": "date", "pattern": "^2"}, ['"2026-11-22"'], ['"1026-11-22"']),
    ({"type": "string", "format": "uuid4"}, ['"123e4567-e89b-12d3-a456-426614174000"'], ['"123e4567"']),
    ({"type": "string", "format": "email"}, ['"a@example.org"'], ['"a"', '"\\"a\\"@example.org"', '"a@[127.0.0.1]"']),
    ({"format": "hostname"}, ['"www.example.com"', '"xn-a.x--b"', '"x"'], ['"xn--X"', '"a.XN--b"', f'"{"a." * 127}a"']),
    ({"format": "hostname", "maxLength": 3}, ['"a.b"'], ['"a.bc"']),
    ({"format": "ipv6"}, ['"2001:db8::1"'], ['"::ffff:192.168.0.1"', '"12345::"']),
    ({"type": ["integer", "null"], "minimum": 7, "maximum": 8}, ["7", "null"], ["6", '"7"']),
    ({"type": "string", "enum": [5, "b"]}, ['"b"'], ["5"]),
    ({"enum": ["a", "b"], "pattern": "^a$"}, ['"a"'], ['"b"']),
    ({"const": 1.5}, ["1.5"], ["1", '"1.5"']),
    ({"anyOf": [{"const": 1}, {"const": True}]}, ["1", "true"], ["2", "false"]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["1", '"a"'], ["null"]),
    ({"properties": {"a": {"type": "null"}}}, ["{}", '{"a":null}', '{ "a" : null }'], ['{"b":1}', '{"a":1}', "3"]),
    ({"properties": {"title": {"const": 1}, "format": {"const": 2}}, "required": ["title", "format"]},
     ['{"title":1,"format":2}'], ['{"format":2,"title":1}', '{"title":1}']),
    ({"properties": {"a": {"const": 1}}, "required": ["a", "b"]}, ['{"a":1,"b":[]}'], ['{"a":1}']),
    ({"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "null"}},
     ['{"a":1,"b":null}', '{"b":null}'], ['{"a":null}', '{"a":1,"a":null}', '{"a":1,"\\u0061":null}', '{"b":1}']),
    ({"type": "object", "patternProperties": {"^k": {"type": "null"}}, "additionalProperties": False},
     ['{"k1":null}'], ['{"k1":1}', '{"x":null}']),
    ({"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2}, ["[null]"], ["[]", "[null,null,null]"]),
    ({"prefixItems": [{"const": 1}, {"const": 2}]}, ["[1,2]"], ["[1]", "[1,2,3]"]),
    ({"items": [{"const": 1}], "additionalItems": {"type": "null"}}, ["[1]", "[1,null]"], ["[]", "[1,2]"]),
    ({"prefixItems": [{"const": 1}], "items": {"type": "null"}, "maxItems": 2}, ["[]", "[1,null]"], ["[1,null,null]"]),
    ({**DEFS, "type": "object", "properties": {"x": {"$ref": "#/$defs/integer"}, "y": {"$ref": "#/$defs/a~1b"}}},
     ['{"x":4,"y":null}'], ['{"x":5}', '{"y":4}']),
    ({**DEFS, "$ref": "#/$defs/x", "description": "a note"}, ['""'], ['"a"']),
    ({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 1}, ['"a"'], ['"ab"', "1"]),
    (NODE, ["{}", '{"next":{"next":{}}}'], ['{"next":1}']),
    ({"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}], "type": "object"}, ['{"a":1}'], ["{}", '{"b":1}']),
    ({**BASE, "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"const": 2}}}]},
     ['{"a":null,"b":2}', '{"a":null}'], ['{"b":2}', '{"a":null,"c":1}']),
    ({**BASE, "$ref": "#/$defs/base", "properties": {"b": {"const": 2}}}, ['{"a":null,"b":2}'], ['{"b":2}']),
    ({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"enum": [1, True]}}}]},
     ['{"a":1}'], ['{"a":true}']),
    ({"allOf": [{"type": "string"}, True, {"pattern": "^a"}]}, ['"ab"'], ['"b"', "1"]),
    ({"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 2}}}]}, ['{"a":2}'], ['{"a":3}']),
    ({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
     ['{"a":1}', '{"b":1}'], ["{}"]),
    (SHAPES, ['{"shape":"circle","radius":1}', '{"shape":"square","note":null,"side":1}'],
     ['{"shape":"circle"}', '{"shape":"circle","side":1}', '{"radius":1}', '{"shape":"circle","radius":1,"x":1}']),
    (NESTED, ['{"id":0,"a":1}', '{"id":0,"b":2}'], ['{"id":0}', '{"a":1}', '{"id":0,"a":1,"c":3}', '{"id":0,"a":2}']),
    ({"properties": {"a": {}, "b": {}}, "oneOf": [{"properties": {n: {}}, "required": [n]} for n in "ab"]},
     ['{"a":1}', '{"b":1}'], ["{}", '{"a":1,"b":1}']),
    ({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}, "additionalProperties": False}, {"required": ["a"]}]},
     ["{}", '{"a":1}'], ['{"c":1}']),
    ({"title": "T", "default": 1, "examples": [1], "$schema": "s", "$id": "i", "type": "null", "nullable": False},
     ["null"], ["1"]),
    ({"type": "array", "items": {"type": "null"}, "uniqueItems": False}, ["[null , null]"], [f"[null{' ' * 40},null]"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "fit", "unfit"), EXACT)
def test_a_schema_takes_what_fits_and_nothing_else(
    takes: Callable[[Any, str], bool], schema: Any, fit: list[str], unfit: list[str]
) -> None:
    assert [text for text in fit if not takes(schema, text)] == []
    assert [text for text in unfit if takes(schema, text)] == []


TEXTS = st.text(st.characters(exclude_characters="\x7f", exclude_categories=["Cs"]))  # DEL is escaped in one way only


@given(TEXTS | st.lists(TEXTS, max_size=3) | st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_a_constant_is_itself_whatever_signs_it_has(takes: Callable[[Any, str], bool], value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assume('"pattern' not in text)  # its tokens are then judged by masks, which spell what is forced in one way only
    assert takes({"const": value}, text)
    assert not takes({"const": value}, text + "x")


ORDINARY = {
    r"^\d{4}-\d{2}-\d{2}$": "2026-11-21",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$": "2026-11-21T10:00:00.5+01:00",
    r"^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$": "123e4567-e89b-12d3-a456-426614174000",
    r"^[a-zA-Z0-9_.+-]+@[a-zA-Z0-9-]+\.[a-zA-Z0-9-.]+$": "a.b+c@example.org",
    r"^(?:[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*)@(?:[a-z0-9-]+\.)+[a-z]{2,63}$": "x@y.de",
    r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$": "kebab-case-1",
    r"^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-.]+)?$": "1.2.3-rc.1+b",
    r"^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$": "192.168.0.1",
    r"^https?://[^\s/$.?#].[^\s]*$": "https://example.org/a?b",
    r"^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$": "#ffcc00",
    r"^(/[^/\0]+)+$": "/etc/hosts",
    r"^\$?\d{1,3}(,\d{3})*(\.\d{2})?$": "$1,234.50",
    r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$": "DE89370400440532013000",
    r"^[\w\s,.!?'-]{1,200}$": "Plain words, it's so.",
    r"^.{1,1000}$": "anything",
    r"^src/.*\.py$": "src/a/b.py",
    r"^.*foo.*bar.*$": "a foo, a bar",
}


@pytest.mark.parametrize("pattern", ORDINARY)
def test_patterns_that_people_use_are_taken(takes: Callable[[Any, str], bool], pattern: str) -> None:
    assert takes({"type": "string", "pattern": pattern}, json.dumps(ORDINARY[pattern]))
    assert not takes({"type": "string", "pattern": pattern}, json.dumps("\n\\"))


SIGNS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "1"])
MODEST = st.recursive(
    SIGNS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,3}", "{2,}"])).map(lambda d: f"({d[0]}){d[1]}")
        | st.lists(inner, min_size=1, max_size=3).map(lambda drawn: f"(?:{'|'.join(drawn)})")
        | st.lists(inner, min_size=1, max_size=3).map("".join)
    ),
    max_leaves=5,
)


@few(60)
@given(MODEST, st.text("ab1\nx", max_size=7))
def test_what_fits_is_what_fits_the_expression(takes: Callable[[Any, str], bool], inner: str, text: str) -> None:
    fits = re.fullmatch(inner, text) is not None
    assert takes({"type": "string", "pattern": f"^(?:{inner})$"}, json.dumps(text)) == fits


@pytest.mark.parametrize("text", ["", "a", "b", "ab", "ba", "xax", "xbx", "bxa"])
@pytest.mark.parametrize("pattern", ["a", "^a", "a$", "^a|b$", "^a$|^b", "a|^b$", ""])
def test_a_pattern_without_anchors_is_found_anywhere(
    takes: Callable[[Any, str], bool], pattern: str, text: str
) -> None:
    assert takes({"type": "string", "pattern": pattern}, json.dumps(text)) == (re.search(pattern, text) is not None)


# ---- random answers to random schemas, against a naive reading of these ----------------------------------------------


def scalar(draw: random.Random) -> dict[str, Any]:
    return draw.choice(
        [
            {},
            {"type": "integer", "minimum": draw.randint(-20, 5), "exclusiveMaximum": draw.choice([6, 7.5, 100])},
            {"type": "integer", "multipleOf": draw.choice([1, 2, 7, 10])},
            {"type": "number", "minimum": draw.choice([-0.5, 0, 0.1]), "maximum": draw.choice([0.7, 6, 7.5])},
            {"type": "string", "minLength": draw.randint(0, 4), "maxLength": draw.randint(4, 9)},
            {"type": "string", "pattern": draw.choice(["^[a-z]{2,4}$", "a+b", r"^\d{3}-\d$", r"^\S+\s\S+$", "[A-Z]$"])},
            {"enum": draw.sample([1, "a", True, None, 2.5, 'b"c', [1], {"a": "b"}, "é"], draw.randint(1, 4))},
            {"type": draw.choice(["null", "boolean", ["string", "null"], ["integer", "boolean"]])},
        ]
    )


def composed(draw: random.Random, depth: int = 3) -> dict[str, Any]:
    kind = draw.choice(["scalar", "object", "object", "joined", "array", "anyOf", "allOf"])
    if kind == "scalar" or not depth:
        return scalar(draw)
    parts = [composed(draw, depth - 1) for _ in range(draw.randint(1, 3))]
    if kind == "array":
        most = {"maxItems": draw.randint(2, 4)} if draw.random() < 0.5 else {}
        return {"type": "array", "items": parts[0], "minItems": draw.randint(0, 2), **most}
    if kind in ("object", "joined"):
        beside = {draw.choice(["anyOf", "allOf"]): [composed(draw, depth - 1)]} if kind == "joined" else {}
        named = dict(zip(draw.sample(["a", "b", "x y", 'd"e'], len(parts)), parts, strict=True))
        return {
            "type": "object",
            "properties": named,
            "required": draw.sample(list(named), draw.randint(0, len(named))),
            **beside,
        }
    return {kind: parts}


KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    kinds = schema.get("type", list(KINDS))
    checks = [any(KINDS[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds))]
    if "enum" in schema:
        checks.append(json.dumps(value) in map(json.dumps, schema["enum"]))
    if KINDS["number"](value):
        low, high = schema.get("minimum", -np.inf), schema.get("maximum", np.inf)
        checks += [low <= value <= high, "exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"]]
        checks.append(value % schema.get("multipleOf", 1) == 0 or "multipleOf" not in schema)
    if isinstance(value, str):
        checks += [schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))]
        checks.append(re.search(schema.get("pattern", ""), value) is not None)
    if isinstance(value, list):
        checks += [schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))]
        checks += [fits(item, schema.get("items", {})) for item in value]
    if isinstance(value, dict):
        named = schema.get("properties", {})
        checks += [
            set(schema.get("required", ())) <= set(value),
            *(fits(value[k], named[k]) for k in named if k in value),
        ]
    checks += [any(fits(value, part) for part in schema["anyOf"])] if "anyOf" in schema else []
    return all(checks) and all(fits(value, part) for part in schema.get("allOf", ()))


def said(schemas: Grammars, vocabulary: Vocabulary, schema: Any, draw: random.Random, most: int = 150) -> str | None:
    """What a model says that means nothing and likes to come to an end; None where it finds none."""
    constraint, ids = schemas.constraint(json.dumps(schema)), []
    closing = [vocabulary.content(sign)[0] for sign in '"}]']
    for number in range(most):
        allowed = np.flatnonzero(constraint.mask()).tolist()
        if allowed[-1] == WORDS - 1 and (draw.random() < 0.5 or len(allowed) == 1):
            return vocabulary.text(ids).decode()
        closes = [token for token in closing if token in allowed] if number > 30 and draw.random() < 0.5 else []
        ids.append(draw.choice(closes or [token for token in allowed if token < WORDS - 1]))
        constraint.accept(ids[-1])
    return None


def test_every_answer_fits_its_schema_whatever_the_model_would_rather_say(
    schemas: Grammars, vocabulary: Vocabulary
) -> None:
    ended = 0
    for seed in range(200):
        draw = random.Random(seed)
        schema = composed(draw)
        with suppress(SchemaRefused):  # nothing may fit
            text = said(schemas, vocabulary, schema, draw)
            ended += text is not None
            assert text is None or fits(json.loads(text), schema), (seed, schema, text)
    assert ended > 100


def written_out(words: Any, definitions: dict[str, Any]) -> Any:
    """With the definitions in the places that `shared` took them from."""
    if isinstance(words, list):
        return [written_out(one, definitions) for one in words]
    if not isinstance(words, dict):
        return words
    name = str(words.get("$ref", "")).removeprefix("#/$defs/")
    if name.startswith("shared"):
        return definitions[name]
    return {key: written_out(one, definitions) for key, one in words.items() if key != "$defs"}


def test_what_stands_in_many_places_is_one_definition_and_the_schema_says_the_same() -> None:
    for seed in range(300):
        words = read(json.dumps(composed(random.Random(seed))))
        found = shared(words)
        assert written_out(found, found.get("$defs", {})) == words, seed
        definitions = list(map(json.dumps, found.get("$defs", {}).values()))
        assert len(definitions) == len(set(definitions)), seed


def test_a_definition_that_is_shared_takes_no_name_of_the_schema(takes: Callable[[Any, str], bool]) -> None:
    ports = {f"p{number}": {"type": "integer", "minimum": 1, "maximum": 9} for number in range(20)}
    kept = {"a": {"$ref": "#/$defs/shared0"}, "b": {"allOf": [{"minimum": 1, "maximum": 9}, {"type": "integer"}]}}
    schema = {"$defs": {"shared0": {"const": 77}}, "properties": {**ports, **kept}}
    assert json.dumps(shared(read(json.dumps(schema)))).count('"maximum"') == 3
    assert takes(schema, '{"p0":1,"p19":9,"a":77,"b":3}')
    assert [text for text in ('{"p0":0}', '{"p19":10}', '{"a":1}', '{"b":0}') if takes(schema, text)] == []


# ---- schemas that mean harm ------------------------------------------------------------------------------------------

KEYWORDS = sorted(ENFORCED | ANNOTATIONS | SAYS_NOTHING.keys() | {"not"})
ODD = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 2.5, 1001, 10**400, -(10**400), 1e308, float("inf"), float("nan"), "", "a", "\ud800",
        "#", "#/", "#/$defs", "#/$defs/a", "#/items", "date", "(" * 256, "^(a|b)*$", "object", "array", "string", "integer",
    ]
)  # fmt: skip
SCHEMAS = st.recursive(
    ODD,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=5)
        | st.dictionaries(st.sampled_from(["type", *KEYWORDS]), inner, min_size=1, max_size=3)
    ),
    max_leaves=20,
)


@few(150)
@given(SCHEMAS)
def test_whatever_a_schema_says_it_is_compiled_or_refused(schemas: Grammars, schema: Any) -> None:
    with suppress(SchemaRefused):
        assert schemas.constraint(json.dumps(schema)).mask().any()


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
MOST_S = 0.5  # of this thread for a step: at most 0.06 on a quiet machine


def walk(schemas: Grammars, schema: str, seed: int, steps: int = 20) -> None:
    """Random tokens, until it ends or is refused. No step takes long."""
    draw = random.Random(seed)
    with suppress(SchemaRefused):
        constraint = schemas.constraint(schema)
        for _ in range(steps):
            began = time.thread_time()
            allowed = np.flatnonzero(constraint.mask()).tolist()
            token = draw.choice(allowed)
            if token == WORDS - 1:
                return
            constraint.accept(token)
            assert time.thread_time() - began < MOST_S


@few(50)
@given(HOSTILE, st.booleans(), st.integers(0, 99))
def test_a_hostile_pattern_is_refused_or_costs_little_a_token(
    schemas: Grammars, inner: str, anchored: bool, seed: int
) -> None:
    walk(schemas, pattern(f"^({inner})$" if anchored else inner), seed)


@pytest.mark.parametrize("text", HOLDING)
def test_an_ambiguous_pattern_costs_little_a_token(schemas: Grammars, text: str) -> None:
    walk(schemas, pattern(text), 0, steps=60)


WORDY = {"type": "string", "pattern": r"^(?:\S+\s+){0,99}\S+$", "minLength": 1, "maxLength": 5000}


@pytest.mark.parametrize("place", ["{}", '{{"properties": {{"a": {}}}}}', '{{"anyOf": [{{"type": "null"}}, {}]}}'])
def test_a_pattern_that_no_answer_could_get_through_is_refused_before_any_begins(schemas: Grammars, place: str) -> None:
    with pytest.raises(SchemaRefused, match=r"the pattern .*\{0,99\}.* is too ambiguous beside its lengths"):
        schemas.constraint(place.format(json.dumps(WORDY)))


@pytest.mark.parametrize("schema", GROWING.values(), ids=GROWING)
def test_a_schema_that_grows_when_it_is_written_out_is_refused_at_once(schemas: Grammars, schema: Any) -> None:
    began = time.thread_time()
    with pytest.raises(SchemaRefused, match=r"too many parts|properties; at most|too large|recursion|level exceeded"):
        schemas.constraint(json.dumps(schema, separators=(",", ":")))
    assert time.thread_time() - began < 3.0


@pytest.mark.parametrize("schema", LARGE.values(), ids=LARGE)
def test_a_schema_near_the_bounds_takes_a_second_or_two_and_little_a_token(schemas: Grammars, schema: Any) -> None:
    written = json.dumps(schema, separators=(",", ":"))
    began = time.thread_time()
    with suppress(SchemaRefused):
        schemas.constraint(written)
    assert time.thread_time() - began < 3.0
    walk(schemas, written, 0)


def test_the_deepest_pattern_is_taken_in_the_deepest_schema(schemas: Grammars) -> None:
    deepest = "^" + "(" * 64 + "a|b" + ")*" * 64 + "$"
    walk(schemas, nested(31).replace('{"type": "null"}', pattern(deepest)), 0)
    assert read(json.dumps({"const": '"' + "[{" * 100})), "brackets in a string are text"


@pytest.fixture(scope="module")
def many_words(qwen_model: Path) -> Grammars:
    """Of 151,936 words, as a real model has."""
    return Grammars(lib.llama_model_get_vocab(vocabulary_model(qwen_model)))


@pytest.mark.parametrize("schema", EVERY_HOSTILE, ids=range(len(EVERY_HOSTILE)))
def test_no_token_of_a_hostile_schema_holds_up_the_others(many_words: Grammars, schema: str) -> None:
    """Each walk has the schema compiled anew, because answers to one schema share what its patterns were found to be."""
    walks = (token_times(partial(many_words.constraint, schema + " " * number)) for number in range(3))
    assert slowest_token(walks) <= LONGEST_S


def test_a_long_answer_to_a_pattern_meets_no_limit_of_a_single_token(many_words: Grammars, qwen_model: Path) -> None:
    words = {"type": "string", "pattern": r"^$|(^(?:\S+\s+){0,199}\S+$)"}
    constraint = many_words.constraint(json.dumps({"properties": {"a": words, "b": words}, "required": ["a", "b"]}))
    text = " ".join(f"We are word {number} of the text." for number in range(20))
    for token in Vocabulary(vocabulary_model(qwen_model)).content(json.dumps({"a": text, "b": text})):
        assert constraint.allows(token)
        constraint.accept(token)


def test_an_answer_that_met_a_limit_leaves_its_schema_to_the_next_one(
    schemas: Grammars, vocabulary: Vocabulary
) -> None:
    """What the lexer has built is shared with the answers before, and with it that it met its limit."""
    schema = json.dumps({"properties": {"a": json.loads(pattern("^(.{0,70}){70}$"))}, "required": ["a"]})
    ids = vocabulary.content('{"a": "What is the meaning of it')
    for _ in range(2):
        constraint = schemas.constraint(schema)
        assert constraint.allows(ids[0])
        with pytest.raises(SchemaRefused, match="too ambiguous"):
            say(constraint, list(ids))


def say(constraint: Constraint, ids: list[int]) -> None:
    for token in ids:
        constraint.accept(token)
        constraint.mask()


CHILD = """
import sys, json, resource
import llama_cpp as lib
import numpy as np
from orchestrator.engine.llama import native
from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.messages import Sampling
from orchestrator.engine.llama.sampler import LlamaSampler
from orchestrator.engine.llama.grammars import Grammars

native.start()
parameters = lib.llama_model_default_params()
parameters.vocab_only = True
model = lib.llama_model_load_from_file(sys.argv[1].encode(), parameters)
vocabulary = lib.llama_model_get_vocab(model)
schemas = Grammars(vocabulary)
random = np.random.default_rng(0)
for schema in json.load(sys.stdin):
    try:
        sampler = LlamaSampler(Sampling(), model, schemas.constraint(schema))
        for _ in range(20):
            token, _ = sampler.choose(random.standard_normal(4096).astype(np.float32))
            if lib.llama_vocab_is_eog(vocabulary, token):
                break
            sampler.accept(token)
        sampler.close()
    except SchemaRefused:
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_hostile_schemas_are_refused_or_harmless_and_the_process_survives_them_all(quoter_model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, str(quoter_model)],
        input=json.dumps(["{}", *EVERY_HOSTILE]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, len(done.stdout.split())) == (0, len(EVERY_HOSTILE) + 1), done.stderr[-2000:]
    largest = [int(kilobytes) / 1000 for kilobytes in done.stdout.split()]  # MB of the process so far
    assert max(after - before for before, after in pairwise(largest)) <= MOST_MB
