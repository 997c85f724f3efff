"""What a model's text says to whom, however it is cut into pieces."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.answering.answer_text import AnswerParser, ParsedCall, ParsedPart, ParsedText, ParsedThought

CALL = '<tool_call>{"name": "search_archive", "arguments": {"query": "main"}}</tool_call>'


def parsed(*pieces: str, **options: bool) -> list[ParsedPart]:
    """All parts, neighbours of one kind joined: where a text is cut says nothing."""
    parser = AnswerParser(**options)
    joined: list[ParsedPart] = []
    for part in [*(part for piece in pieces for part in parser.feed(piece)), *parser.end()]:
        last = joined[-1] if joined else None
        if not isinstance(part, ParsedCall) and type(last) is type(part):
            joined[-1] = type(part)(last.text + part.text)  # type: ignore[union-attr]
        else:
            joined.append(part)
    return joined


def test_plain_text_is_the_answer() -> None:
    assert parsed("It is ", "in a.py:1.") == [ParsedText("It is in a.py:1.")]


def test_a_call_is_no_text() -> None:
    assert parsed("Let me look. ", CALL) == [
        ParsedText("Let me look. "),
        ParsedCall("search_archive", {"query": "main"}, CALL),
    ]


def test_nothing_behind_a_call_is_said() -> None:
    assert parsed(CALL + "and then") == [ParsedCall("search_archive", {"query": "main"}, CALL)]


def test_a_thought_stands_apart() -> None:
    assert parsed("<think>hm</think>\nYes.") == [ParsedThought("hm"), ParsedText("\nYes.")]


def test_a_thought_that_the_template_opened_begins_at_once() -> None:
    assert parsed("hm</think>Yes.", thinking=True) == [ParsedThought("hm"), ParsedText("Yes.")]


def test_a_call_inside_a_thought_is_thought() -> None:
    assert parsed(f"<think>{CALL}</think>") == [ParsedThought(CALL)]


def test_a_thought_s_tag_in_the_middle_of_an_answer_is_text_however_it_is_cut():
    text = "the tag <think> opens, </think> closes"
    for cut in range(len(text)):
        told = parsed(text[:cut], text[cut:])
        assert "".join(part.text for part in told) == text
        assert all(isinstance(part, ParsedText) for part in told)


def test_a_call_that_never_ends_is_text() -> None:
    assert parsed('<tool_call>{"name": "x"') == [ParsedText('<tool_call>{"name": "x"')]


def test_what_is_no_json_of_a_call_is_text() -> None:
    for body in ("not json", "[]", '{"arguments": {}}', '{"name": 3}', '{"name": "x", "arguments": []}', "[" * 100_000):
        text = f"<tool_call>{body}</tool_call> done"
        assert parsed(text) == [ParsedText(text)]


def test_without_tools_a_call_is_text() -> None:
    assert parsed(CALL, calls=False) == [ParsedText(CALL)]


def test_a_call_without_arguments_has_none() -> None:
    assert parsed('<tool_call>{"name": "x"}</tool_call>')[0] == ParsedCall(
        "x", {}, '<tool_call>{"name": "x"}</tool_call>'
    )


def test_what_may_become_a_tag_is_held_back_and_nothing_else() -> None:
    parser = AnswerParser()
    assert list(parser.feed("a < b <tool")) == [ParsedText("a < b ")]
    assert list(parser.feed("box>")) == [ParsedText("<toolbox>")]


@given(st.text('<tool_call>think/ab\n{}"', max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_no_cut_changes_what_is_said(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert parsed(*pieces) == parsed(text)


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "x"}', "a", "<", "\n"]),
        max_size=12,
    ),
    st.integers(1, 9),
)
def test_no_text_is_lost(words: list[str], size: int) -> None:
    text = "".join(words)
    parts = parsed(*(text[at : at + size] for at in range(0, len(text), size)))
    told = "".join(part.raw if isinstance(part, ParsedCall) else part.text for part in parts)
    told, given_text = (one.replace("<think>", "").replace("</think>", "") for one in (told, text))
    ended = bool(parts) and isinstance(parts[-1], ParsedCall)
    assert given_text.startswith(told) if ended else told == given_text


@given(st.text(min_size=1, max_size=20), st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_a_call_of_any_name_and_arguments_is_read(name: str, arguments: dict[str, str]) -> None:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    text = f"<tool_call>{body}</tool_call>"
    closing = text.count("</tool_call>") > 1
    assert closing or parsed(text) == [ParsedCall(name, arguments, text)]
