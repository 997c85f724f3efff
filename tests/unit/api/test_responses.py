"""OpenAI's responses: its own client reads every event, and a response goes on where the last one ended."""

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from support.small_reports import lore_of

from orchestrator.api.responses import ResponseWriter
from orchestrator.errors import EngineFailed
from orchestrator.service import Answered, Ask, CallDelta, Message, Principal, Text, Thought, ToolCall, ToolChoice
from orchestrator.wire.responses import ResponseBody

ASK = Ask(Principal(1, 1, 1), (Message("user", "q"),))
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)

words = st.lists(
    st.builds(Text, st.text(min_size=1)) | st.builds(Thought, st.text(min_size=1)),
    max_size=8,
)
called_in = st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3), max_size=3)  # pieces of arguments


def create(client, given_input="hello there", **options):
    return client.responses.create(model=options.pop("model", "lore"), input=given_input, **options)


def allowed(mode, *names):
    return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": name} for name in names]}


def answered(reason):
    return Answered(reason, lore_of(ASK), prompt_tokens=100, cached_tokens=90, completion_tokens=5)


def read(events, body):
    """The events as the official client's own types read them, strictly."""
    writer = ResponseWriter("resp_1", body)
    written = [one for event in events for one in writer.written(event)]
    return [EVENT.validate_python(one.model_dump(mode="json", by_alias=True)) for one in written]


# -- the events, for whatever comes


@given(words, called_in, st.booleans(), st.sampled_from(["stop", "length"]))
def test_the_events_add_up_to_the_response_in_the_order_of_the_protocol(said, called, told, reason):
    parts = [CallDelta(f"call-{at}", "look", piece) for at, each in enumerate(called) for piece in each if told]
    calls = [ToolCall(f"call-{at}", "look", "".join(each)) for at, each in enumerate(called)]
    events = read([*said, *parts, *calls, answered(reason)], ResponseBody(input="q", tools=(TOOL,)))
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert [one.type for one in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]
    assert last.type == ("response.incomplete" if reason == "length" else "response.completed")
    done = [one for one in events if one.type == "response.output_item.done"]
    assert [one.output_index for one in done] == list(range(len(done)))
    assert [one.item for one in done] == last.response.output
    for kind, wanted in (("output_text", Text), ("reasoning_text", Thought)):
        pieces = "".join(one.delta for one in events if one.type == f"response.{kind}.delta")
        assert pieces == "".join(event.delta for event in said if isinstance(event, wanted))
        whole = "".join(one.text for one in events if one.type == f"response.{kind}.done")
        assert whole == pieces
    made = [(one.call_id, one.arguments) for one in last.response.output if one.type == "function_call"]
    assert made == [(one.id, one.arguments) for one in calls]
    deltas = [one.delta for one in events if one.type == "response.function_call_arguments.delta"]
    assert deltas == ([one.delta for one in parts] if told else [one.arguments for one in calls])


def test_a_call_that_is_cut_off_is_incomplete_behind_the_whole_ones():
    pieces = [CallDelta("call-0", "look", "{}"), CallDelta("call-1", "look", '{"a": ')]
    events = [*pieces, ToolCall("call-0", "look", "{}"), answered("length")]
    output = read(events, ResponseBody(input="q", tools=(TOOL,)))[-1].response.output
    assert [(one.call_id, one.status) for one in output] == [("call-0", "completed"), ("call-1", "incomplete")]


def test_the_first_call_that_is_cut_off_is_all_that_there_is():
    events = read([CallDelta("call-0", "look", '{"a": '), answered("length")], ResponseBody(input="q", tools=(TOOL,)))
    added = [one.output_index for one in events if one.type == "response.output_item.added"]
    assert added == [0]
    assert [(one.type, one.status) for one in events[-1].response.output] == [("function_call", "incomplete")]


@given(words)
def test_each_item_opens_before_its_pieces_and_ends_behind_them(said):
    opened: list[str] = []
    for one in read([*said, answered("stop")], ResponseBody(input="q")):
        if one.type == "response.output_item.added":
            assert opened == []
            opened = [one.item.id]
        elif one.type == "response.output_item.done":
            assert opened == [one.item.id]
            opened = []
        elif hasattr(one, "item_id"):
            assert opened == [one.item_id]


