"""Questions whose prompt ends within a few tokens of the window's edge: answered, or refused with the numbers."""

import pytest
from support.house import living, over_socket

WINDOW = 512
AROUND = 20
ANSWER = 16  # tokens that each question asks for


@pytest.fixture(scope="module")
def http(models):
    with (
        living(models, f"[model]\ncontext = {WINDOW}\n") as daemon,
        over_socket(daemon) as client,
    ):
        yield client


def body(words, text="{}", **options):
    content = " ".join(text.format(number % 10) for number in range(words))
    return {
        "model": "lore",
        "messages": [{"role": "user", "content": content}],
        "lore": {"codex": "none"},
        "max_tokens": ANSWER,
        **options,
    }


def planned(http, words, text="{}"):
    """Tokens of the prompt; None where it is refused."""
    answer = http.post("/v1/plan", json=body(words, text))
    if answer.status_code == 200:
        return answer.json()["prompt"]["tokens"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    words = answer.json()["error"]["message"]
    assert f"tokens and {WINDOW - ANSWER} can be held" in words
    return None


@pytest.fixture(scope="module")
def longest(http):
    """Words of the longest question that is not refused, found by halving."""
    fits, too_long = 1, WINDOW
    assert planned(http, fits) is not None
    assert planned(http, too_long) is None
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if planned(http, middle) is not None else (fits, middle)
    return fits


def test_every_length_around_the_edge_is_planned_or_refused_and_there_is_one_edge(http, longest):
    outcomes = [planned(http, longest + more) is not None for more in range(-AROUND, AROUND + 1)]
    assert outcomes == [True] * (AROUND + 1) + [False] * AROUND


def test_long_words_fill_the_window_as_short_ones_do(http):
    """Seven characters a token: more than prose has."""
    tokens = [planned(http, words, "return") for words in range(300, WINDOW)]
    allowed = [one for one in tokens if one is not None]
    assert WINDOW - ANSWER - 2 <= allowed[-1] <= WINDOW - ANSWER
    assert tokens[1] - tokens[0] == 1


def test_the_longest_question_leaves_room_for_the_answer_that_was_asked_for_and_no_more(http, longest):
    assert WINDOW - ANSWER - 2 <= planned(http, longest) <= WINDOW - ANSWER


@pytest.mark.parametrize("more", range(-3, 4))
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_planned_is_answered_and_what_is_refused_is_refused(http, longest, more, stream):
    answer = http.post("/v1/chat/completions", json=body(longest + more, stream=stream))
    if more > 0:
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        return
    assert answer.status_code == 200
    assert "error" not in answer.text
    if not stream:
        usage = answer.json()["usage"]
        assert usage["completion_tokens"] <= ANSWER
        assert usage["total_tokens"] <= WINDOW


def test_a_consecrated_memory_that_no_prompt_can_hold_refuses_the_question_with_the_numbers_until_it_is_retired(http):
    text = "The cache is Redis. " + " ".join(f"It keeps part {number}." for number in range(WINDOW // 4))
    memory = http.post("/v1/memories", json={"kind": "fact", "text": text, "codex": None}).json()["memory"]["id"]
    question = {**body(1), "messages": [{"role": "user", "content": "what is the cache?"}]}
    assert http.post("/v1/chat/completions", json=question).status_code == 200, "in short it has room"
    assert http.patch(f"/v1/memories/{memory}", json={"do": "consecrate"}).is_success
    for route in ("/v1/chat/completions", "/v1/plan"):
        answer = http.post(route, json=question)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
        error = answer.json()["error"]
        assert f"tokens and {WINDOW - ANSWER} can be held" in error["message"]
        assert f"the largest part that may not be cut is memory:{memory} with " in error["hint"]
        assert error["hint"].endswith(f"lore memory retire {memory} leaves that out")
    assert http.patch(f"/v1/memories/{memory}", json={"do": "retire"}).is_success
    assert http.post("/v1/chat/completions", json=question).status_code == 200
