"""What a terminal gets: our own marks as they are, and of everybody else's text nothing that drives it."""

import io
from collections.abc import Callable

import pytest

from orchestrator.cli.client import Failure
from orchestrator.cli.terminal import folded, result

Shown = Callable[[Callable[[], None]], str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What an action writes to a terminal that knows colours. Set up in the test: pytest takes stdout back before it."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def written_by(action: Callable[[], None]) -> str:
        stream = Terminal()
        with monkeypatch.context() as patched:
            patched.setattr("sys.stdout", stream)
            patched.setattr("sys.stderr", stream)
            action()
        return stream.getvalue()

    return written_by


def test_a_lead_is_bold_and_nothing_within_it_or_behind_it_drives_the_terminal(shown: Shown) -> None:
    assert shown(lambda: result(" red \x1b[31m", lead="a\x07.py:1")) == "\x1b[1ma�.py:1\x1b[0m red �[31m\n"


def test_marks_that_turn_the_direction_of_a_line_are_not_shown(shown: Shown) -> None:
    assert shown(lambda: result("a\u202eb\u2066c")) == "a�b�c\n"


def test_a_failure_that_names_what_was_typed_or_read_does_not_drive_the_terminal(shown: Shown) -> None:
    assert shown(Failure(1, "no session s\x1b[31m", "try \x07").show) == "lore: no session s�[31m\n      try �\n"


def test_a_line_of_parts_is_folded_between_them_and_in_a_pipe_not_at_all():
    assert folded("one · two · three", 12) == "one · two\nthree"
    assert folded("a part that is longer · two", 8) == "a part that is longer\ntwo"
    assert folded("one · two · three", None) == "one · two · three"
