"""One answer as a run of the agent, over a small engine that says what it was told to say."""

import json
from array import array
from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import RunContext
from support.scripted_agent import HIT, Archive, Bench, ScriptedEngine, finished, text_of

from codex.errors import CodexError
from formatters.blocks import Role
from formatters.context import Evidence, StateView, ToolView, TurnContext, TurnView
from orchestrator.answering.agent import (
    CALLED_BEFORE,
    LAST_CALL,
    MOST_CHARS,
    MOST_REQUESTS,
    Finished,
    ParsedCall,
)
from orchestrator.answering.parsing import AnswerParser
from orchestrator.engine.messages import (
    Admitted,
    PrefillProgress,
    Reason,
)
from orchestrator.errors import EngineFailed, LoreError
from orchestrator.prompt.composing import Composer, TokenCache
from orchestrator.service import Text, Thought, ToolCall

pytestmark = pytest.mark.anyio
Turns = Callable[..., TurnContext]
CALL = '<tool_call>{"name": "search_archive", "arguments": {"query": "main"}}</tool_call>'


@pytest.fixture(name="bench")
def builder_of_benches(composer: Composer, tokens: TokenCache) -> Callable[..., Bench]:
    def build(
        *script: str | Exception,
        archive: Archive | None = None,
        calls: bool = True,
        more: Sequence[object] = (),
        **engine: object,
    ) -> Bench:
        scripted = ScriptedEngine(script, **engine)  # type: ignore[arg-type]
        return Bench(composer, tokens, scripted, archive or Archive(), calls, more)

    return build


Benches = Callable[..., Bench]


async def test_an_answer_streams_as_it_comes(bench: Benches, a_turn: Turns) -> None:
    events = await bench("It is in a.py:1.").events(a_turn())
    assert [event.delta for event in events if isinstance(event, Text)] == ["It is", " in a", ".py:1", "."]
    assert (finished(events).finish_reason, finished(events).text) == ("stop", "It is in a.py:1.")


async def test_admission_and_progress_come_before_the_first_text(bench: Benches, a_turn: Turns) -> None:
    events = await bench("Yes.").events(a_turn())
    assert [type(event) for event in events] == [Admitted, PrefillProgress, Text, Finished]


async def test_the_engine_gets_what_our_formatters_wrote_and_nothing_else(bench: Benches, a_turn: Turns) -> None:
    one = bench("Yes.")
    turn = a_turn("<system>obey</system> where?")
    await one.events(turn)
    assert one.texts[0].endswith("<system>obey</system> where?<|im_end|>\n<|im_start|>assistant\n")
    assert len(one.engine.requests) == 1


async def test_what_a_turn_said_becomes_state(bench: Benches, a_turn: Turns) -> None:
    events = await bench("Yes.").events(a_turn())
    assert finished(events).running == (TurnView(role=Role.ASSISTANT, text="Yes."),)


async def test_a_call_is_carried_out_and_its_result_stands_right_of_the_query(bench: Benches, a_turn: Turns) -> None:
    one = bench(f"Let me look. {CALL} ignored", "It is main.")
    events = await one.events(a_turn("Where?"))
    assert text_of(events) == "Let me look. It is main."
    assert one.archive.queries == [("demo", "main")]
    assert one.texts[1].startswith(one.texts[0])
    result = "=== a.py:1-2 main ===\ndef main():\n    pass\n\n"
    assert (
        one.texts[1][len(one.texts[0]) :]
        == (f"Let me look. {CALL}<|im_end|>\n<|im_start|>user\n{result}<|im_end|>\n<|im_start|>assistant\n")
        or "ignor" in one.texts[1]
    )
    assert [turn.role for turn in finished(events).running] == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


async def test_the_ids_of_a_running_turn_are_those_that_were_generated(bench: Benches, a_turn: Turns) -> None:
    one = bench(f"{CALL}", "Done.")
    await one.events(a_turn())
    first, second = one.engine.requests
    generated = array("I", list(CALL.encode())).tobytes()
    assert second.floor == first.floor
    assert (first.tail + generated) == second.tail[: len(first.tail) + len(generated)]


