"""JSON schemas come from clients: what breaks a bound is refused with its name, and none takes the process with it."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.keywords import ANNOTATIONS, ENFORCED, SAYS_NOTHING
from orchestrator.engine.llama.regular import MOST_OPEN
from orchestrator.engine.llama.schema import MOST_GRAMMAR, MOST_NESTING, SAID, grammar, grammar_of, nesting

ROOT = Path(__file__).resolve().parents[4]


def text(pattern: str) -> str:
    return json.dumps({"type": "string", "pattern": pattern})


def nested(depth: int) -> str:
    return '{"type": "array", "items":' * (depth - 1) + '{"type": "null"}' + "}" * (depth - 1)


@pytest.mark.parametrize(
    ("schema", "because"),
    [
        ("{", "not JSON"),
        ('{"enum": ["' + "x" * 65_536 + '"]}', "65550 bytes"),
        (nested(33), "deeper than 32"),
        ('{"$ref": "https://example.org/schema"}', "only references inside"),
        ('{"$ref": 3}', "only references inside"),
        ('{"type": "string", "maxLength": 1001}', "maxLength 1001"),
        ('{"type": "array", "items": {}, "minItems": 100000}', "minItems 100000"),
        (text("^a{1000000000}$"), "more than 1000"),
        (text("^a{2,1001}$"), "more than 1000"),
        (text("^" + "a?" * 3000 + "$"), "6002 characters"),
        (text("^a\\"), "lone backslash"),
        (text("^a**$"), "without brackets"),
        (json.dumps({"properties": {f"k{number}": {} for number in range(401)}}), "401 properties"),
        (text("(?=a)b"), "look around"),
        (text("^(a)\\1$"), "not taken"),
        (text("a[^\\s\\S]"), "no text fits"),
        ("[]", "no grammar"),
        ("3", "no grammar"),
        ('{"type": "banana"}', "no grammar"),
        ('{"$ref": "#/nowhere"}', "no grammar"),
        ('{"const": "\\ud800"}', "surrogates not allowed"),
        ('{"type": "string", "maxLength": "9"}', "no grammar"),
        ('{"const": "\ud800"}', "surrogates not allowed"),
        ('{"title": "' + "]}" * 20 + '", "items": ' + nested(32) + "}", "deeper than 32"),
        ('{"title": "' + "}" * 12_000 + '", "items": ' + nested(1500) + "}", "deeper than 32"),
        (text("(" * 256), f"more than {MOST_OPEN} groups"),
        (text("^" + "(" * (MOST_OPEN + 1) + "a" + ")" * (MOST_OPEN + 1) + "$"), f"more than {MOST_OPEN} groups"),
        (json.dumps({"type": "integer", "maximum": 10**400}), "16 digits"),
        (json.dumps({"type": "number", "exclusiveMinimum": -(10**400)}), "16 digits"),
        (json.dumps({"type": "number", "minimum": 1e308}), "16 digits"),
        ('{"type": "integer", "minimum": 1e999}', "a bound is a number"),
        ('{"type": "integer", "minimum": NaN}', "a bound is a number"),
        ('{"type": "integer", "minimum": ' + "9" * 5000 + "}", "4300 digits"),
        ('{"enum": [1e999]}', "not JSON compliant"),
        ('{"const": {"a": NaN}}', "not JSON compliant"),
    ],
)
def test_a_schema_outside_the_bounds_is_refused_and_the_bound_is_named(schema: str, because: str) -> None:
    with pytest.raises(SchemaRefused, match=because):
        grammar_of(schema)


def test_the_deepest_schema_within_the_bound_is_taken() -> None:
    assert grammar_of(nested(32))


def test_the_deepest_pattern_is_taken_in_the_deepest_schema() -> None:
    deepest = "^" + "(" * MOST_OPEN + "a|b" + ")*" * MOST_OPEN + "$"
    assert grammar_of(nested(31).replace('{"type": "null"}', text(deepest)))


def test_brackets_in_a_string_are_text() -> None:
    assert grammar_of(json.dumps({"const": '"' + "[{" * 100}))


def test_a_refusal_that_repeats_what_the_schema_says_is_short_and_can_be_shown() -> None:
    with pytest.raises(SchemaRefused) as refused:
        grammar(json.dumps({"type": "null", "\ud800" + "x" * 9000: 1}))
    said = str(refused.value)
    assert len(said.encode()) <= SAID + 3
    assert "\\ud800xxx" in said


def test_one_and_true_are_two_alternatives() -> None:
    found = grammar_of(json.dumps({"anyOf": [{"const": 1}, {"const": True}]}))
    assert '"1"' in found
    assert '"true"\n' in found


KEYWORDS = sorted(
    {"type", "$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "enum", "not", *ANNOTATIONS, *SAYS_NOTHING}.union(
        *ENFORCED.values()
    )
)
ODD = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 2.5, 1001, 10**400, -(10**400), 1e308, float("inf"), float("nan"), "", "a", "\ud800",
        "#", "#/", "#/$defs", "#/$defs/a", "#/items", "date", "(" * 256, "^(a|b)*$", *ENFORCED,
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


@settings(max_examples=500, deadline=None)
@given(SCHEMAS)
def test_whatever_a_schema_says_a_grammar_is_made_or_it_is_refused(schema: Any) -> None:
    with suppress(SchemaRefused):
        assert "root ::= " in grammar_of(json.dumps(schema))


def merged(definition: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": f"#/$defs/{definition}"}, {}]}


def named(start: int, many: int) -> dict[str, Any]:
    return {"properties": {f"{number:x}": {} for number in range(start, start + many)}}


TWICE = {f"d{n}": {"properties": {"l": merged(f"d{n + 1}"), "r": merged(f"d{n + 1}")}} for n in range(40)}
CHAIN = {f"c{n}": {"$ref": f"#/$defs/c{n + 1}"} for n in range(700)}
LISTS = {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 1000}
GROWING = {
    "definitions that name the next one twice": {"$defs": {**TWICE, "d40": {}}, **merged("d0")},
    "many properties, merged": {"allOf": [named(400 * part, 400) for part in range(10)]},
    "many objects of many properties": {"type": "array", "prefixItems": [named(0, 400) for _ in range(12)]},
    "many parts that require much": {
        "default": {"required": [f"{n:x}" for n in range(4000)]},
        "allOf": [{"$ref": "#/default"}] * 1000,
    },
    "many references to a chain of them": {"$defs": {**CHAIN, "c700": {}}, "allOf": [{"$ref": "#/$defs/c0"}] * 1000},
    "many long lists behind a long name": {
        "properties": {"x" * 20_000: {"properties": {f"{n:x}": LISTS for n in range(300)}}}
    },
}


@pytest.mark.parametrize("schema", GROWING.values(), ids=GROWING)
def test_a_schema_that_grows_when_it_is_written_out_is_refused_at_once(schema: Any) -> None:
    began = time.thread_time()
    with pytest.raises(SchemaRefused, match=r"too many parts|properties; at most|more than"):
        grammar_of(json.dumps(schema, separators=(",", ":")))
    assert time.thread_time() - began < 3.0


def apart(start: int) -> dict[str, Any]:
    """Properties whose names have no letter that a rule's name may have."""
    return {"properties": {chr(0x4E00 + number): {} for number in range(start, start + 400)}}


