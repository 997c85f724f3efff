"""A client's tools on the real engine: a model of noise makes valid calls by constraint alone, and results come back."""

import json
from dataclasses import dataclass
from typing import Literal

import httpx2
import openai
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import PrepareOutputTools, PrepareTools
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.house import blocks, codebase, living, reply
from support.openai_client import free_port, openai_client, tcp_client, tcp_config

COLOURS = ["red", "green", "blue"]
PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paints a wall.",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"enum": COLOURS}, "coats": {"enum": [1, 2, 3]}},
            "required": ["colour", "coats"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"at": {"enum": ["wall", "door"]}},
            "required": ["at"],
            "additionalProperties": False,
        },
    },
}
WRAPPING = 40  # tokens that a follow-up may compute beside its results'


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def house(models, port):
    window = {"LORE_MODEL__CONTEXT": "2560"}  # a prompt of all of it is computed in seconds
    with living(models, tcp_config(port), model="builtin:noise-s", environment=window) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


@pytest.fixture(params=["Unix socket", "TCP"])
def anywhere(request, house, port):
    """OpenAI's client on either way to the daemon."""
    with tcp_client(port) if request.param == "TCP" else openai_client(house.socket) as client:
        yield client


def user(text):
    return {"role": "user", "content": text}


def create(client, messages, **options):
    given = {"model": "lore/vaults", "max_tokens": 200, "tools": [PAINT, LOOK], "temperature": 0, **options}
    return client.chat.completions.create(messages=messages, **given)


def checked(calls):
    """Each fits its tool's schema."""
    for call in calls:
        given = json.loads(call.function.arguments)
        if call.function.name == "look":
            assert given["at"] in ("wall", "door")
        else:
            assert (call.function.name, set(given)) == ("paint", {"colour", "coats"})
            assert (given["colour"] in COLOURS, given["coats"] in (1, 2, 3)) == (True, True)
    return calls


def results(calls, text="Done: the wall is as you wanted it."):
    return [{"role": "tool", "tool_call_id": call.id, "content": f"{text} ({call.function.name})"} for call in calls]


RESPONDING = {"model": "lore/vaults", "tools": [{"type": "function", **PAINT["function"]}], "temperature": 0}


def test_a_response_that_called_goes_on_with_the_results_in_its_session(anywhere, house):
    first = anywhere.responses.create(input="Paint it.", tool_choice="required", max_output_tokens=200, **RESPONDING)
    (call,) = (item for item in first.output if item.type == "function_call")
    painted(call)
    done = [{"type": "function_call_output", "call_id": call.call_id, "output": "Done."}]
    second = anywhere.responses.create(input=done, previous_response_id=first.id, max_output_tokens=5, **RESPONDING)
    assert second.lore["prompt"]["computed"] <= tokens(house, "Done.") + WRAPPING
    third = anywhere.responses.create(
        input="and now?", previous_response_id=second.id, max_output_tokens=5, **RESPONDING
    )
    assert [one.rpartition(".")[2] for one in (first.id, second.id, third.id)] == ["1", "2", "3"]
    with pytest.raises(openai.BadRequestError, match="its session has 3 answers"):
        anywhere.responses.create(input=done, previous_response_id=first.id, **RESPONDING)


def painted(call):
    """Its arguments, which fit the schema."""
    given = json.loads(call.arguments)
    assert (call.name, set(given)) == ("paint", {"colour", "coats"})
    assert (given["colour"] in COLOURS, given["coats"] in (1, 2, 3)) == (True, True)
    return given


def test_a_response_streams_its_call_and_the_answer_to_the_result_of_a_whole_conversation(anywhere, house):
    talk = [user("Paint it.")]
    made, events = streamed(anywhere, input=talk, tool_choice="required", max_output_tokens=200)
    (call,) = (item for item in made.output if item.type == "function_call")
    deltas = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert json.loads("".join(event.delta for event in deltas)) == painted(call)
    talk += [*made.output, {"type": "function_call_output", "call_id": call.call_id, "output": "Done."}]
    answer, events = streamed(anywhere, input=talk, tool_choice="none", max_output_tokens=5)
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == answer.output_text
    assert answer.lore["prompt"]["computed"] <= tokens(house, "Done.") + WRAPPING
    assert answer.lore["session"] is None


def streamed(client, **asked):
    """The response, which may be cut off, and the events that it came in."""
    with client.responses.stream(store=False, **RESPONDING, **asked) as stream:
        events = list(stream)
    return events[-1].response, events