def test_an_answer_of_nothing_is_an_empty_message():
    assert read([answered("stop")], ResponseBody(input="q"))[-1].response.output_text == ""


# -- the official client


def test_a_response_has_the_text_the_usage_and_the_lore_object(client):
    response = create(client, instructions="be short", metadata={"k": "v"}, temperature=0.5)
    assert (response.output_text, response.status, response.object) == ("hello there ", "completed", "response")
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (100, 5, 105)
    assert response.usage.input_tokens_details.cached_tokens == 90
    assert (response.instructions, response.metadata, response.temperature) == ("be short", {"k": "v"}, 0.5)
    assert response.lore["strategy"]["name"] == "CAG"
    assert Response.model_validate(response.model_dump())


def test_a_stream_ends_with_the_whole_response(client):
    with client.responses.stream(model="lore", input="one two", tools=[TOOL]) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert said == final.output_text == "one two "
    assert final.usage.total_tokens == 105


def test_a_response_that_is_cut_says_so(client):
    response = create(client, "long")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output[0].status == "incomplete"


def test_a_call_of_a_tool_and_a_thought_are_items(client, lorekeep):
    response = create(client, "call", tools=[TOOL])
    (item,) = response.output
    assert (item.type, item.name, item.call_id, item.arguments) == (
        *("function_call", "search_archive", "call-1"),
        '{"query": "x"}',
    )
    assert lorekeep.service.asked[0].tools[0].name == "look"
    assert [one.type for one in create(client, "think").output] == ["reasoning", "message"]


def test_the_tools_that_may_be_called_are_named(client, lorekeep):
    for choice in (allowed("auto", "look"), allowed("required", "look"), {"type": "function", "name": "look"}):
        response = create(client, "call", tools=[TOOL], tool_choice=choice)
        assert response.tool_choice.to_dict() == choice
    assert [ask.tool_choice for ask in lorekeep.service.asked] == [
        ToolChoice("auto", ("look",)),
        *[ToolChoice("required", ("look",))] * 2,
    ]


def test_a_whole_conversation_reaches_the_ask_in_the_words_of_chat(client, lorekeep):
    items = [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 42."}]},
        {"role": "user", "content": "sure?"},
    ]
    response = create(client, items, instructions="in English")
    told = [(one.role, one.content) for one in lorekeep.service.asked[0].messages]
    assert told == [
        ("system", "in English"),
        ("system", "be short"),
        ("user", "one\ntwo"),
        ("assistant", ""),
        ("tool", "42"),
        ("assistant", "It is 42."),
        ("user", "sure?"),
    ]
    assert lorekeep.service.asked[0].messages[3].tool_calls[0].name == "look"
    assert "not stored" in response.lore["notices"][0]


def test_a_schema_and_what_else_the_client_wants_reach_the_ask(client, lorekeep):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    more = {"max_output_tokens": 9, "reasoning": {"effort": "none"}, "include": ["message.output_text.logprobs"]}
    response = create(client, text=text, truncation="auto", **more)
    assert response.to_dict()["text"] == text
    assert create(client).to_dict()["text"] == {"format": {"type": "text"}}
    ask = lorekeep.service.asked[0]
    assert (ask.schema, ask.max_tokens, ask.think, ask.logprobs) == (schema, 9, False, 0)
    assert ask.notices == ("ignored, because it means nothing here: truncation",)


# -- one after the other


def test_a_response_goes_on_in_the_session_of_the_one_before(client, lorekeep):
    first = create(client, "one")
    second = create(client, "two", previous_response_id=first.id, instructions="new ones")
    third = create(client, [{"role": "user", "content": "three"}], previous_response_id=second.id)
    session = first.id.rpartition(".")[0]
    assert [first.id, second.id, third.id] == [f"{session}.{number}" for number in (1, 2, 3)]
    assert [ask.session for ask in lorekeep.service.asked] == [session] * 3
    assert lorekeep.service.records.talks == {session: ["one", "two", "three"]}
    assert third.previous_response_id == second.id