LARGE = {
    "references": {
        "$defs": {f"d{n}": {} for n in range(1200)},
        "type": "array",
        "prefixItems": [{"$ref": f"#/$defs/d{n}"} for n in range(1200)],
    },
    "patterns": {"type": "array", "prefixItems": [{"type": "string", "pattern": "^a$"}] * 900},
    "names that look alike": {"type": "array", "prefixItems": [apart(400 * part) for part in range(3)]},
    "constants": {"enum": list(range(9000))},
    "alternatives": {"anyOf": [{"type": "string", "maxLength": n % 1000} for n in range(1500)]},
    "constants that each begin the next one": {"enum": ["a" * n for n in range(1, 350)]},
    "parts": {"type": "array", "prefixItems": [{}] * 4900},
}


@pytest.mark.parametrize("schema", LARGE.values(), ids=LARGE)
def test_a_schema_near_the_bounds_takes_seconds_at_most(schema: Any) -> None:
    began = time.thread_time()
    with suppress(SchemaRefused):
        assert len(grammar_of(json.dumps(schema, separators=(",", ":")))) <= MOST_GRAMMAR
    assert time.thread_time() - began < 3.0


def test_escaped_backslashes_before_the_end_are_no_lone_ones() -> None:
    assert grammar_of(text("^a\\\\$"))


