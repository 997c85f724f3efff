"""Calls of tools within an answer: text is free until a trigger, and then nothing but a call of an offered tool is said."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp as lib
import numpy as np
import pytest
from support.call_forms import CODER, HERMES, PYTHONIC
from support.vocabularies import Says, saying, vocabulary_model

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.calling import ArgumentForm, CallForm, OfferedTool, ToolRules
from orchestrator.engine.llama.calls import check_rules
from orchestrator.engine.llama.grammars import Grammars
from orchestrator.engine.llama.sampler import LlamaSampler
from orchestrator.engine.messages import Sampling
from orchestrator.engine.vocab import Vocabulary
from orchestrator.prompt.situation import OUR_TOOLS
from orchestrator.wire.requests import MOST_TOOLS as CLIENTS_MOST_TOOLS

LIST = CallForm("<|tool_call>", '<|tool_call>[{"name": "', '", "arguments": ', "}", ', {"name": "', "]<tool_call|>")
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
LINES = {"type": "object", "properties": {"from": {"type": "integer", "minimum": 1}}}
TOOLS = (OfferedTool("search", json.dumps(QUERY)), OfferedTool("search_lines", json.dumps(LINES)))
SEARCH = '{"name": "search", "arguments": {"query":"a"}}'
READ = '{"name": "search_lines", "arguments": {"from": 3}}'
CALL, OTHER = f"<tool_call>\n{SEARCH}\n</tool_call>", f"<tool_call>\n{READ}\n</tool_call>"


@pytest.fixture(scope="module", params=["quoter_model", "gemma_model"])
def model(request: pytest.FixtureRequest) -> Any:
    """Of 4,096 words without names for control tokens, and of 262,144 with them."""
    return vocabulary_model(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def says(model: Any) -> Says:
    return saying(model)


@pytest.fixture(scope="module")
def gemma(gemma_model: Path) -> Says:
    return saying(vocabulary_model(gemma_model))


def test_text_is_free_until_a_trigger(says: Says) -> None:
    rules = ToolRules(HERMES, TOOLS)
    free = ["", "I know it.", "a <tool is no <tool_cal> of mine\n\n", '{"name": "search"}', "🦉 </tool_call> é"]
    assert [text for text in free if not says(text, rules)] == []


def test_from_the_trigger_on_name_and_arguments_are_bound_to_the_offered_tools(says: Says) -> None:
    rules = ToolRules(HERMES, TOOLS)
    fit = [CALL, OTHER, f"I look it up.\n{CALL}", f"{CALL}\n{OTHER}\n{CALL}"]
    unfit = [
        "<tool_call>",
        CALL.replace("search", "find"),
        CALL.replace("query", "word"),
        CALL.replace('"a"', "3"),
        OTHER.replace("3", "0"),
        CALL.replace("}}", "}"),
        f"{CALL} and more",
        f"{CALL}\n",
    ]
    assert [text for text in fit if not says(text, rules)] == []
    assert [text for text in unfit if says(text, rules)] == []


def test_a_control_token_is_a_trigger_and_its_spelling_as_text_is_none(gemma: Says) -> None:
    rules = ToolRules(LIST, TOOLS)
    assert gemma(f"I look. <|tool_call>[{SEARCH}]<tool_call|>", rules)
    assert gemma(f"<|tool_call>[{SEARCH}, {READ}]<tool_call|>", rules)
    assert gemma("a thought: <|channel>thought\nhm<channel|> so it is", rules)
    assert not gemma(f"<|tool_call>[{SEARCH}", rules)
    assert not gemma("<|tool_call>I look", rules)


def test_the_control_tokens_of_calls_are_spelled_and_no_others(gemma_model: Path) -> None:
    model = vocabulary_model(gemma_model)
    grammars, vocabulary = Grammars(lib.llama_model_get_vocab(model)), Vocabulary(model)
    constraint = grammars.constraint("", ToolRules(LIST, TOOLS))
    begin, close, thought = (vocabulary.template(text)[0] for text in ("<|tool_call>", "<tool_call|>", "<|channel>"))
    assert constraint.spelled == {begin: b"<|tool_call>", close: b"<tool_call|>"}
    sampler = LlamaSampler(Sampling(), model, constraint)
    assert (sampler.spelled(begin), sampler.spelled(thought)) == (b"<|tool_call>", b"")


def test_required_is_a_call_from_the_first_token_on(says: Says) -> None:
    rules = ToolRules(HERMES, TOOLS, required=True)
    assert says(CALL, rules)
    assert not says("I know it.", rules)
    assert not says("", rules)
    assert not says(f"I look. {CALL}", rules)


def test_a_named_tool_is_the_only_one(says: Says) -> None:
    rules = ToolRules(HERMES, TOOLS[1:], required=True)
    assert says(OTHER, rules)
    assert not says(CALL, rules)


def test_one_call_is_not_followed_by_another(says: Says) -> None:
    assert says(f"so: {CALL}", ToolRules(HERMES, TOOLS, parallel=False))
    assert not says(f"{CALL}\n{CALL}", ToolRules(HERMES, TOOLS, parallel=False))
    assert not says(f"{CALL}\n{CALL}", ToolRules(replace(HERMES, between=""), TOOLS))


def test_an_answer_with_a_schema_fits_it_or_makes_calls(says: Says) -> None:
    rules, schema = ToolRules(HERMES, TOOLS), json.dumps({"type": "integer"})
    assert says("12", rules, schema)
    assert says(CALL, rules, schema)
    assert not says("text", rules, schema)
    assert not says(f"12{CALL}", rules, schema)


def test_a_schema_that_cannot_be_enforced_binds_a_loose_tool_to_an_object_and_refuses_a_strict_one(says: Says) -> None:
    odd = json.dumps({"type": "object", "if": {"required": ["a"]}})
    loose = ToolRules(HERMES, (OfferedTool("odd", odd), *TOOLS))
    call = '<tool_call>\n{"name": "odd", "arguments": {"b": [1]}}\n</tool_call>'
    assert says(call, loose)
    assert says(CALL, loose)
    assert not says(call.replace('{"b": [1]}', "[1]"), loose)
    with pytest.raises(SchemaRefused, match="the tool odd: the keyword if is not enforced"):
        says(call, ToolRules(HERMES, (OfferedTool("odd", odd, strict=True),)))


def test_a_tool_without_parameters_takes_none(says: Says) -> None:
    rules = ToolRules(HERMES, (OfferedTool("now", '{"type": "object", "properties": {}}'),))
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert says(call, rules)
    assert not says(call.replace("{}", '{"a":1}'), rules)


# ---- arguments one by one ----------------------------------------------------------------------------------------------

MARKED = CallForm(
    "<|tool_call>", "<|tool_call>call:", "{", "}<tool_call|>", style=ArgumentForm("", ":", "", ",", quote='<|"|>')
)
EDIT = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "line": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "all": {"type": "boolean"},
        "mode": {"$ref": "#/$defs/mode"},
        "marks": {"type": "array", "items": {"type": "boolean"}},
    },
    "required": ["path", "mode"],
    "$defs": {"mode": {"enum": ["new", "old", None]}},
}
EDITS = (OfferedTool("edit", json.dumps(EDIT)), OfferedTool("now", '{"properties": {}}'))


def coded(**arguments: str) -> str:
    """A call of `edit` as Qwen's coder writes it."""
    written = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    return f"<tool_call>\n<function=edit>\n{written}</function>\n</tool_call>"


