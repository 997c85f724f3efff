"""Sampling through the real child: where texts end, whole characters, seeds, and schemas of whoever means harm."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.real_engine import ask, code, collected, engine, load, question, said

from orchestrator.engine.builtin import ensure
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import AnswerDelta, Chosen, InferenceJob, Outcome, Reason, Sampling, ids_to_bytes

pytestmark = pytest.mark.anyio

OWLS = "The password of the owl is Grüße🦉näch🐘ß.\n"


async def answer(client: EngineClient, floor: str, tail: str, most: int = 30, **options: Any) -> list[Any]:
    (ids,) = await client.encode([tail])
    stop = options.pop("stop", ())
    return await collected(client.run(InferenceJob(0, floor, ids_to_bytes(ids), 1, most, Sampling(**options), stop)))


async def put(client: EngineClient, name: str, text: str) -> None:
    (ids,) = await client.encode([text])
    client.put_floor(name, ids_to_bytes(ids))


def tokens_of(messages: list[Any]) -> list[Chosen]:
    return [one for message in messages if isinstance(message, AnswerDelta) for one in message.chosen]


@pytest.fixture(scope="module")
async def client(quoter_model: Path) -> AsyncIterator[EngineClient]:
    """On the quoting model, with the floors `codex` and `owls`."""
    async with engine(quoter_model) as client:
        await load(client)
        await put(client, "owls", OWLS * 3)
        yield client


# ---- where a text ends -----------------------------------------------------------------------------------------------


async def test_a_stop_string_that_begins_in_one_token_and_ends_in_another_is_found_wherever_it_lies(
    client: EngineClient,
) -> None:
    whole = code(33)
    cuts = [(start, end) for start in range(1, len(whole) - 1) for end in range(start + 1, min(start + 5, len(whole)))]
    for start, end in cuts:
        stop = whole[start:end]
        messages = await collected(client.run(await question(client, 33, stop=(stop, "never"))))
        assert said(messages) == whole[: whole.index(stop)], f"stop {stop!r}"
        assert (messages[-1].outcome, messages[-1].reason) == (Outcome.DONE, Reason.STOP)


async def test_a_stop_string_across_tokens_takes_the_log_probabilities_of_its_tokens_with_it(
    client: EngineClient,
) -> None:
    messages = await collected(client.run(await question(client, 33, logprobs=0)))
    first, second = [one.token.text.decode() for one in tokens_of(messages)][:2]
    stop = first[-1] + second[0]
    messages = await collected(client.run(await question(client, 33, stop=(stop,), logprobs=0)))
    assert said(messages) == first[:-1]
    assert len(tokens_of(messages)) == (1 if first[:-1] else 0)


async def test_characters_that_are_cut_over_tokens_leave_whole(client: EngineClient) -> None:
    messages = await answer(client, "owls", "The password of the owl is", logprobs=1)
    assert said(messages).strip() == "Grüße🦉näch🐘ß."
    pieces = [one.token.text for one in tokens_of(messages)]
    assert any(broken(piece) for piece in pieces), "no character was cut over tokens: this shows nothing"
    assert b"".join(pieces).decode() == said(messages)
    assert all("\ufffd" not in message.text for message in messages if isinstance(message, AnswerDelta))


async def test_an_answer_that_ends_within_a_character_says_so_once(client: EngineClient) -> None:
    texts = [said(await answer(client, "owls", "The password of the owl is", most)) for most in range(1, 14)]
    assert all(text.rstrip("\ufffd") in OWLS for text in texts)
    assert any(text.endswith("\ufffd") for text in texts)


def broken(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return True
    return False


# ---- seeds -----------------------------------------------------------------------------------------------------------


async def test_a_seed_reproduces_an_answer_also_in_another_process_and_another_seed_gives_another(models: Path) -> None:
    noise, texts = ensure("builtin:noise-s", models), []
    for _ in range(2):
        async with engine(noise) as client:
            await put(client, "floor", "def main():\n    return 1\n" * 4)
            for seed in (6, 7, 6):
                warm = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "seed": seed}
                texts.append(said(await answer(client, "floor", "def", 12, **warm)))
    assert texts[0] == texts[2] == texts[3] == texts[5]
    assert texts[1] == texts[4] != texts[0]


# ---- schemas ---------------------------------------------------------------------------------------------------------


def deep(levels: int) -> str:
    return '{"type": "array", "items":' * levels + "{}" + "}" * levels


def pattern(text: str) -> str:
    return json.dumps({"type": "string", "pattern": text})


LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
REFUSED = [
    deep(33),
    deep(50_000),
    json.dumps({"enum": ["x" * 70_000]}),
    json.dumps({"type": "array", "items": {}, "minItems": 10**9}),
    json.dumps({"$ref": "https://example.org/schema.json"}),
    pattern("^(a{900}){900}$" * 40),
    pattern("^a{999999999}$"),
    json.dumps({"type": "object", "properties": {f"k{number}": {} for number in range(900)}}),
    "{",
]
HARMLESS_OR_REFUSED = [
    json.dumps(LOOP),
    json.dumps({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
    json.dumps({"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}),
    pattern("^(a*)*$"),
    pattern("^(a+)+b$"),
    pattern("^((a|a)*|(a|b)*)*$"),
    pattern("^(a?){200}a{200}$"),
    json.dumps({"const": '" | ' + "(" * 60_000}),
    json.dumps({"type": "object", "properties": {f"k{number}": {} for number in range(300)}}),
    pattern("^([ab]?[ab]?[ab]?){60}$"),
    pattern("^([a-z0-9]+[a-z0-9]*[a-z0-9]*[a-z0-9]*){50}$"),
]


async def test_schemas_that_mean_harm_are_refused_or_obeyed_and_the_child_answers_on(client: EngineClient) -> None:
    for schema in REFUSED:
        _, end = await ask(client, 15, schema=schema)
        assert (end.outcome, end.reason) == (Outcome.REFUSED, Reason.SCHEMA), schema[:80]
    for schema in HARMLESS_OR_REFUSED:
        _, end = await ask(client, 15, schema=schema)
        assert end.outcome is Outcome.DONE or end.reason is Reason.SCHEMA, schema[:80]
    assert (await ask(client, 16))[0] == code(16)
    assert client.restarts == 0


async def test_an_answer_obeys_its_schema_to_the_letter(client: EngineClient) -> None:
    schema = {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[0-9]{7}$"}, "sure": {"enum": ["yes", "no"]}},
        "required": ["code", "sure"],
        "additionalProperties": False,
    }
    messages = await answer(client, "codex", "The access code is", 80, schema=json.dumps(schema))
    said_json = json.loads(said(messages))
    assert set(said_json) == {"code", "sure"}
    assert len(said_json["code"]) == 7
    assert said_json["code"].isdigit()
    assert said_json["sure"] in ("yes", "no")
    assert messages[-1].reason is Reason.STOP