def test_a_schema_may_refer_to_itself_by_any_name() -> None:
    node = {"type": "object", "properties": {"next_one": {"$ref": "#/$defs/tree_node"}}}
    assert grammar_of(json.dumps({"$defs": {"tree_node": node}, "$ref": "#/$defs/tree_node"}))


@given(st.text() | st.lists(st.text(), max_size=3) | st.dictionaries(st.text(), st.text(), max_size=3))
def test_no_constant_opens_a_bracket_of_the_grammar(value: Any) -> None:
    assert nesting(grammar_of(json.dumps({"const": value}))) == nesting(grammar_of('{"const": 1}'))


@given(st.text(min_size=1, max_size=30))
def test_no_property_s_name_opens_a_bracket_of_the_grammar(name: str) -> None:
    plain, odd = ({"type": "object", "properties": {key: {"type": "null"}}, "required": [key]} for key in ("a", name))
    assert nesting(grammar_of(json.dumps(odd))) <= nesting(grammar_of(json.dumps(plain)))


def test_brackets_in_literals_and_classes_do_not_nest() -> None:
    assert nesting(r'root ::= "((" ( [(] | "\"(" ("a")? )') == 2


HOSTILE = [
    json.dumps({"const": '" | ' + "(" * 60_000}),
    json.dumps({"enum": ['\\" | ' + "(" * 30_000]}),
    json.dumps({"type": "object", "properties": {'"' + "(" * 30_000: {}}}),
    json.dumps({"$defs": {"x " + "(" * 9000: {"items": {"$ref": "#/$defs/x " + "(" * 9000}, "type": "array"}}})[:-1]
    + ', "$ref": "#/$defs/x ' + "(" * 9000 + '"}',
    text("^(a*)*$"),
    text("^(((a|b)*)*)*$"),
    text("^((a{900}){900}){900}$"),
    text("^[]$"),
    text("^a{3,1}$"),
    text("^" + "(a|b" * 50 + ")" * 50 + "$"),
    text("(" * 256),
    text("^" + "(" * 64 + "a" + ")*" * 64 + "$"),
    json.dumps({"type": "integer", "maximum": 10**400}),
    '{"type": "number", "maximum": 1e999}',
    json.dumps({"enum": ["a" * number for number in range(1, 350)]}),
    '{"title": "' + "}" * 12_000 + '", "items": ' + nested(1500) + "}",
    json.dumps({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
    json.dumps({"type": "string", "minLength": 1000, "maxLength": 1000}),
    json.dumps({"type": "string", "minLength": 9, "maxLength": 3}),
    json.dumps({"type": "object", "properties": {f"k{n}": {} for n in range(900)}}),
    json.dumps({"type": "integer", "minimum": -(10**300)}),
]  # fmt: skip

CHILD = """
import sys, json
import llama_cpp as lib
import numpy as np
from orchestrator.engine.llama import native
from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.messages import Sampling
from orchestrator.engine.llama.sampling import LlamaSampler

native.start()
parameters = lib.llama_model_default_params()
parameters.vocab_only = True
model = lib.llama_model_load_from_file(sys.argv[1].encode(), parameters)
vocabulary = lib.llama_model_get_vocab(model)
random = np.random.default_rng(0)
for schema in json.load(sys.stdin):
    try:
        sampler = LlamaSampler(Sampling(schema=schema), model)
    except SchemaRefused:
        print("refused")
        continue
    for _ in range(20):
        token, _ = sampler.choose(random.standard_normal(4096).astype(np.float32))
        if lib.llama_vocab_is_eog(vocabulary, token):
            break
        sampler.accept(token)
    sampler.close()
    print("taken")
"""


def test_hostile_schemas_are_refused_or_harmless_and_the_process_survives_them_all(quoter_model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, str(quoter_model)],
        input=json.dumps(HOSTILE),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, len(done.stdout.split())) == (0, len(HOSTILE)), done.stderr[-2000:]


def test_the_bound_on_nesting_leaves_room_for_the_longest_string() -> None:
    grammar = grammar_of('{"type": "string", "maxLength": 1000}')
    assert 500 < nesting(grammar) <= MOST_NESTING or nesting(grammar) < 10