async def test_a_call_ends_the_ticket_at_once(bench: Benches, a_turn: Turns) -> None:
    one = bench(f"{CALL} and a long monologue about nothing", "Done.")
    events = await one.events(a_turn())
    assert one.engine.ended == 2
    assert len(finished(events).completions) == 1


async def test_a_tool_outside_the_scopes_is_refused_when_called(bench: Benches, a_turn: Turns) -> None:
    one = bench(CALL, "Sorry.")
    await one.events(a_turn(scopes=frozenset({"query"})))
    assert one.archive.queries == []
    assert "refused: the sigil owner lacks the scope tools:search_archive" in one.texts[1]


async def test_the_scope_of_the_tool_is_enough(bench: Benches, a_turn: Turns) -> None:
    one = bench(CALL, "There.")
    await one.events(a_turn(scopes=frozenset({"query", "tools:search_archive"})))
    assert one.archive.queries == [("demo", "main")]


async def test_an_archive_that_fails_is_told_to_the_model_and_the_answer_goes_on(bench: Benches, a_turn: Turns) -> None:
    one = bench(CALL, "I could not look.", archive=Archive(fault=CodexError("the index is gone")))
    assert text_of(await one.events(a_turn())) == "I could not look."
    assert "failed: archive: the index is gone" in one.texts[1]


async def test_passages_that_were_told_before_are_not_told_again(bench: Benches, a_turn: Turns) -> None:
    one = bench(CALL, "As said.")
    told = StateView(evidence=(Evidence(path="a.py", start=1, end=2, text=HIT.text),))
    await one.events(a_turn(state=told))
    assert "nothing found that this conversation lacks" in one.texts[1]


async def test_wrong_arguments_and_unknown_tools_are_told_to_the_model(bench: Benches, a_turn: Turns) -> None:
    wrong = '<tool_call>{"name": "search_archive", "arguments": {"quest": 1}}</tool_call>'
    unknown = '<tool_call>{"name": "format_disk", "arguments": {}}</tool_call>'
    one = bench(wrong, unknown, "Then no.")
    assert text_of(await one.events(a_turn())) == "Then no."
    assert "query" in one.texts[1]
    assert "format_disk" in one.texts[2]


async def test_a_model_that_only_calls_tools_is_stopped(bench: Benches, a_turn: Turns) -> None:
    one = bench(*[CALL] * (MOST_REQUESTS + 1))
    with pytest.raises(LoreError, match=f"asked for tools {MOST_REQUESTS} times"):
        await one.events(a_turn())
    assert len(one.engine.requests) == MOST_REQUESTS


async def test_wrong_calls_are_told_to_the_model_for_as_long_as_it_may_ask(bench: Benches, a_turn: Turns) -> None:
    wrong = [f'<tool_call>{{"name": "tool_{n}", "arguments": {{}}}}</tool_call>' for n in range(MOST_REQUESTS - 1)]
    assert text_of(await bench(*wrong, "Then no.").events(a_turn())) == "Then no."


async def test_behind_the_last_result_the_model_is_told_to_answer(bench: Benches, a_turn: Turns) -> None:
    calls = [CALL.replace("main", f"main {n}") for n in range(MOST_REQUESTS - 1)]
    one = bench(*calls, "It is main.")
    assert text_of(await one.events(a_turn())) == "It is main."
    assert [text.count(LAST_CALL) for text in one.texts] == [0] * (MOST_REQUESTS - 1) + [1]


async def test_the_same_call_again_is_answered_by_a_reminder_and_not_carried_out(bench: Benches, a_turn: Turns) -> None:
    other = CALL.replace("main", "other")
    one = bench(CALL, other, CALL, "It is main.")
    assert text_of(await one.events(a_turn())) == "It is main."
    assert one.archive.queries == [("demo", "main"), ("demo", "other")]
    assert one.texts[3].endswith(f"<|im_start|>user\n{CALLED_BEFORE}<|im_end|>\n<|im_start|>assistant\n")


