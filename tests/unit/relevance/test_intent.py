"""What a question asks of the memories."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.growth import grows_at_most

from orchestrator.errors import InvalidRequest, SettingsError
from orchestrator.relevance.intent import (
    ALWAYS,
    KINDS,
    NOTHING,
    budgets_of,
    frame_of,
    intent_of,
    is_greeting,
    memory_plan,
    read_frames,
)
from orchestrator.relevance.signals import Turn, signals_of

FRAMES = ("conversation", "question", "task", "decision", "creative", "debug")


def plan(question: str, frame: str | None = None):
    return memory_plan(intent_of(question), frame_of(question, frame), len(question.split()))


def test_a_greeting_plans_no_query() -> None:
    assert plan("hey") == NOTHING
    assert plan("good morning!").kinds == ()


@pytest.mark.parametrize("text", ["hi, how are you", "hello hello", "hey there", "yo what’s up", "Hi!"])
def test_what_only_greets_is_a_greeting(text: str) -> None:
    assert is_greeting(text)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("why not", True),
        ("Do we cache it", True),
        ("have you seen it", True),
        ("it is cached?", True),
        ("do it again", False),
        ("have a look at it", False),
        ("island", False),
    ],
)
def test_intent_and_signals_agree_on_what_a_question_is(text: str, asks: bool) -> None:
    assert (intent_of(text).question, signals_of(Turn(text, 3))["is_question"]) == (asks, asks)


@pytest.mark.parametrize(
    "text",
    ["hi, where is the config parsed?", "hi, why not?", "how are you built?", "hypothesis", "yonder", "history"],
)
def test_what_only_begins_like_a_greeting_is_none(text: str) -> None:
    assert not is_greeting(text)


def test_a_question_about_a_decision_takes_eight_decisions_and_three_of_the_others() -> None:
    assert dict(plan("what did I decide about storage?").limits) == {
        "decision": 8,
        "fact": 3,
        "procedure": 3,
        "episode": 3,
    }


def test_a_question_without_a_hint_takes_five_of_each() -> None:
    assert set(plan("Where does the parser live").limits.values()) == {5}


@pytest.mark.parametrize(
    ("words", "weight"),
    [
        ("just now", 1.0),
        ("yesterday", 0.8),
        ("last week", 0.5),
        ("a while ago", 0.3),
        ("whenever", 0.0),
        ("today or last month", 1.0),
    ],
)
def test_how_recent_by_the_highest_that_is_named(words: str, weight: float) -> None:
    assert intent_of(f"what broke {words}").recency == weight


@pytest.mark.parametrize(
    ("text", "past"),
    [
        ("Which port did it have before 8443?", True),
        ("what did we use to log, previously?", True),
        ("what changed last week?", True),
        ("what is the storage?", False),
        ("which port was that again?", False),
    ],
)
def test_a_question_asks_for_the_past_by_its_words(text: str, past: bool) -> None:
    assert intent_of(text).past is past


def test_how_do_i_deploy_hints_a_procedure() -> None:
    assert intent_of("how do I deploy?").dominant == "procedure"


def test_names_paths_dates_and_symbols_are_entities() -> None:
    entities = intent_of("Did Redis break src/cache.py or get_user on 2026-01-31?").entities
    assert {"Redis", "src/cache.py", "get_user", "2026-01-31"} <= set(entities)


@pytest.mark.parametrize(
    ("question", "frame"),
    [
        ("Should we use Redis for caching?", "decision"),
        ("Why does this raise an exception in main?", "debug"),
        ("fix the import", "task"),
        ("thanks", "conversation"),
        ("brainstorm names", "creative"),
        ("Where is the config read?", "question"),
    ],
)
def test_a_frame_by_its_words(question: str, frame: str) -> None:
    assert frame_of(question).name == frame


def test_the_frame_that_a_client_names_counts_and_an_unknown_one_is_refused() -> None:
    assert frame_of("hey", "debug").name == "debug"
    with pytest.raises(InvalidRequest, match="debgu"):
        frame_of("hey", "debgu")


def test_the_frame_decision_has_3500_tokens_of_decisions_and_conversation_none_of_procedures() -> None:
    assert budgets_of(frame_of("", "decision"), 20)["decision"] == 3_500
    assert budgets_of(frame_of("", "conversation"), 20) == {"decision": 500, "fact": 500, "procedure": 0, "episode": 0}


@given(some.sampled_from(FRAMES), some.integers(0, 10_000))
def test_no_frame_gives_the_kinds_more_than_it_has(frame: str, words: int) -> None:
    chosen = frame_of("", frame)
    budgets = budgets_of(chosen, words)
    assert set(budgets) == set(KINDS)
    assert 0 <= sum(budgets.values()) <= chosen.total - ALWAYS


@given(some.text(max_size=300))
def test_any_text_has_an_intent_and_a_plan(text: str) -> None:
    assert set(plan(text).kinds) <= set(KINDS)


@given(some.text(alphabet="aA1-_./ ?'\n", min_size=1, max_size=12))
def test_a_text_that_repeats_is_read_in_time_that_grows_with_its_length(piece: str) -> None:
    once, more = ((piece * size)[:size] for size in (5_000, 20_000))
    assert grows_at_most(8, plan, once, more)


def test_a_name_with_hyphens_is_one_entity() -> None:
    assert "lore-keep.toml" in intent_of("is lore-keep.toml read?").entities
    assert "config.py" in intent_of("what does -config.py do").entities


def test_of_a_long_question_the_ends_name_the_frame_and_what_was_pasted_between_does_not() -> None:
    pasted = "x " * 10_000
    assert frame_of(f"Where is it? {pasted} error {pasted}").name == "question"
    assert frame_of(f"{pasted} error {pasted} Should we keep it?").name == "decision"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("windows = 3", "question.windows"),
        ("total = 1_999", "question.total"),
        ("window = 0", "question.window"),
        ("window = true", "question.window"),
        ("priorities = { facts = 1.0 }", "question.priorities.facts"),
        ("priorities = { fact = 1.5 }", "question.priorities.fact"),
        ("budgets = { fact = -1 }", "question.budgets.fact"),
        ("budgets = { fact = 1_001 }", "question.budgets"),
        ('holds = "error"', "question.holds"),
    ],
)
def test_a_fault_in_the_frames_is_named_by_its_key(line: str, named: str) -> None:
    rows = {"total": "total = 3_000", "window": "window = 3"} | {line.partition(" ")[0]: line}
    with pytest.raises(SettingsError) as refused:
        read_frames("\n".join(["[question]", *rows.values()]))
    assert refused.value.message.startswith(f"{named}:")


def test_frames_without_the_one_for_everything_else_are_refused() -> None:
    with pytest.raises(SettingsError, match="question is missing"):
        read_frames("")