def test_a_required_call_is_valid_by_constraint_alone_and_its_result_costs_its_own_tokens(client, house):
    talk = [user("Paint it.")]
    first = create(client, talk, tool_choice="required")
    (choice,) = first.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    calls = checked(choice.message.tool_calls)
    talk += [choice.message, *results(calls)]
    second = create(client, talk, max_tokens=5)
    (text,) = (one["content"] for one in results(calls))
    assert second.lore["prompt"]["computed"] <= tokens(house, text) + WRAPPING
    assert second.lore["broke_at"] is None
    assert second.lore["prompt"]["tokens"] > first.lore["prompt"]["tokens"] + first.usage.completion_tokens
    third = create(client, [*talk, second.choices[0].message, user("And?")], max_tokens=5)
    assert blocks(third.lore)["environment"]["cached"] == blocks(third.lore)["environment"]["tokens"]


def tokens(house, text):
    return len(reply(house, "/tokenize", {"content": text})["tokens"])


def several_calls(client, talk, **options):
    """An answer of the model with two calls at least, and its seed: noise makes some within a few tries."""
    for seed in range(40):
        answer = create(client, talk, tool_choice="required", temperature=1.5, seed=seed, **options)
        (choice,) = answer.choices
        if len(choice.message.tool_calls or []) > 1 and choice.finish_reason == "tool_calls":
            return answer, seed
    raise AssertionError("no answer with several calls")


def test_results_of_several_calls_may_come_in_any_order(client):
    talk = [user("Look and paint.")]
    made = several_calls(client, talk)[0].choices[0].message
    came = results(checked(made.tool_calls))
    asked = [create(client, [*talk, made, *order], max_tokens=3) for order in (came, came[::-1])]
    assert asked[1].lore["prompt"]["computed"] <= 4, "it is the same prompt"
    assert [one.lore["broke_at"] for one in asked] == [None, None]


def test_one_call_at_most_where_the_client_wants_no_more(client):
    for seed in range(5):
        answer = create(
            client, [user("Paint.")], tool_choice="required", temperature=1.5, seed=seed, parallel_tool_calls=False
        )
        assert len(checked(answer.choices[0].message.tool_calls)) == 1


def test_a_named_tool_is_the_one_that_is_called_also_in_a_stream(anywhere):
    named = {"type": "function", "function": {"name": "look"}}
    deltas = [
        call
        for chunk in create(anywhere, [user("Paint.")], tool_choice=named, stream=True)
        for choice in chunk.choices
        for call in choice.delta.tool_calls or ()
    ]
    assert {call.function.name for call in deltas if call.id} == {"look"}
    for index in {call.index for call in deltas}:
        text = "".join(call.function.arguments for call in deltas if call.index == index)
        assert json.loads(text)["at"] in ("wall", "door")


def arguments_in(stream):
    """The pieces of each call's arguments, by the call's place, and why the answer ended."""
    pieces, reason = {}, None
    for chunk in stream:
        for choice in chunk.choices:
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or ():
                pieces.setdefault(call.index, []).append(call.function.arguments)
    return pieces, reason


def test_arguments_are_streamed_as_they_are_said_and_add_up_to_the_whole_call(anywhere):
    asked = {"tool_choice": "required", "temperature": 1.5, "seed": 3}
    whole = create(anywhere, [user("Paint.")], **asked).choices[0].message.tool_calls
    pieces, reason = arguments_in(create(anywhere, [user("Paint.")], stream=True, **asked))
    assert ["".join(each) for each in pieces.values()] == [call.function.arguments for call in checked(whole)]
    assert (reason, min(len(each) for each in pieces.values()) > 2) == ("tool_calls", True)


def test_a_stream_that_is_cut_within_a_call_says_so_behind_what_was_said_of_it(client):
    pieces, reason = arguments_in(
        create(client, [user("Paint it.")], tool_choice="required", max_tokens=20, stream=True)
    )
    assert (reason, len(pieces)) == ("length", 1)
    with pytest.raises(json.JSONDecodeError):
        json.loads("".join(pieces[0]))


def test_of_the_tools_that_are_allowed_one_is_called_and_the_others_change_no_prefix(client):
    create(client, [user("Paint.")], tool_choice="required")
    look = {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]}
    answer = create(client, [user("Paint.")], tool_choice={"type": "allowed_tools", "allowed_tools": look})
    assert {call.function.name for call in checked(answer.choices[0].message.tool_calls)} == {"look"}
    assert answer.lore["prompt"]["computed"] <= 4


def test_none_calls_nothing_and_changes_no_prefix(client):
    create(client, [user("Paint it.")], tool_choice="required")
    answer = create(client, [user("Paint it.")], tool_choice="none", max_tokens=30)
    assert answer.choices[0].message.tool_calls is None
    assert answer.lore["prompt"]["computed"] <= 4


def test_a_call_that_is_cut_off_is_left_out(client):
    answer = create(client, [user("Paint it.")], tool_choice="required", max_tokens=8)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.tool_calls, choice.message.content) == ("length", None, "")
    assert [one for one in answer.lore["notices"] if "ended within a call" in one]