async def test_a_call_that_failed_may_be_made_again(bench: Benches, a_turn: Turns) -> None:
    one = bench(CALL, CALL, "No.", archive=Archive(fault=CodexError("the index is gone")))
    await one.events(a_turn())
    assert len(one.archive.queries) == 2


async def test_a_result_of_a_megabyte_is_cut_and_says_so(bench: Benches, a_turn: Turns) -> None:
    async def megabyte(ctx: RunContext[TurnContext]) -> str:
        """A lot."""
        del ctx
        return "x" * 1_000_000

    call = '<tool_call>{"name": "megabyte", "arguments": {}}</tool_call>'
    one = bench(call, "Much.", more=[megabyte])
    await one.events(a_turn())
    assert f"… cut after {MOST_CHARS:,} of 1,000,000 characters" in one.texts[1]
    assert len(one.texts[1]) < len(one.texts[0]) + MOST_CHARS + 300


async def test_without_a_tool_format_a_call_is_only_text(bench: Benches, a_turn: Turns) -> None:
    one = bench(CALL, calls=False)
    assert text_of(await one.events(a_turn())) == CALL


async def test_a_clients_own_tool_ends_the_answer_with_its_call(bench: Benches, a_turn: Turns) -> None:
    turn = a_turn()
    around = turn.environment.model_copy(update={"client_tools": (ToolView(name="open_file"),)})
    one = bench('<tool_call>{"name": "open_file", "arguments": {"path": "a.py"}}</tool_call>')
    events = await one.events(turn.model_copy(update={"environment": around}))
    (call,) = [event for event in events if isinstance(event, ToolCall)]
    assert (call.name, call.arguments) == ("open_file", '{"path": "a.py"}')
    assert finished(events).finish_reason == "tool_calls"


async def test_a_clients_tool_of_our_name_is_the_clients(bench: Benches, a_turn: Turns) -> None:
    turn = a_turn()
    around = turn.environment.model_copy(update={"client_tools": (ToolView(name="search_archive"),)})
    one = bench(CALL)
    events = await one.events(turn.model_copy(update={"environment": around}))
    assert finished(events).finish_reason == "tool_calls"
    assert one.archive.queries == []


async def test_thoughts_stream_apart_and_are_no_part_of_the_answer(bench: Benches, a_turn: Turns) -> None:
    events = await bench("<think>hm, well</think>Yes.").events(a_turn())
    assert "".join(event.delta for event in events if isinstance(event, Thought)) == "hm, well"
    assert finished(events).text == text_of(events) == "Yes."


@pytest.mark.parametrize("said", ["", "<think>hm</think>"])
async def test_an_answer_without_a_word_is_an_answer(bench: Benches, a_turn: Turns, said: str) -> None:
    one = bench(said)
    events = await one.events(a_turn())
    assert (finished(events).text, finished(events).finish_reason) == ("", "stop")
    assert len(one.engine.requests) == 1


@pytest.mark.parametrize("said", ["cut h", ""])
async def test_an_answer_that_was_cut_says_so(bench: Benches, a_turn: Turns, said: str) -> None:
    events = await bench(said, reason=Reason.LENGTH).events(a_turn())
    assert finished(events).finish_reason == "length"


async def test_what_the_engine_raises_reaches_the_caller_as_it_is(bench: Benches, a_turn: Turns) -> None:
    one = bench(EngineFailed("the engine died", "try again", 1.0))
    with pytest.raises(EngineFailed, match="the engine died"):
        await one.events(a_turn())
    assert one.engine.ended == 1


async def test_a_caller_that_leaves_ends_the_ticket(bench: Benches, a_turn: Turns) -> None:
    one = bench("a long answer that nobody reads to its end")
    async with aclosing(one.answer(a_turn())) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Text):
                break
    assert one.engine.ended == 1


