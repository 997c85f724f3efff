"""Which memories a turn makes: what is stated plainly, what is proposed, and what never becomes one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.growth import grows_at_most
from support.stated_turns import HELD_OUT, LABELLED, LATER

from orchestrator.errors import SettingsError
from orchestrator.karma.learning import MOST, MOST_PROPOSED, HeardTurn, learned, outcome_told, own_words
from orchestrator.karma.learning_rules import read_rules
from orchestrator.karma.records import Kind, MemoryState, NewMemory, Severity, WatchedText

ME = 1000


def of(text: str, **more: str) -> list[NewMemory]:
    return learned(HeardTurn(ME, text, codex="lore", **more))


def stands(memory: NewMemory) -> bool:
    return memory.state is not MemoryState.PROPOSED


def made_of(label: str, memory: NewMemory) -> bool:
    """Whether this is the memory that the label asks for: one that stands only where it may."""
    return label.rstrip("?") == memory.kind and (not label.endswith("?") or not stands(memory))


def wrong(turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Turns that made another memory than they should, or more than it."""
    return [(label, text) for label, text in turns if not all(made_of(label, one) for one in of(text))]


def missed(turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(label, text) for label, text in turns if label and not any(made_of(label, one) for one in of(text))]


def precision(turns: Sequence[tuple[str, str]]) -> float:
    """Share of the turns that make a memory, which make the right one."""
    making = [one for one in turns if of(one[1])]
    return 1 - len(wrong(making)) / len(making)


def recall(turns: Sequence[tuple[str, str]]) -> float:
    return 1 - len(missed(turns)) / sum(1 for label, _ in turns if label)


def test_the_labelled_turns_are_many_and_half_of_them_make_nothing() -> None:
    assert len(LABELLED) >= 120
    assert 0.45 <= sum(1 for label, _ in LABELLED if not label) / len(LABELLED) <= 0.6
    assert len({text for _, text in LABELLED}) == len(LABELLED)


def test_what_is_made_of_the_labelled_turns_is_right_and_little_is_missed() -> None:
    assert precision(LABELLED) >= 0.98, wrong(LABELLED)
    assert recall(LABELLED) >= 0.95, missed(LABELLED)
    assert precision(HELD_OUT) >= 0.95, wrong(HELD_OUT)
    assert recall(HELD_OUT) >= 0.9, missed(HELD_OUT)
    assert precision(LATER) >= 0.95, wrong(LATER)
    assert recall(LATER) >= 0.9, missed(LATER)


def test_a_plain_fact_has_subject_and_attribute_and_belongs_to_the_codex() -> None:
    (made,) = of("By the way, we use PostgreSQL 16 for the storage.", source="trace:ab", sigil="owner")
    assert made == NewMemory(
        ME,
        Kind.FACT,
        "We use PostgreSQL 16 for the storage.",
        codex="lore",
        subject="storage",
        attribute="use",
        source="trace:ab",
        sigil="owner",
    )


def test_what_is_known_of_whoever_asks_belongs_to_no_codex_and_says_whose_words_it_is() -> None:
    (made,) = of("I prefer tabs for indentation.")
    assert (made.codex, made.subject, made.attribute) == (None, "user", "preference: indentation")
    assert made.text == "The user said: I prefer tabs for indentation."


def test_a_censor_watches_answers_for_what_must_not_be_done_and_warns() -> None:
    (made,) = of("Never push to main.")
    assert (made.kind, made.trigger, made.watches, made.severity) == (
        Kind.CENSOR,
        "push to main",
        WatchedText.ANSWER,
        Severity.WARN,
    )


def test_a_procedure_keeps_its_steps_line_by_line() -> None:
    (made,) = of("Thanks! This is how we release:\n1. tag it\n\n2) push it\nWhat is missing?")
    assert made.text == "Thanks! This is how we release:\n1. tag it\n2. push it"


def test_no_step_of_a_long_procedure_is_lost() -> None:
    (made,) = of("This is how we release:\n" + "\n".join(f"{number}. do {number}" for number in range(1, 121)))
    assert made.text.split("\n")[-1] == "120. do 120"


@pytest.mark.parametrize(
    "head",
    [
        "Slack from Ann: it is up.",
        "Message from the CTO: Great work.",
        "Ann: Hi!",
        "Ann Lee (10:32 AM): Sure.",
        "Ann  10:32 AM\n",
        "@ann: ok.",
        "<ann> fine.",
        "Ann wrote: it is down.",
        "Bob said on Slack: good.\nOne more.",
    ],
)
def test_what_another_person_wrote_is_not_what_the_user_states(head: str) -> None:
    stated = "We use Redis for sessions."
    assert of(f"{head} {stated}") == []
    assert [one.text for one in of(f"{head} It failed.\n\n{stated}")] == [stated]


@pytest.mark.parametrize(
    "head", ["Note: it is up.", "Correction: it is up.", "As I said before: it is up.", "Decision: use Go."]
)
def test_a_head_of_the_users_own_hides_nothing(head: str) -> None:
    assert of(f"{head} We use Redis for sessions.")[-1].text == "We use Redis for sessions."