def test_arguments_between_marks_are_raw_texts_and_the_schemas_other_values(says: Says) -> None:
    rules = ToolRules(CODER, EDITS)
    text = 'def a():\n    return "</param" {"x": 1}'
    fit = [
        coded(path=text, mode="new"),
        coded(path="", line="3", all="true", mode="null", marks="[true]"),
        f"I write.\n{coded(path='a', mode='old')}\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ]
    unfit = [
        coded(mode="new"),
        coded(path="a"),
        coded(mode="new", path="a"),
        coded(path="a", line="x", mode="new"),
        coded(path="a", all="True", mode="new"),
        coded(path="a", mode='"new"'),
        coded(path="a", mode="new", other="1"),
    ]
    assert [text for text in fit if not says(text, rules)] == []
    assert [text for text in unfit if says(text, rules)] == []


def test_arguments_are_written_as_those_of_a_function_in_python(says: Says) -> None:
    rules = ToolRules(PYTHONIC, EDITS)
    fit = ['[edit(path="a\\n", mode="new")]', 'so: [now(), edit(path="", line=None, all=True, mode=None)]']
    unfit = [
        "[edit(path=a, mode='new')]",
        '[edit(, path="a", mode="new")]',
        '[edit(path="a", all=true, mode="new")]',
        "[]",
    ]
    assert [text for text in fit if not says(text, rules)] == []
    assert [text for text in unfit if says(text, rules)] == []


def test_a_text_between_control_tokens_is_raw(gemma: Says) -> None:
    rules = ToolRules(MARKED, EDITS)
    assert gemma('<|tool_call>call:edit{path:<|"|>a "b", c<|"|>,line:3,mode:<|"|>old<|"|>}<tool_call|>', rules)
    assert not gemma('<|tool_call>call:edit{path:a,mode:<|"|>old<|"|>}<tool_call|>', rules)
    assert not gemma('<|tool_call>call:edit{path:<|"|>a<|"|>,mode:<|"|>any<|"|>}<tool_call|>', rules)


def test_a_loose_tool_takes_any_arguments_in_the_same_form(says: Says) -> None:
    rules = ToolRules(CODER, (OfferedTool("edit", '{"not": {}}'),))
    assert says(coded(anything="at all", more="[1"), rules)
    assert not says("<tool_call>\n<function=edit>\n{}</function>\n</tool_call>", rules)


def test_as_many_tools_as_a_client_may_offer_are_taken_beside_ours() -> None:
    offered = [OfferedTool(f"t{number}", "{}") for number in range(CLIENTS_MOST_TOOLS)]
    check_rules(ToolRules(HERMES, (*offered, *(OfferedTool(name, "{}") for name in OUR_TOOLS))))


@pytest.mark.parametrize(
    ("rules", "because"),
    [
        (ToolRules(HERMES, (), required=True), "a call is required, and no tool is offered"),
        (ToolRules(HERMES, TOOLS * 97), "194 tools are offered"),
        (ToolRules(HERMES, (TOOLS[0], TOOLS[0])), "two tools have one name"),
        (ToolRules(HERMES, (OfferedTool('a"b', "{}"),)), "is not made of letters"),
        (ToolRules(replace(HERMES, style=ArgumentForm(quote="")), TOOLS), "where an argument's text ends"),
        (ToolRules(replace(HERMES, begin="[", trigger="<"), TOOLS), "does not begin with its trigger"),
        (ToolRules(HERMES, tuple(OfferedTool(f"t{n}", " " * 40_000) for n in range(7))), "have 280000 bytes"),
    ],
)
def test_rules_that_no_answer_can_follow_are_refused_with_the_reason(
    says: Says, rules: ToolRules, because: str
) -> None:
    with pytest.raises(SchemaRefused, match=because):
        says("", rules)


def test_whatever_a_model_would_rather_say_a_required_call_is_well_formed(quoter_model: Path) -> None:
    model = vocabulary_model(quoter_model)
    grammars, vocabulary = Grammars(lib.llama_model_get_vocab(model)), Vocabulary(model)
    kinds = {"properties": {"kind": {"enum": ["a", "b"]}, "many": {"type": "boolean"}}, "required": ["kind"]}
    rules = ToolRules(HERMES, (OfferedTool("take", json.dumps(kinds)),), required=True, parallel=False)
    said = set()
    for seed in range(30):
        draw, constraint, ids = np.random.default_rng(seed), grammars.constraint("", rules), list[int]()
        while not constraint.mask()[lib.llama_vocab_eos(lib.llama_model_get_vocab(model))]:
            ids.append(int(draw.choice(np.flatnonzero(constraint.mask()))))
            constraint.accept(ids[-1])
        text = vocabulary.text(ids).decode()
        call = json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
        assert call["name"] == "take"
        assert call["arguments"]["kind"] in ("a", "b")
        said.add(json.dumps(call))
    assert len(said) > 2


def test_with_no_tools_an_answer_is_any_text_in_which_no_call_begins(says: Says, gemma: Says) -> None:
    rules = ToolRules(HERMES, ())
    assert [text for text in ("", "I know.", "a <tool_cal> é\n", SEARCH) if not says(text, rules)] == []
    assert [text for text in (CALL, f"I look. {CALL}", "it is <tool_call> here") if says(text, rules)] == []
    assert gemma("I look, <|channel>thought\nhm<channel|> so it is", ToolRules(LIST, ()))
    assert not gemma("<|tool_call>", ToolRules(LIST, ()))
    assert says('{"b": 1}', rules, '{"properties": {"b": {"const": 1}}, "required": ["b"]}')
    assert not says(CALL, rules, '{"type": "object"}')


ALONE = CallForm('{"name": "', '{"name": "', '", "parameters": ', "}", alone=True)


def test_a_beginning_that_ordinary_texts_have_is_a_call_only_at_the_beginning_of_an_answer(says: Says) -> None:
    call = '{"name": "search", "parameters": {"query": "a"}}'
    rules = ToolRules(ALONE, TOOLS)
    free = ["", "{", '{"name"', '{"names": "x"}', "I know.", f"So it is: {call}", 'Write {"name": "x"} there.']
    assert [text for text in (call, *free) if not says(text, rules)] == []
    assert [text for text in ('{"name": "x"}', '{"name": "', f"{call} and more") if says(text, rules)] == []
    assert not says(call, replace(rules, tools=()))
    assert says("I know.", replace(rules, tools=()))


THOUGHTS = (
    "<tool_call> is how I call",
    'so <tool_call>\n{"name": "none", it goes',
    f"first {CALL}, then",
    "<tool_call> and <tool_call>",
)


@pytest.mark.parametrize("form", [HERMES, LIST, ALONE], ids=["text", "control token", "alone"])
def test_a_thought_that_the_template_opened_may_quote_a_call_and_what_follows_it_is_bound(
    says: Says, gemma: Says, form: CallForm
) -> None:
    rules, says = ToolRules(form, TOOLS, thinking=True), gemma if form is LIST else says
    call = f'{form.begin}search{form.before}{{"query": "a"}}{form.end}{form.close}'
    thoughts = [text.replace("<tool_call>", form.trigger) for text in ("", "Hm.\n", *THOUGHTS)]
    assert [text for text in thoughts if not says(text, rules)] == []
    assert [text for text in thoughts if not says(f"{text}</think>It is so.", rules)] == []
    assert [text for text in thoughts if not says(f"{text}</think>{call}", rules)] == []
    wrong = call.replace("query", "word")
    assert [text for text in thoughts if says(f"{text}</think>{wrong}", rules)] == []


@pytest.mark.parametrize("opening", ["<think>", "\n<think>\n"])
def test_a_thought_that_the_model_opens_itself_may_quote_a_call(says: Says, gemma: Says, opening: str) -> None:
    for form, one in ((HERMES, says), (LIST, gemma)):
        rules, quoted = ToolRules(form, TOOLS), f"{opening}I write {form.trigger} first"
        call = f'{form.begin}search{form.before}{{"query": "a"}}{form.end}{form.close}'
        assert one(quoted, rules)
        assert one(f"{quoted}</think>\n\nSo. {call}", rules)
        assert not one(f"{quoted}</think>\n\nSo. {form.trigger} first", rules)
        assert not one(f"So. {quoted}", rules), "a thought comes before the answer"