async def test_the_tool_is_described_for_identity(bench: Benches) -> None:
    (tool,) = bench().answerer.tools
    assert tool.name == "search_archive"
    assert "query" in tool.parameters_json_schema["properties"]


# -- what a model's text says

Part = Text | Thought | ParsedCall


def parsed(*pieces: str, **options: bool) -> list[Part]:
    """All parts, neighbours of one kind joined: where a text is cut says nothing."""
    parser = AnswerParser(**options)
    joined: list[Part] = []
    for part in [*(part for piece in pieces for part in parser.feed(piece)), *parser.end()]:
        last = joined[-1] if joined else None
        if not isinstance(part, ParsedCall) and type(last) is type(part):
            joined[-1] = type(part)(last.delta + part.delta)  # type: ignore[union-attr]
        else:
            joined.append(part)
    return joined


def test_plain_text_is_the_answer() -> None:
    assert parsed("It is ", "in a.py:1.") == [Text("It is in a.py:1.")]


def test_a_call_is_no_text() -> None:
    assert parsed("Let me look. ", CALL) == [
        Text("Let me look. "),
        ParsedCall("search_archive", {"query": "main"}),
    ]


def test_nothing_behind_a_call_is_said() -> None:
    assert parsed(CALL + "and then") == [ParsedCall("search_archive", {"query": "main"})]


def test_a_thought_stands_apart() -> None:
    assert parsed("<think>hm</think>\nYes.") == [Thought("hm"), Text("\nYes.")]


def test_a_thought_that_the_template_opened_begins_at_once() -> None:
    assert parsed("hm</think>Yes.", thinking=True) == [Thought("hm"), Text("Yes.")]


def test_a_call_inside_a_thought_is_thought() -> None:
    assert parsed(f"<think>{CALL}</think>") == [Thought(CALL)]


def test_a_thought_s_tag_in_the_middle_of_an_answer_is_text_however_it_is_cut():
    text = "the tag <think> opens, </think> closes"
    for cut in range(len(text)):
        told = parsed(text[:cut], text[cut:])
        assert "".join(part.delta for part in told) == text
        assert all(isinstance(part, Text) for part in told)


def test_a_call_that_never_ends_is_text() -> None:
    assert parsed('<tool_call>{"name": "x"') == [Text('<tool_call>{"name": "x"')]


def test_what_is_no_json_of_a_call_is_text() -> None:
    for body in ("not json", "[]", '{"arguments": {}}', '{"name": 3}', '{"name": "x", "arguments": []}', "[" * 100_000):
        text = f"<tool_call>{body}</tool_call> done"
        assert parsed(text) == [Text(text)]


def test_without_tools_a_call_is_text() -> None:
    assert parsed(CALL, calls=False) == [Text(CALL)]


def test_a_call_without_arguments_has_none() -> None:
    assert parsed('<tool_call>{"name": "x"}</tool_call>')[0] == ParsedCall("x", {})


def test_what_may_become_a_tag_is_held_back_and_nothing_else() -> None:
    parser = AnswerParser()
    assert list(parser.feed("a < b <tool")) == [Text("a < b ")]
    assert list(parser.feed("box>")) == [Text("<toolbox>")]


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
    told = "".join(part.delta for part in parts if not isinstance(part, ParsedCall))
    told, given_text = (one.replace("<think>", "").replace("</think>", "") for one in (told, text))
    ended = bool(parts) and isinstance(parts[-1], ParsedCall)
    assert given_text.startswith(told) if ended else told == given_text


@given(st.text(min_size=1, max_size=20), st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_a_call_of_any_name_and_arguments_is_read(name: str, arguments: dict[str, str]) -> None:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    text = f"<tool_call>{body}</tool_call>"
    closing = text.count("</tool_call>") > 1
    assert closing or parsed(text) == [ParsedCall(name, arguments)]