def test_several_statements_of_a_turn_are_several_memories_and_too_many_are_only_proposed() -> None:
    two = of("We use Redis for caching. Never push to main.")
    assert [(one.kind, stands(one)) for one in two] == [(Kind.FACT, True), (Kind.CENSOR, True)]
    many = of("\n".join(f"- We use tool{number} for step{number}." for number in range(MOST + 1)))
    assert len(many) == MOST + 1
    assert not any(map(stands, many))
    assert of("\n".join(f"- We use tool{number} for step{number}." for number in range(MOST_PROPOSED + 1))) == []


def test_an_answer_that_is_confirmed_is_proposed_and_a_bare_yes_confirms_nothing() -> None:
    answer = "The cache is Redis."
    (made,) = of("Yes, that's right.", before=answer)
    assert (made.text, stands(made), made.confidence) == (answer, False, 0.5)
    assert of("yes", before=answer) == []
    assert of("Yes, that's right.", before="Is the cache Redis?") == []
    assert of("Yes, that's right.", before="The cache is Redis. It has 2 GB.") == []
    assert of("Yes, that's right.") == []


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("That worked, thanks!", "success"),
        ("ok, it works now", "success"),
        ("That worked partly.", "partial"),
        ("That didn't work.", "failure"),
        ("It was a mistake, the disk is full again.", "failure"),
        ("Did that work?", None),
        ("I think that worked.", None),
        ("That worked, didn't it?", None),
        ("That worker is slow.", None),
        ("That might be the reason.", None),
        ("> that worked", None),
        ("That worked. " + "And now for something else entirely. " * 10, None),
    ],
)
def test_a_short_turn_tells_how_it_came_out(text: str, outcome: str | None) -> None:
    assert outcome_told(text) == outcome


@pytest.mark.parametrize(
    ("text", "attribute", "sure"),
    [
        ("Always answer in German.", "style:language", True),
        ("From now on, please answer in German.", "style:language", True),
        ("Answer in German.", "style:language", False),
        ("I prefer short answers.", "style:answers", True),
        ("I work as a data engineer.", "trait:work", True),
        ("Call me Sam.", "trait:name", True),
    ],
)
def test_how_a_user_wants_answers_and_who_they_are_stands_in_every_prompt(
    text: str, attribute: str, sure: bool
) -> None:
    (made,) = of(text)
    assert (made.subject, made.attribute, stands(made)) == ("user", attribute, sure)


def test_an_answer_in_one_word_is_no_style() -> None:
    assert of("Answer in one word.") == []


def test_the_setting_lets_nothing_stand_or_makes_nothing() -> None:
    turn = HeardTurn(ME, "We use Redis for caching.")
    assert [stands(one) for one in learned(turn, "on")] == [True]
    assert [stands(one) for one in learned(turn, "proposed")] == [False]
    assert learned(turn, "off") == []


def test_a_long_turn_was_written_elsewhere_and_is_only_proposed() -> None:
    (made,) = of("We use Redis for caching.\n" + "The weather is fine. " * 100)
    assert not stands(made)


def test_names_in_backticks_are_words_and_fenced_code_is_none() -> None:
    assert own_words("`a.b` is\n```\nx\n```\nhere") == "a.b is\n\n\nhere"


@given(some.text(max_size=400))
def test_any_text_makes_memories_of_its_own_words_or_none(text: str) -> None:
    for one in of(text):
        assert one.text.strip()
        assert 0 < one.confidence <= 1


@given(
    some.sampled_from([text for label, text in LABELLED if label]),
    some.sampled_from(["```\n{}\n```", "    {}", "> {}", "$ {}", '"{}"']),
)
def test_a_statement_in_code_or_quotes_makes_nothing(text: str, around: str) -> None:
    assert of(around.format(text.split("\n")[0])) == []


@given(some.text(alphabet="we use for .,\n1-`\"'", min_size=1, max_size=12))
def test_a_text_that_repeats_is_read_in_time_that_grows_with_its_length(piece: str) -> None:
    once, more = ((piece * size)[:size] for size in (5_000, 20_000))
    assert grows_at_most(8, of, once, more)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("surprise = 1", "surprise:"),
        ('openers = "ok"', "openers:"),
        ('[[rule]]\nkind = "thought"\nforms = ["we {text}"]', "rule 1.kind:"),
        ('[[rule]]\nkind = "fact"', "rule 1.forms:"),
        ('[[rule]]\nkind = "fact"\nforms = ["we {what}"]', "rule 1.forms:"),
        ('[[rule]]\nkind = "fact"\nforms = ["{text} {text}"]', "rule 1.forms:"),
        ('[[rule]]\nkind = "fact"\nforms = ["we {text}"]\nsure = 1', "rule 1.sure:"),
        ('[[rule]]\nkind = "fact"\nforms = ["we {text}"]\nsubject = "{who}"', "rule 1.subject:"),
        ('[[rule]]\nkind = "fact"\nforms = ["we {text}"]\nsort = 1', "rule 1.sort:"),
        ("[", "learning:"),
    ],
)
def test_a_fault_in_the_file_is_named_by_its_key(text: str, named: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_rules(text)
    assert refused.value.message.startswith(named)
