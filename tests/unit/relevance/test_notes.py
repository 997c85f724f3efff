"""Notes beside a question: told when they change, and only what the gate wants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.context import NoteView, TurnView
from orchestrator.relevance.intent import frame_of
from orchestrator.relevance.notes import ONBOARDING, NoteFacts, in_words, notes_of

DEBUG, QUESTION = frame_of("why does it raise an exception?"), frame_of("where is the parser?")


def facts(**more: object) -> NoteFacts:
    return NoteFacts(**{"frame": QUESTION, "away": None, "last": "", "files": (), "loaded": True, **more})  # type: ignore[arg-type]


def nodes(notes: tuple[NoteView, ...]) -> list[str]:
    return [one.node for one in notes]


def any_node(_: str) -> bool:
    return True


def asked(notes: tuple[NoteView, ...]) -> TurnView:
    return TurnView(role="user", text="why?", notes=notes)


def test_a_frame_tells_what_to_consider_once_and_again_when_another_frame_was_told_between() -> None:
    first = notes_of(facts(frame=DEBUG), (), any_node)
    assert (
        first[0].text
        == "Something does not work as it should. Consider first: What changed last? What was tried already?"
    )
    assert notes_of(facts(frame=DEBUG), [asked(first)], any_node) == ()
    decision = notes_of(facts(frame=frame_of("should we use Redis?")), [asked(first)], any_node)
    assert nodes(decision) == ["identity_modulation"]
    assert notes_of(facts(frame=DEBUG), [asked(first), asked(decision)], any_node) == first


def test_a_decision_is_told_how_right_earlier_ones_were() -> None:
    deciding = facts(frame=frame_of("should we use Redis?"), calibration="Of 6 past decisions 33% went well.")
    (note,) = notes_of(deciding, (), any_node)
    assert note.text.endswith("What would make it wrong? Of 6 past decisions 33% went well.")


def test_a_plain_question_says_nothing_beside_it() -> None:
    assert notes_of(facts(), (), any_node) == ()


def test_where_nothing_is_loaded_the_model_is_told_how_something_is() -> None:
    assert [one.text for one in notes_of(facts(loaded=False), (), any_node)] == [ONBOARDING]


def test_a_user_who_returns_is_told_of_the_absence_the_last_question_and_the_files_of_the_conversation() -> None:
    returned = facts(away=7_300.0, last="where is\nthe parser?", files=("a.py", "b.py"))
    told = notes_of(returned, [asked(notes_of(returned, (), any_node))], any_node)
    assert [one.text for one in told] == [
        "The user returns after 2 hours. Asked last: where is the parser?",
        "This conversation is about a.py, b.py",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1_800, "30 minutes"), (3_600, "60 minutes"), (7_200, "2 hours"), (100_000, "27 hours"), (200_000, "2 days")],
)
def test_an_absence_is_told_in_its_largest_unit(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


@given(
    st.frozensets(st.sampled_from(["identity_modulation", "onboarding_nudge", "warm_return_hint", "focus"])),
    st.booleans(),
    st.sampled_from([None, 1_800.0, 90_000.0]),
)
def test_what_the_gate_excludes_is_never_told(excluded: frozenset[str], loaded: bool, away: float | None) -> None:
    given_facts = facts(frame=DEBUG, away=away, last="q", files=("a.py",), loaded=loaded)
    told = set(nodes(notes_of(given_facts, (), lambda node: node not in excluded)))
    assert told == set(nodes(notes_of(given_facts, (), any_node))) - excluded
