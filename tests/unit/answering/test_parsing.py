"""Answers whose calls are bound to a form: whatever is parsed is a whole call, however the text comes in pieces."""

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.calls import PLAIN_CALLS, ArgumentStyle, CallFormat
from orchestrator.answering.answer import parser_of
from orchestrator.answering.client_tools import call_form
from orchestrator.answering.parsing import BoundParser, CutCall, ParsedCall, ToldCalls, parsed_calls
from orchestrator.engine.calling import OfferedTool, ToolRules
from orchestrator.engine.messages import InferenceJob, Sampling, ids_to_bytes
from orchestrator.service import CallDelta, Text, Thought

HERMES = CallFormat(
    "hermes",
    "<tool_call>",
    '<tool_call>\n{"name": "',
    '", "arguments": ',
    "}\n</tool_call>",
    '\n<tool_call>\n{"name": "',
)
MISTRAL = CallFormat("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", "", "[TOOL_CALLS]")
NEMO = CallFormat("mistral", "[TOOL_CALLS]", '[TOOL_CALLS][{"name": "', '", "arguments": ', "}", ', {"name": "', "]")
LLAMA = CallFormat("llama3", '{"name": "', '{"name": "', '", "parameters": ', "}")
FORMS = (PLAIN_CALLS, HERMES, MISTRAL, NEMO, LLAMA)

