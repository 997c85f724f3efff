"""OpenAI's completions on a real model: a text goes on, and what fits at a cursor is filled in."""

import openai
import pytest
from support import odd_models
from support.house import living, reply
from support.openai_client import free_port, openai_client, tcp_client, tcp_config

BEFORE, AFTER = "def add(a, b):\n    return ", "\n\n\nprint(add(1, 2))\n"
WRITTEN = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def house(models, tmp_path_factory, port):
    model = odd_models.filling(tmp_path_factory.mktemp("filling") / "model.gguf")
    with living(models, tcp_config(port), model=str(model)) as daemon:
        yield daemon


def create(client, prompt, **options):
    given = {"model": "lore", "max_tokens": 8, "temperature": 0, **options}
    return client.completions.create(prompt=prompt, **given)


def count(house, text):
    return reply(house, "/tokenize", {"content": text})["count"]


def test_a_gap_is_filled_between_the_model_s_own_tokens_which_are_three_more(client, house):
    filled = create(client, BEFORE, suffix=AFTER)
    assert filled.usage.prompt_tokens == count(house, BEFORE) + count(house, AFTER) + 3
    assert 1 <= filled.usage.completion_tokens <= 8
    assert filled.choices[0].finish_reason in ("stop", "length")


def test_a_prompt_that_a_client_wrote_in_these_tokens_gives_the_same(client):
    assert create(client, WRITTEN).choices[0].text == create(client, BEFORE, suffix=AFTER).choices[0].text


def test_what_a_client_tells_of_other_files_before_them_is_content(client, house):
    lead = "<|repo_name|>vaults\n<|file_sep|>zebra.py\ndef unlock():\n    return None\n"
    filled = create(client, f"{lead}{WRITTEN}")
    assert filled.usage.prompt_tokens == sum(count(house, text) for text in (lead, BEFORE, AFTER)) + 3


def test_a_client_that_goes_away_leaves_nothing_running(client, house):
    with create(client, "def f(" * 50, max_tokens=3000, stream=True) as stream:
        next(iter(stream))
    create(client, BEFORE)
    assert reply(house, "/v1/status")["queue"] == {"running": 0, "waiting": 0}


def test_over_tcp_a_text_goes_on_and_a_gap_is_filled_as_over_the_socket(client, port):
    asked = ((BEFORE, {}), (BEFORE, {"suffix": AFTER}))
    with tcp_client(port) as tcp:
        for prompt, more in asked:
            whole = create(client, prompt, **more).choices[0].text
            assert create(tcp, prompt, **more).choices[0].text == whole
            chunks = create(tcp, prompt, stream=True, **more)
            assert "".join(chunk.choices[0].text for chunk in chunks) == whole
        with pytest.raises(openai.AuthenticationError):
            create(tcp.with_options(api_key="another"), BEFORE)


def test_a_stream_says_the_same(client):
    whole = create(client, BEFORE, suffix=AFTER)
    options = {"include_usage": True}
    chunks = list(create(client, BEFORE, suffix=AFTER, stream=True, stream_options=options))
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == whole.choices[0].text
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], whole.usage.total_tokens)


def test_a_file_that_holds_the_text_of_these_tokens_is_content(client, house):
    """Of a vocabulary whose control token it is: one token would be that, several are its text."""
    held = f"MARK = '<|fim_suffix|>'\n{BEFORE}"
    assert create(client, held, suffix=AFTER).usage.prompt_tokens == count(house, held) + count(house, AFTER) + 3
    assert count(house, "<|fim_suffix|>") > 1


def test_what_was_typed_before_is_in_the_cache_while_more_is_typed(client):
    first = "import os\n" * 40
    create(client, first, suffix=AFTER)
    again = create(client, f"{first}import sys\n", suffix=AFTER)
    assert again.usage.prompt_tokens_details.cached_tokens >= 80


def test_a_text_alone_goes_on_and_ends_at_a_stop(client):
    whole = create(client, BEFORE).choices[0].text
    cut = create(client, BEFORE, stop=[whole[1:3]])
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == (whole[:1], "stop")


def test_a_text_longer_than_the_window_is_refused_with_the_numbers(client):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, "word " * 20_000, suffix=AFTER)
    assert refused.value.code == "context_length_exceeded"
    assert "tokens and 4,096 can be held" in str(refused.value)


def test_a_model_that_cannot_fill_in_says_so(shared_daemon):
    with openai_client(shared_daemon.socket) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            create(client, BEFORE, suffix=AFTER)
        assert "the loaded model was not made to fill in" in str(refused.value)
        assert create(client, "1 2 3 4 5 6 7 8 9\n1 2 3 4 5 6 7").choices[0].text.strip().startswith("8 9")
