"""OpenAI's completions in front of the small service, which answers with the prompt's words in capitals."""

import openai
import pytest
from support.openai_client import openai_client
from support.served import served

from orchestrator.settings import Settings


def create(client, prompt="one two", **options):
    return client.completions.create(model=options.pop("model", "lore"), prompt=prompt, **options)


def test_a_completion_has_the_text_the_usage_and_what_had_no_effect(client):
    answer = create(client, user="me")
    assert (answer.choices[0].text, answer.choices[0].finish_reason, answer.object) == (
        "ONE TWO ",
        "stop",
        "text_completion",
    )
    assert (answer.usage.total_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (105, 90)
    assert answer.lore == {"notices": ["ignored, because it means nothing here: user"]}


def test_a_stream_has_the_same_words_and_the_usage_in_its_last_event(client):
    chunks = list(create(client, stream=True))
    assert [chunk.choices[0].text for chunk in chunks] == ["ONE ", "TWO ", ""]
    assert (chunks[-1].choices[0].finish_reason, chunks[-1].usage.total_tokens) == ("stop", 105)
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_what_a_client_asks_for_reaches_the_ask(client, lorekeep):
    create(client, suffix="end", max_tokens=7, temperature=0.3, stop=["x"], seed=3, extra_body={"top_k": 5})
    (ask,) = lorekeep.service.texts_asked
    assert (ask.prompt, ask.suffix, ask.max_tokens, ask.sampling.temperature) == ("one two", "end", 7, 0.3)
    assert (ask.stop, ask.sampling.seed, ask.sampling.top_k) == (("x",), 3, 5)


def test_one_prompt_in_a_list_is_one_prompt(client):
    assert create(client, ["one"]).choices[0].text == "ONE "


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"echo": True}, "echo"),
        ({"logprobs": 1}, "logprobs"),
        ({"n": 2}, "n, best_of"),
        ({"best_of": 2}, "n, best_of"),
        ({"prompt": ["one", "two"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"stop": ["x"] * 17}, "stop"),
    ],
)
def test_what_is_not_offered_is_refused_by_its_name(client, given, named):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, **given)
    assert refused.value.body["message"].startswith(named)


def test_a_codex_takes_no_part_and_the_answer_says_so(client):
    assert create(client, model="lore/demo").lore["notices"] == [
        "a text is continued by the model alone, without codex demo"
    ]
    with pytest.raises(openai.NotFoundError) as refused:
        create(client, model="lore/dmo")
    assert refused.value.code == "model_not_found"


def test_a_failure_in_the_middle_of_a_stream_is_an_error_and_one_before_has_its_status(client):
    with pytest.raises(openai.APIError, match="the engine died"):
        list(create(client, "one break", stream=True))
    with pytest.raises(openai.RateLimitError):
        create(client, "full", stream=True)


def test_who_may_not_ask_may_not_continue_a_text(folder):
    settings = Settings.model_validate({"sigils": {"guest": {"users": [0], "scopes": ["search"]}}})
    with (
        served(folder, owner=1, settings=settings) as running,
        openai_client(running.socket) as client,
        pytest.raises(openai.PermissionDeniedError),
    ):
        create(client)
