"""The unmodified OpenAI client works over the socket."""

import httpx2
import openai
import pytest


def question(text):
    return [{"role": "user", "content": text}]


def test_a_completion_has_the_answer_the_usage_and_the_lore_object(client):
    answer = client.chat.completions.create(model="lore/demo", messages=question("hello there"))
    assert answer.choices[0].message.content == "hello there "
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 5)
    assert answer.usage.prompt_tokens_details.cached_tokens == 90
    assert answer.lore["codex"]["revision"] == "1a2b3c4d"
    assert answer.lore["blocks"][0] == {"kind": "identity", "tokens": 20, "cached": 18, "from": "ram"}


def test_a_stream_carries_the_words_and_in_its_last_chunk_the_lore_object_and_the_usage(client):
    chunks = list(client.chat.completions.create(model="lore", messages=question('say "ä" now'), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == 'say "ä" now '
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 90
    assert chunks[-1].lore["strategy"]["name"] == "CAG"
    assert len({chunk.id for chunk in chunks}) == 1


def test_usage_that_was_asked_for_comes_in_a_chunk_of_its_own(client):
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(model="", messages=question("a"), stream=True, stream_options=options))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 105
    assert chunks[-1].lore["prompt"]["cached"] == 90
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_client_s_extra_body_reaches_the_ask(client, lorekeep):
    extra = {"lore": {"session": "s1", "codex": "demo", "client": {"cwd": "/src"}, "record": False, "wait": False}}
    client.chat.completions.create(model="lore", messages=question("a"), extra_body=extra, seed=7, stop=["x"])
    (ask,) = lorekeep.service.asked
    assert (ask.session, ask.codex, ask.client, ask.private, ask.wait) == ("s1", "demo", {"cwd": "/src"}, True, False)
    assert (ask.sampling.seed, ask.stop) == (7, ("x",))


def test_a_conversation_with_tools_and_parts_is_taken_over(client, lorekeep):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        *question("and now?"),
    ]
    client.chat.completions.create(model="lore", messages=messages)
    system, user, assistant, tool, _ = lorekeep.service.asked[0].messages
    assert (system.role, user.content) == ("system", "one\ntwo")
    assert assistant.tool_calls[0].name == "f"
    assert (tool.role, tool.tool_call_id) == ("tool", "c1")


def test_a_json_schema_reaches_the_ask(client, lorekeep):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    client.chat.completions.create(model="lore", messages=question("a"), response_format=wanted)
    assert lorekeep.service.asked[0].schema == schema


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_and_tool_calls_stream_apart_from_the_answer(client, stream):
    thought = client.chat.completions.create(model="lore", messages=question("think"), stream=stream)
    called = client.chat.completions.create(model="lore", messages=question("call"), stream=stream)
    if stream:
        thoughts = [chunk.choices[0].delta for chunk in thought]
        assert [delta.reasoning_content for delta in thoughts if hasattr(delta, "reasoning_content")] == ["hm"]
        calls = [chunk.choices[0].delta.tool_calls for chunk in called]
        (begun,), (given,) = [call for call in calls if call]
        assert (begun.index, begun.id, begun.type, begun.function.name) == (0, "call-1", "function", "search_archive")
        assert (begun.function.arguments, given.index, given.function.arguments) == ("", 0, '{"query": "x"}')
        assert (given.id, given.function.name) == (None, None)
    else:
        assert thought.choices[0].message.reasoning_content == "hm"
        assert called.choices[0].finish_reason == "tool_calls"
        assert called.choices[0].message.tool_calls[0].function.arguments == '{"query": "x"}'


def test_models_are_the_codices_and_the_bare_model(client, lorekeep):
    assert [model.id for model in client.models.list()] == ["lore/demo", "builtin:quoter"]
    assert client.models.retrieve("lore/demo").id == "lore/demo"
    client.chat.completions.create(model="builtin:quoter", messages=question("a"))
    assert lorekeep.service.asked[0].codex == "none"


@pytest.mark.parametrize("model", ["lore/dmo", "gpt-4o"])
def test_an_unknown_model_is_not_found_and_the_nearest_are_named(client, model):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model=model, messages=question("a"))
    assert caught.value.code == "model_not_found"
    assert "demo" in caught.value.body["hint"]


def test_a_failure_in_the_middle_of_a_stream_reaches_the_client_as_an_error(client):
    stream = client.chat.completions.create(model="lore", messages=question("one break two"), stream=True)
    with pytest.raises(openai.APIError, match="the engine died"):
        list(stream)


def test_the_async_client_works_as_well(lorekeep):
    import anyio

    async def asked():
        transport = httpx2.AsyncHTTPTransport(uds=str(lorekeep.socket), verify=False)
        async with openai.AsyncOpenAI(
            base_url="http://localhost/v1", api_key="none", http_client=httpx2.AsyncClient(transport=transport)
        ) as client:
            return await client.chat.completions.create(model="lore", messages=question("a b"))

    assert anyio.run(asked).choices[0].message.content == "a b "
