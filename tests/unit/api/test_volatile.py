"""Lines of a system message that change from request to request are told from those that stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.volatile import is_volatile, settled


@pytest.mark.parametrize(
    "line",
    [
        "Today's date: Mon Nov 24 2026",
        "  Today's date is 2026-11-24.",
        "The current date is November 24, 2026.",
        "Current time: 2026-11-24T10:15:00Z",
        "- Current date and time: 10:15",
        "Current file: src/a.py",
        "The user's current file is /home/me/a.py.",
        "Currently open files: a.py, b.py",
        "Active editor: a.py:12",
    ],
)
def test_a_time_and_a_place_in_an_editor_change(line):
    assert is_volatile(line)


@pytest.mark.parametrize(
    "line",
    [
        "You are a careful assistant.",
        "Give dates as 2026-11-24.",
        "Today we work on the parser.",
        "Open files with care: they may be large.",
        "The current file format has 3 versions.",
        "Current files are read once, 3 at a time: " + "x" * 300,
        "date",
        "",
    ],
)
def test_rules_about_times_and_files_stay(line):
    assert not is_volatile(line)


@given(st.lists(st.text(alphabet="ab: \nDate12", max_size=80), max_size=4))
def test_nothing_is_lost_and_a_message_without_such_a_line_is_the_same_text(texts):
    found = settled(texts)
    assert len(found.texts) == len(texts)
    for text, kept in zip(texts, found.texts, strict=True):
        lines = text.splitlines(keepends=True)
        assert kept == "".join(line for line in lines if not is_volatile(line))
    assert list(found.moved) == [line.strip() for text in texts for line in text.splitlines() if is_volatile(line)]