names = st.from_regex(r"[A-Za-z0-9_.:/-]{1,20}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.sampled_from([one.end for one in FORMS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(st.tuples(names, st.dictionaries(st.text(max_size=8), values, max_size=3)), min_size=1, max_size=3)


def parts_of(
    form: CallFormat,
    pieces: Sequence[str],
    *,
    cut: bool = False,
    offered: Mapping[str, Any] | None = None,
    told: ToldCalls | None = None,
) -> list[Any]:
    parser = BoundParser(form, offered if offered is not None else {"look": {}, "find": {}}, told=told)
    return [*(part for piece in pieces for part in parser.feed(piece)), *parser.end(cut=cut)]


def in_pieces(text: str, sizes: Sequence[int]) -> list[str]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    return [*pieces, text[at:]]


@given(st.sampled_from(FORMS), calls, st.text(max_size=30), st.lists(st.integers(1, 9), max_size=40))
def test_what_a_form_writes_is_read_in_whatever_pieces_it_comes(
    form: CallFormat, made: list[tuple[str, dict[str, Any]]], said: str, sizes: list[int]
) -> None:
    made = made if form.between else made[:1]
    said = said.replace(form.trigger, "").replace("<think>", "")
    text = said + form.written([(name, json.dumps(arguments)) for name, arguments in made])
    if text.find(form.trigger) != len(said):
        return
    parts = parts_of(form, in_pieces(text, sizes), offered={name: {} for name, _ in made})
    assert [part for part in parts if isinstance(part, ParsedCall)] == [ParsedCall(*one) for one in made]
    assert "".join(part.delta for part in parts if isinstance(part, Text)) == said


@given(st.sampled_from(FORMS), calls, st.lists(st.integers(1, 9), max_size=40), st.booleans())
def test_calls_that_are_told_as_they_come_are_the_same_calls(
    form: CallFormat, made: list[tuple[str, dict[str, Any]]], sizes: list[int], ours: bool
) -> None:
    made = made if form.between else made[:1]
    text = form.written([(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in made])
    names = {name for name, _ in made[ours:]}  # the first is one of ours, which no client is told
    told = ToldCalls(form, names, None)
    parts = parts_of(form, in_pieces(text, sizes), offered={name: {} for name, _ in made}, told=told)
    whole = [part for part in parts if isinstance(part, ParsedCall)]
    assert whole == [ParsedCall(*one) for one in made]
    assert [one.id for one in whole] == told.ids
    for call in whole:
        pieces = [part.delta for part in parts if isinstance(part, CallDelta) and part.id == call.id]
        assert "".join(pieces) == (call.written if call.name in names else "")
        assert json.loads(call.written) == call.arguments


def test_a_call_whose_beginning_is_spelled_out_is_told_once_it_is_whole() -> None:
    call, mark = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>', 7
    for ids, pieces in (([1, 2], 0), ([1, mark, 2], 2)):
        parser = BoundParser(HERMES, {"look": {}}, told=ToldCalls(HERMES, {"look"}, mark))
        parts = [*parser.feed(call[:46], ids_to_bytes(ids)), *parser.feed(call[46:], ids_to_bytes([3])), *parser.end()]
        assert len([part for part in parts if isinstance(part, CallDelta)]) == pieces
        assert parts[-1] == ParsedCall("look", {"a": 1})


def test_of_a_call_that_was_cut_off_no_text_is_left() -> None:
    first = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    pieces = ["So. ", first, '\n<tool_call>\n{"name": "find", "arguments": {"a": "']
    parts = parts_of(HERMES, pieces, cut=True, told=ToldCalls(HERMES, {"look", "find"}, None))
    *said, kept, cut = parts
    assert [part.delta for part in said] == ["So. ", "{}", '{"a": "']
    assert (kept, kept.id, cut) == (ParsedCall("look", {}), said[1].id, CutCall())


@given(st.sampled_from([one for one in FORMS if one.between]), calls, st.data())
def test_the_whole_calls_before_a_cut_are_kept_and_the_cut_is_told(
    form: CallFormat, made: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    texts = [(name, json.dumps(arguments)) for name, arguments in made]
    ends = [len(form.written(texts[:size]).removesuffix(form.close)) for size in range(1, len(made) + 1)]
    cut = data.draw(st.integers(ends[0], ends[-1]))
    parts = parts_of(form, [form.written(texts)[:cut]], cut=True, offered={name: {} for name, _ in made})
    whole = sum(end <= cut for end in ends)
    assert parts[:whole] == [ParsedCall(*one) for one in made[:whole]]
    rest = form.written(texts)[ends[whole - 1] : cut]
    assert parts[whole:] == ([CutCall()] if rest.rstrip("\n") and not form.close.startswith(rest) else [])


def test_a_call_before_other_words_is_no_call_where_the_answer_is_cut_in_them() -> None:
    text = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call> is how'
    assert not [part for part in parts_of(HERMES, [text], cut=True) if isinstance(part, ParsedCall)]


@given(st.sampled_from(FORMS), calls, st.data())
def test_no_part_of_a_call_is_a_call(
    form: CallFormat, made: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    text = form.written([(name, json.dumps(arguments)) for name, arguments in made[:1]])
    cut = data.draw(st.integers(0, len(text.rstrip()) - 1))
    assert parsed_calls(form, text[:cut]) == [] or text[:cut].rstrip("\n") == text.rstrip("\n")


def test_what_looks_like_a_call_in_the_arguments_of_one_that_was_cut_off_is_none() -> None:
    text = '[TOOL_CALLS]look[ARGS]{"text": "so [TOOL_CALLS]look[ARGS]{}[TOOL_CALLS]look[ARGS] and'
    assert not [part for part in parts_of(MISTRAL, [text], cut=True) if isinstance(part, ParsedCall)]


def test_a_call_that_was_cut_off_is_no_part_of_the_answer() -> None:
    assert parts_of(HERMES, ["I look. ", '<tool_call>\n{"name": "lo'], cut=True) == [Text("I look. "), CutCall()]


@pytest.mark.parametrize(
    "text", ["Write <tool_call> first.", '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>']
)
def test_what_only_looks_like_a_call_is_text(text: str) -> None:
    assert "".join(part.delta for part in parts_of(HERMES, [text])) == text


@pytest.mark.parametrize("thinking", [False, True])
def test_a_thought_that_quotes_a_call_makes_none(thinking: bool) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    parser, parts = BoundParser(HERMES, {"look": {}}, thinking=thinking), list[Any]()
    for piece in ("" if thinking else "<think>", f"I write {call}, ", "so:</think>", call):
        parts += parser.feed(piece)
    said = [*parts, *parser.end()]
    assert "".join(part.delta for part in said if isinstance(part, Thought)) == f"I write {call}, so:"
    assert [part for part in said if not isinstance(part, Thought)] == [ParsedCall("look", {})]


LOOK = OfferedTool("look", "{}")


@pytest.mark.parametrize(
    ("sampling", "text", "read"),
    [
        (Sampling(schema="{}"), '{"a": 1}', [Text('{"a": 1}')]),
        (Sampling(), "hm</think>Yes.", [Thought("hm"), Text("Yes.")]),
        (
            Sampling(calls=ToolRules(call_form(PLAIN_CALLS), (LOOK,), required=True, thinking=True)),
            PLAIN_CALLS.written([("look", "{}")]),
            [ParsedCall("look", {})],
        ),
    ],
)
def test_what_is_bound_from_its_first_token_on_is_no_thought_though_the_template_opened_one(
    sampling: Sampling, text: str, read: list[Any]
) -> None:
    model: Any = SimpleNamespace(placement=SimpleNamespace(calls=PLAIN_CALLS), opens_thought=True)
    parser = parser_of(model, InferenceJob(1, "", b"", 0, 10, sampling))
    assert [*parser.feed(text), *parser.end()] == read


def test_a_thought_comes_before_a_call() -> None:
    text = '<think>hm</think><tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    assert parts_of(HERMES, [text]) == [Thought("hm"), ParsedCall("look", {})]


CODER = CallFormat(
    "hermes",
    "<tool_call>",
    "<tool_call>\n<function=",
    ">\n",
    "</function>\n</tool_call>",
    "\n<tool_call>\n<function=",
    style=ArgumentStyle("<parameter=", ">\n", "\n</parameter>\n", quote="", words=("True", "False", "None")),
)
GLM = CallFormat(
    "hermes",
    "<tool_call>",
    "<tool_call>",
    "",
    "</tool_call>",
    "<tool_call>",
    style=ArgumentStyle("<arg_key>", "</arg_key><arg_value>", "</arg_value>", quote=""),
)
GEMMA = CallFormat(
    "own",
    "<|tool_call>",
    "<|tool_call>call:",
    "{",
    "}<tool_call|>",
    "<|tool_call>call:",
    style=ArgumentStyle(equals=":", between=",", quote='<|"|>'),
)
PYTHON = CallFormat(
    "own",
    "[calls]",
    "[calls][",
    "(",
    ")",
    ", ",
    "]",
    style=ArgumentStyle(equals="=", between=", ", words=("True", "False", "None")),
)
SCHEMA = {
    "properties": {
        "path": {"type": "string"},
        "kind": {"enum": ["1", "two", None]},
        "most": {"type": ["integer", "null"]},
        "deep": {"type": "boolean"},
        "more": {"type": "object"},
    }
}
given_by_schema = st.fixed_dictionaries(
    {},
    optional={
        "path": st.text(max_size=20).filter(lambda text: not any(sign in text for sign in ("<", "|"))),
        "kind": st.sampled_from(["1", "two", None]),
        "most": st.none() | st.integers(),
        "deep": st.booleans(),
        "more": st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=2),
    },
)


@given(
    st.sampled_from([CODER, GLM, GEMMA, PYTHON]),
    st.lists(st.tuples(st.sampled_from(["look", "find"]), given_by_schema), min_size=1, max_size=3),
)
def test_arguments_that_are_written_one_by_one_are_read_with_their_types(
    form: CallFormat, made: list[tuple[str, dict[str, Any]]]
) -> None:
    text = form.written([(name, json.dumps(arguments)) for name, arguments in made])
    schemas = {"look": SCHEMA, "find": SCHEMA}
    assert parsed_calls(form, text, schemas) == [ParsedCall(*one) for one in made]
    assert parts_of(form, list(text), offered=schemas) == [ParsedCall(*one) for one in made]
