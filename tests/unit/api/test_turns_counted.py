"""What the routes count of turns, over the real socket: each once, by how it ended."""

import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.house import until

CHAT = "/v1/chat/completions"


@pytest.fixture
def counted(http):
    """How much a series has grown since the test's begin, by its name and labels."""
    before = scraped(http)
    return lambda name, *labels: scraped(http)[name, *labels] - before[name, *labels]


def scraped(http):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(http.get("/metrics").text)
        for sample in family.samples
    }


def body(question, **more):
    return {"model": "lore", "messages": [{"role": "user", "content": question}], **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("question", "finish"), [("hello", "stop"), ("long", "length"), ("call", "tool_calls")])
def test_an_answer_is_counted_by_its_strategy_and_its_end_streamed_or_not(http, counted, question, finish, stream):
    assert http.post(CHAT, json=body(question, stream=stream)).is_success
    assert counted("lorekeep_turns_total", "CAG", finish) == 1
    assert counted("lorekeep_first_token_seconds_count") == 1
    assert counted("lorekeep_responses_total", "4xx") == 0


def test_a_refusal_is_counted_by_its_code(http, counted):
    assert http.post(CHAT, json=body("full")).status_code == 429
    assert counted("lorekeep_refusals_total", "full") == 1
    assert counted("lorekeep_unanswered_turns_total", "refused") == 1
    assert counted("lorekeep_responses_total", "4xx") == 1


def test_a_refusal_within_a_stream_counts_like_one_before_it(http, counted):
    http.post(CHAT, json=body("one break", stream=True))
    assert counted("lorekeep_refusals_total", "engine_failed") == 1
    assert counted("lorekeep_unanswered_turns_total", "refused") == 1


def test_our_own_mistake_is_no_refusal_of_a_turn(http, counted):
    assert http.post(CHAT, json=body("bug")).status_code == 500
    assert counted("lorekeep_refusals_total", "failed") == 1
    assert counted("lorekeep_unanswered_turns_total", "failed") == 1


def test_who_leaves_is_counted_as_one_who_left(http, counted):
    with http.stream("POST", CHAT, json=body("forever", stream=True)) as answer:
        next(answer.iter_lines())
    until(lambda: counted("lorekeep_unanswered_turns_total", "left") == 1)
    assert counted("lorekeep_unanswered_turns_total", "refused") == 0


def test_a_text_that_is_continued_is_no_turn(http, counted):
    assert http.post("/v1/completions", json={"prompt": "a b"}).is_success
    assert counted("lorekeep_texts_total", "stop") == 1
    assert counted("lorekeep_first_token_seconds_count") == 0


def test_a_turn_has_one_line_in_the_log(http, caplog):
    with caplog.at_level(logging.INFO, "lorekeep"):
        http.post(CHAT, json=body("a secret of mine"))
    (event,) = [one.fields for one in caplog.records if one.getMessage() == "turn"]
    assert (event["trace"], event["finish"]) == ("t1", "stop")
    assert "secret" not in str(event)
