"""What the model thought of its own words, in OpenAI's shape: whole and streamed, through the unmodified client."""

import math

import openai
import pytest
from support.house import codebase, lent, question


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def ask(client, **options):
    messages = [{"role": "user", "content": question("zebra")}]
    return client.chat.completions.create(model="lore/vaults", messages=messages, max_tokens=10, **options)


def text_of(content):
    return b"".join(bytes(one.bytes) for one in content).decode()


def test_each_token_of_the_answer_has_its_log_probability_and_the_likeliest_ones(client):
    answer = ask(client, logprobs=True, top_logprobs=3)
    (choice,) = answer.choices
    content = choice.logprobs.content
    assert text_of(content) == choice.message.content
    assert choice.logprobs.refusal is None
    for one in content:
        values = [other.logprob for other in one.top_logprobs]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1.000001
        assert (one.token, one.logprob, one.bytes) == (
            one.top_logprobs[0].token,
            values[0],
            one.top_logprobs[0].bytes,
        ), "a greedy answer takes the likeliest"
        assert one.logprob > math.log(0.5), "the quoting model is sure of what it quotes"


def test_a_stream_tells_the_same_beside_its_words(client):
    whole = ask(client, logprobs=True, top_logprobs=2).choices[0]
    chunks = [chunk.choices[0] for chunk in ask(client, logprobs=True, top_logprobs=2, stream=True) if chunk.choices]
    told = [one for choice in chunks if choice.logprobs for one in choice.logprobs.content]
    assert "".join(choice.delta.content or "" for choice in chunks) == whole.message.content
    assert [(one.token, one.bytes) for one in told] == [(one.token, one.bytes) for one in whole.logprobs.content]
    for choice in chunks:
        if choice.logprobs:
            assert text_of(choice.logprobs.content) == choice.delta.content


def test_without_a_number_only_the_chosen_tokens_are_told_and_unasked_nothing(client):
    content = ask(client, logprobs=True).choices[0].logprobs.content
    assert content
    assert all(one.top_logprobs == [] for one in content)
    assert ask(client).choices[0].logprobs is None


def test_llama_server_s_word_for_it_is_understood(client):
    content = ask(client, extra_body={"n_probs": 4}).choices[0].logprobs.content
    assert {len(one.top_logprobs) for one in content} == {4}


def test_nothing_is_told_of_a_stop_string_that_was_cut_off(client):
    whole = ask(client, logprobs=True).choices[0]
    stop = whole.message.content[3:6]
    cut = ask(client, logprobs=True, stop=[stop]).choices[0]
    assert cut.message.content == whole.message.content[:3]
    told = text_of(cut.logprobs.content)
    assert told.startswith(cut.message.content)
    assert len(told) - len(cut.message.content) < len(whole.logprobs.content[-1].token) + len(stop)
    assert len(cut.logprobs.content) < len(whole.logprobs.content)


def test_settings_that_no_engine_takes_are_refused_with_words(client):
    with pytest.raises(openai.BadRequestError, match=r"repeat_penalty: should be 0\.1 or more"):
        ask(client, extra_body={"repeat_penalty": 0.01})