def test_whole_calls_before_one_that_is_cut_off_are_answered_in_the_session(anywhere):
    talk, new = [user("Look and paint.")], {"extra_body": {"lore": {"session": ""}}}
    whole, seed = several_calls(anywhere, talk, **new)
    asked = {"tool_choice": "required", "temperature": 1.5, "seed": seed, **new}
    most = whole.usage.completion_tokens - 6  # within the last call
    chunks = list(create(anywhere, talk, max_tokens=most, stream=True, **asked))
    pieces, reason = arguments_in(chunks)
    made = whole.choices[0].message.tool_calls
    kept = ["".join(pieces[at]) for at in range(len(made) - 1)]
    assert (reason, kept) == ("length", [call.function.arguments for call in made[:-1]])
    (choice,) = create(anywhere, talk, max_tokens=most, **asked).choices
    assert (choice.finish_reason, [one.function.arguments for one in choice.message.tool_calls]) == ("length", kept)
    (lore,) = (chunk.lore for chunk in chunks if getattr(chunk, "lore", None))
    assert [one for one in lore["notices"] if "ended within a call" in one]
    deltas = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    ids = [call.id for call in deltas if call.id][: len(kept)]
    done = [{"role": "tool", "tool_call_id": one, "content": "Done."} for one in ids]
    second = create(anywhere, done, max_tokens=5, extra_body={"lore": {"session": lore["session"]}})
    assert (second.lore["session"], second.lore["broke_at"]) == (lore["session"], None)


def test_a_session_is_sent_the_results_alone(client):
    first = create(client, [user("Paint it.")], tool_choice="required", extra_body={"lore": {"session": ""}})
    session = {"lore": {"session": first.lore["session"]}}
    calls = first.choices[0].message.tool_calls
    with pytest.raises(openai.BadRequestError, match="belongs to no call of the answer before it"):
        create(client, [{"role": "tool", "tool_call_id": "call_other", "content": "x"}], extra_body=session)
    second = create(client, results(calls), max_tokens=5, extra_body=session)
    assert second.lore["prompt"]["computed"] <= WRAPPING * (1 + len(calls))
    third = create(client, [user("And?")], max_tokens=5, extra_body=session)
    assert third.lore["session"] == first.lore["session"]


def test_a_result_of_a_megabyte_is_cut_and_told(client):
    talk = [user("Paint it.")]
    made = create(client, talk, tool_choice="required", parallel_tool_calls=False).choices[0].message
    answer = create(client, [*talk, made, *results(made.tool_calls, "paint " * 170_000)], max_tokens=3)
    (told,) = [one for one in answer.lore["governor"]["actions"] if "the result of" in one]
    assert "of 1,020" in told
    assert answer.lore["prompt"]["tokens"] <= answer.lore["governor"]["budget_tokens"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tool_call_id": "call_other"}, "the result of the call call_other belongs to no call"),
        ({"content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "a part of type image_url cannot be read"),
    ],
)
def test_what_belongs_to_no_call_or_is_no_text_is_refused_by_name(client, changed, words):
    talk = [user("Paint it.")]
    made = create(client, talk, tool_choice="required", parallel_tool_calls=False).choices[0].message
    (result,) = results(made.tool_calls)
    with pytest.raises(openai.BadRequestError, match=words):
        create(client, [*talk, made, {**result, **changed}])


def test_a_loop_of_three_rounds(anywhere):
    talk = [user("Look, then say it.")]
    for _ in range(3):
        made = create(anywhere, talk, tool_choice="required").choices[0].message
        talk += [made, *results(checked(made.tool_calls))]
    last = create(anywhere, talk, tool_choice="none", max_tokens=5)
    assert last.choices[0].message.tool_calls is None
    assert last.lore["broke_at"] is None


@dataclass
class Painted:
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2]


async def first(ctx: RunContext[None], tools):
    return tools if ctx.run_step == 1 else []


async def later(ctx: RunContext[None], tools):
    return tools if ctx.run_step > 1 else []


@pytest.mark.anyio
async def test_a_loop_of_pydantic_ai(house):
    transport = httpx2.AsyncHTTPTransport(uds=str(house.socket), verify=False)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as http:
        client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)
        model = OpenAIChatModel("lore/vaults", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, output_type=Painted, capabilities=[PrepareTools(first), PrepareOutputTools(later)])

        @agent.tool_plain
        def look(at: Literal["wall", "door"]) -> str:
            return f"the {at} is bare"

        done = await agent.run("Look, then paint.", model_settings={"temperature": 0.0, "max_tokens": 200})
    assert isinstance(done.output, Painted)
    made = [part.tool_name for one in done.all_messages() for part in one.parts if isinstance(part, ToolCallPart)]
    assert "look" in made
