import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.relevance.intent import is_greeting
from orchestrator.relevance.signals import SIGNALS, Turn, mode_of, signals_of, warmth_of


@pytest.mark.parametrize(
    ("question", "mode"),
    [
        ("Hello!", "ACKNOWLEDGE"),
        ("thanks a lot", "ACKNOWLEDGE"),
        ("ok", "ACKNOWLEDGE"),
        ("which one do you mean?", "CLARIFY"),
        ("change the port to 8080", "ACT"),
        ("please run the tests", "ACT"),
        ("Write the summary to notes.md", "ACT"),
        ("do we read the configuration twice?", "RESPOND"),
        ("hello, where is the configuration read?", "RESPOND"),
    ],
)
def test_the_mode_follows_from_the_words(question: str, mode: str) -> None:
    assert mode_of(question, tokens=5, warmth=1.0) == mode


def test_nothing_is_clarified_in_a_cold_conversation_or_by_a_long_question() -> None:
    assert mode_of("which one?", tokens=3, warmth=0.0) == "RESPOND"
    assert mode_of("which one?", tokens=13, warmth=1.0) == "RESPOND"


def test_an_hour_of_silence_halves_the_warmth() -> None:
    assert warmth_of(4, 0.0) == 1.0
    assert warmth_of(2, 3600.0) == 0.25


def test_a_user_returns_after_thirty_minutes_and_never_without_an_earlier_turn() -> None:
    def returns(turns: int, silence: float) -> object:
        return signals_of(Turn("and now?", 3, turns, silence))["returning_from_silence"]

    assert [returns(1, 1799.0), returns(1, 1800.0), returns(0, 9000.0)] == [False, True, False]


def test_what_the_client_says_of_mode_and_urgency_stands() -> None:
    found = signals_of(Turn("Hello!", 2, mode="ACT", urgency="high"))
    assert (found["mode"], found["urgency"], found["greeting_pattern"]) == ("ACT", "high", True)


def test_what_is_not_known_is_left_out() -> None:
    assert SIGNALS.keys() - signals_of(Turn("why?", 2)).keys() == {"context_pressure", "vram_level"}


@given(st.text(), st.integers(0, 50), st.floats(0, 1e7))
def test_any_turn_has_a_warmth_within_its_bounds_and_a_known_mode(question: str, turns: int, silence: float) -> None:
    found = signals_of(Turn(question, len(question), turns, silence))
    assert 0.0 <= float(found["context_warmth"]) <= 1.0
    assert found["mode"] in {"RESPOND", "CLARIFY", "ACT", "ACKNOWLEDGE"}
    assert not is_greeting(question) or found["mode"] == "ACKNOWLEDGE"
