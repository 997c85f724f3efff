"""What a terminal gets: our own marks as they are, and of everybody else's text nothing that drives it."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.client import Failure
from orchestrator.cli.terminal import first_time, folded, kv_loss, laid, result, result_page

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


def test_what_was_shown_is_known_again_with_other_numbers_but_not_with_other_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lorekeep").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("sys.stderr", Terminal())
    told = "demo: map, because 100k tokens need 12.2 GiB of KV and 6.1 GiB are free"
    assert (first_time(told), first_time(told.replace("6.1", "5.9"))) == (True, False)
    assert first_time(told.replace("demo", "demo2"))
    assert first_time("demo: map, because 1,000 tokens do not fit in the 900 that a window of 2,048 leaves")


def test_a_failure_that_names_what_was_typed_or_read_does_not_drive_the_terminal(shown: Shown) -> None:
    assert shown(Failure(1, "no session s\x1b[31m", "try \x07").show) == "lore: no session s�[31m\n      try �\n"


def test_a_line_of_parts_is_folded_between_them_and_in_a_pipe_not_at_all():
    assert folded("one · two · three", 12) == "one · two\nthree"
    assert folded("a part that is longer · two", 8) == "a part that is longer\ntwo"
    assert folded("one · two · three", None) == "one · two · three"


def test_a_line_that_is_too_long_goes_on_below_its_last_part_and_no_word_is_broken() -> None:
    page = (
        "coverage   map, because 3,007,848 tokens do not fit in the 11,468\n           a model with a window would do"
    )
    assert laid(page, 40).splitlines() == [
        "coverage   map, because 3,007,848 tokens",
        "           do not fit in the 11,468",
        "           a model with a window would",
        "           do",
    ]
    assert laid(page, None) == laid(page, 80) == page
    assert laid("  a/long/path/that/no/terminal/breaks.py  and words", 20).splitlines() == [
        "  a/long/path/that/no/terminal/breaks.py",
        "    and words",
    ]


def test_a_result_in_a_pipe_keeps_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", stream)
        result_page("word " * 100)
    assert stream.getvalue() == "word " * 100 + "\n"


@given(text=st.text(alphabet="ab \n", max_size=300), columns=st.integers(1, 60))
def test_folding_leaves_every_word_and_adds_none(text: str, columns: int) -> None:
    assert laid(text, columns).split() == text.split()
    assert all(len(line) <= columns or len(line.split()) == 1 for line in laid(text, columns).splitlines())


def test_what_a_type_of_kv_loses_is_told_by_its_mean_and_its_99th_percentile() -> None:
    loss = {"mean": 0.0012, "worst": 0.013, "changed": 0.004, "tokens": 2_048, "codex": "demo"}
    told = "KL 0.0012 mean, 0.0130 99th percentile, 0.4 % other tokens (2,048 tokens of demo)"
    assert kv_loss(loss) == told