def test_results_of_calls_go_on_as_one_message_does(client, lorekeep):
    first = create(client, "call", tools=[TOOL])
    results = [{"type": "function_call_output", "call_id": one, "output": "42"} for one in ("c1", "c2")]
    second = create(client, results, previous_response_id=first.id, tools=[TOOL])
    assert second.id == f"{first.id.rpartition('.')[0]}.2"
    ask = lorekeep.service.asked[1]
    assert [(one.role, one.tool_call_id, one.content) for one in ask.messages] == [
        ("tool", "c1", "42"),
        ("tool", "c2", "42"),
    ]
    with pytest.raises(openai.BadRequestError, match="one message or results of calls"):
        create(client, [*results, {"role": "user", "content": "and?"}], previous_response_id=second.id)


def test_a_response_tells_which_program_asked_as_chat_does(client, lorekeep):
    create(client)
    client.chat.completions.create(model="lore", messages=[{"role": "user", "content": "a"}])
    assert {ask.agent for ask in lorekeep.service.asked} == {"OpenAI/Python"}


def test_a_response_that_its_session_has_gone_on_from_is_refused_with_the_last_one(client):
    first = create(client, "one")
    second = create(client, "two", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, "three", previous_response_id=first.id)
    assert refused.value.code == "previous_response_not_found"
    assert second.id in refused.value.body["hint"]


def test_two_responses_at_once_do_not_go_on_from_the_same_one(client, lorekeep):
    first = create(client, "one")
    second = create(client, "two", previous_response_id=first.id)
    with create(client, "forever", previous_response_id=second.id, stream=True) as stream:
        assert next(iter(stream)).response.id.endswith(".3")
        lorekeep.service.records.talks[second.id.rpartition(".")[0]].pop()  # a turn is kept at its end
        with pytest.raises(openai.BadRequestError, match="another response goes on from") as refused:
            create(client, "three", previous_response_id=second.id)
    assert refused.value.code == "previous_response_not_found"


def test_what_is_not_stored_has_no_session_and_cannot_be_gone_on_from(client, lorekeep):
    response = create(client, store=False)
    private = create(client, extra_body={"lore": {"record": False}})
    assert [ask.session for ask in lorekeep.service.asked] == [None, None]
    for unknown in (response.id, private.id, "resp_none.1", ".1", "resp_x.²", f"resp_x.{'1' * 5000}"):
        with pytest.raises(openai.BadRequestError, match="no response") as refused:
            create(client, previous_response_id=unknown)
        assert refused.value.code == "previous_response_not_found"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"background": True}, "background"),
        ({"conversation": "c1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools: one of type web_search"),
        ({"tools": [{"type": "function", "name": "a\nb", "parameters": {}, "strict": True}]}, "tools: a function"),
        ({"tools": [TOOL] * 129}, "tools: too many: 129 of at most 128"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp", "server_label": "a"}}, "tool_choice: neither auto"),
        ({"tools": [TOOL], "tool_choice": allowed("auto", "shut")}, "tool_choice: the tool shut is not offered"),
        ({"given_input": [{"type": "item_reference", "id": "x"}]}, "input: an item of type item_reference"),
        ({"given_input": [{"role": "wizard", "content": "x"}]}, "input: no message has the role"),
        (
            {"given_input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "messages: a part of type input_image",
        ),
        ({"previous_response_id": "x.1", "store": False}, "previous_response_id"),
        ({"previous_response_id": "x.1", "extra_body": {"lore": {"record": False}}}, "previous_response_id: with it"),
        ({"given_input": [{"type": "reasoning"}]}, "input: holds thoughts alone"),
        ({"extra_body": {"lore": {"session": "s"}}}, "lore: a response has a session of its own"),
    ],
)
def test_what_is_not_offered_is_refused_by_its_name(client, given, named):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, **given)
    assert refused.value.body["message"].startswith(named)


def test_a_failure_before_the_first_event_has_its_status_and_a_later_one_is_the_last_event(client):
    with pytest.raises(openai.RateLimitError):
        create(client, "full", stream=True)
    *_, last = create(client, "one break two", stream=True)
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert (last.response.error.code, last.response.error.type) == ("server_error", EngineFailed.code)
    assert "the engine died" in last.response.error.message


def test_a_misspelt_codex_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as refused:
        create(client, model="lore/dmo")
    assert refused.value.code == "model_not_found"
