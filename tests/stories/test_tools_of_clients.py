"""A client's tools on the real engine: a model of noise makes valid calls by constraint alone, and results come back."""

import json

import pytest
from support.house import blocks, codebase, living, reply

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
def house(models):
    with living(models, model="builtin:noise-s") as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


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
