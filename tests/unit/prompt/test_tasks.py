"""What a question asks for, by patterns."""

import pytest

from orchestrator.prompt.tasks import Phrases, Task, classify

CRITICAL = (
    "I feel suicidal",
    "suicide",
    "I want to kill myself",
    "end my life",
    "I want to die",
    "self-harm",
    "self harm",
    "a crisis",
    "polycrisis",
    "an emergency",
    "call 988",
    "I don't want to live",
    "I don’t want to live",
    "better off dead",
    "an error in main",
    "this traceback",
    "Which exception is raised?",
    "the build fails",
    "What is a floor?",
    "who is Ada",
    "When did it change?",
    "where is the config parsed",
    "how many files",
    "cite it",
    "the source",
    "a reference",
    "according to the docs",
    "evidence",
    "fact check this",
    "fact-check this",
    "verify it",
    "accurate numbers",
    "be precise",
    "research",
    "this paper",
    "a study",
    "on arxiv",
)
FRIENDLY = (
    "write a test",
    "draft a mail",
    "a story",
    "a poem",
    "be creative",
    "brainstorm",
    "any idea",
    "imagine that",
    "design it",
    "translate this",
    "rewrite it",
    "summarize this",
    "review this code",
    "refactor the loop",
)
HYBRID = (
    "analyze it",
    "compare both",
    "evaluate that",
    "assess the risk",
    "a plan",
    "our strategy",
    "pros and cons",
    "the trade-off",
    "the trade off",
    "explain the loop",
    "describe it",
    "how does it work",
    "why does it wait",
)
UNKNOWN = (
    "",
    "hello",
    "list the functions",
    "988a",
    "1988",
    "988.5",
    "3.988",
    "9,988",
    "ideal",
    "the planet",
    "terror",
    "errors",
    "redesigned",
    "historystory",
    "whats up",
    "sketchy papers",
)


@pytest.mark.parametrize("question", CRITICAL)
def test_crisis_debugging_and_facts_are_critical(question: str) -> None:
    assert classify(question).task is Task.RAG_CRITICAL


@pytest.mark.parametrize("question", FRIENDLY)
def test_making_something_is_stuff_friendly(question: str) -> None:
    assert classify(question).task is Task.STUFF_FRIENDLY


@pytest.mark.parametrize("question", HYBRID)
def test_weighing_and_explaining_is_hybrid(question: str) -> None:
    assert classify(question).task is Task.HYBRID


@pytest.mark.parametrize("question", UNKNOWN)
def test_what_only_looks_like_a_phrase_is_unknown(question: str) -> None:
    assert classify(question).task is Task.UNKNOWN


def test_the_classes_are_tried_in_their_order() -> None:
    assert classify("explain a poem about an error").task is Task.RAG_CRITICAL
    assert classify("explain a poem").task is Task.STUFF_FRIENDLY


def test_the_frame_debug_is_critical_whatever_is_asked() -> None:
    assert classify("write a poem", frame="debug").task is Task.RAG_CRITICAL


def test_the_match_is_told() -> None:
    assert classify("Pros  and cons?").because == "pros  and cons"


def test_settings_add_phrases_and_keep_the_shipped_ones() -> None:
    more = {Task.STUFF_FRIENDLY: Phrases(whole=("haiku",))}
    assert classify("a haiku", more=more).task is Task.STUFF_FRIENDLY
    assert classify("a poem", more=more).task is Task.STUFF_FRIENDLY
    assert classify("a haiku").task is Task.UNKNOWN


def test_a_list_without_phrases_matches_nothing() -> None:
    assert Phrases().found_in("anything") is None
