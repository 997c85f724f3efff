"""What is made of answers beside others and alone: rounding is allowed, another word is not unless it is a tie."""

import math

import pytest

from orchestrator.cli import isolation
from orchestrator.cli.isolation import ALLOWED, Distance, Pair, Said, SaidToken, distance, question, same, verdict

CANARIES = ("amber-1", "basalt-2")


def token(word, logprob=-0.1, **others):
    return SaidToken(
        tuple(word.encode()), {tuple(key.encode()): value for key, value in {word: logprob, **others}.items()}
    )


def said(*tokens, text="amber-1", prompt=10, cached=5):
    return Said(text, tokens, prompt, cached)


def test_equal_answers_are_no_distance_apart():
    one = said(token("a"), token("b"))
    assert distance(one, one) == Distance(0.0, 2)


def test_rounding_is_measured_on_what_is_likely():
    near, far = said(token("a", -0.1, z=-9.0)), said(token("a", -0.15, z=-8.0))
    assert distance(near, far).nats == pytest.approx(0.05)


def test_another_word_is_infinitely_far_unless_rounding_may_choose_it():
    sure, other = said(token("a", -0.1, b=-3.0)), said(token("b", -0.1, a=-3.0))
    assert distance(sure, other).nats == math.inf
    tie, tied = said(token("a", -0.7, b=-0.71)), said(token("b", -0.7, a=-0.71))
    assert distance(tie, tied).nats < ALLOWED


def test_behind_another_word_nothing_is_compared():
    one, other = said(token("a", -0.7, b=-0.71), token("x")), said(token("b", -0.7, a=-0.71), token("y"))
    assert distance(one, other).compared == 1


def test_an_answer_that_ends_where_the_other_was_sure_to_go_on_differs():
    whole, cut = said(token("a"), token("b")), said(token("a"))
    assert distance(whole, cut).nats == distance(cut, whole).nats == math.inf
    assert distance(said(token("a"), token("b", -0.7, c=-0.7)), cut).nats == 0.0


def found(pairs, control=math.inf, kept=()):
    return {one.name: one for one in verdict(CANARIES, pairs, Distance(control, 1), kept)}


def test_a_sound_daemon_passes_and_says_what_it_ran():
    told = found([Pair(0, said(token("a")), said(token("a"), cached=0))])
    assert all(one.ok for one in told.values())
    assert told["isolation"].detail == (
        "1 answer of 1 private conversations at once, 5 tokens of their prompts from the cache: 1 token as alone, "
        "within 0.0000 nats (1.0 allowed)"
    )
    assert told["canaries"].detail == "no answer holds another's; 1 of 1 say their own"


def test_a_foreign_canary_a_kept_one_and_a_blind_model_are_faults_each():
    one = said(token("a"), text="it is basalt-2")
    told = found([Pair(0, one, one)], control=0.0, kept=["traces"])
    assert [name for name, check in told.items() if not check.ok] == ["canaries", "control", "nothing kept"]
    assert told["canaries"].detail == "conversation 1 says basalt-2, which is of conversation 2"
    assert told["nothing kept"].detail == "traces hold a canary"


def test_a_prompt_that_changed_in_between_proves_nothing():
    assert "prompts changed" in same([Pair(0, said(token("a")), said(token("a"), prompt=11))]).detail
    assert "nothing that can be compared" in same([Pair(0, said(), said())]).detail


def test_no_two_canaries_are_alike_and_the_first_question_has_its_own():
    made = {isolation.canary() for _ in range(20)}
    assert len(made) == 20
    one = made.pop()
    assert (one in question(one, first=True), one in question(one, first=False)) == (True, False)
