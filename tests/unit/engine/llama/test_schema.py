"""JSON schemas come from clients: what breaks a bound is refused with its name, and none takes the process with it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.schema import MOST_NESTING, grammar_of, nesting

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
    ],
)
def test_a_schema_outside_the_bounds_is_refused_and_the_bound_is_named(schema: str, because: str) -> None:
    with pytest.raises(SchemaRefused, match=because):
        grammar_of(schema)


def test_the_deepest_schema_within_the_bound_is_taken() -> None:
    assert grammar_of(nested(32))


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
    text("^" + "(a|b" * 60 + ")" * 60 + "$"),
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
        [sys.executable, "-c", CHILD, str(quoter_model)],
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
