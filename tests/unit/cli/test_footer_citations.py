"""Citations under an answer: each place once, and what is wrong with one behind it."""

from orchestrator.cli.ask import answer_footer, citation_lines


def test_a_wrong_place_is_marked_with_what_is_wrong() -> None:
    right = {"path": "a.py", "start": 3, "end": 4, "valid": True}
    wrong = {"path": "b.py", "start": 9, "end": 9, "valid": False, "why": "the file has 5 lines"}
    assert citation_lines([right, wrong, right]) == ["cites a.py:3, b.py:9 (the file has 5 lines)"]


def test_an_older_daemon_says_only_that_a_place_is_wrong() -> None:
    assert citation_lines([{"path": "b.py", "start": 9, "end": 9, "valid": False}]) == ["cites b.py:9 (not there)"]


def test_a_turn_that_was_not_saved_is_said_in_place_of_how_its_session_goes_on() -> None:
    kept = {"session": "plans", "strategy": {}, "prompt": {}}
    assert any("go on: lore ask -s plans" in line for line in answer_footer(kept))
    lines = answer_footer({**kept, "not_kept": "no room left for sessions.sqlite3"})
    assert "this turn was not saved: no room left for sessions.sqlite3" in lines
    assert not any("go on" in line for line in lines)


def test_nothing_cited_gives_no_line() -> None:
    assert citation_lines([]) == []
