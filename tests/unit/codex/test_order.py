from support.prefixes import shared_prefix

from codex.library import fresh_order, next_order
from codex.trees.port import by_age, by_commits

DAY = 86_400 * 10**9


def test_stable_files_stand_left_of_those_that_change() -> None:
    volatility = by_commits({"b.py": 1, "a.py": 40, "c.py": 1})
    assert fresh_order(["a.py", "b.py", "c.py", "d.py"], volatility) == ["d.py", "b.py", "c.py", "a.py"]


def test_without_history_older_files_stand_left() -> None:
    steps = by_age({"old.py": 0, "new.py": 1000 * DAY, "newer.py": 1000 * DAY + 1})
    assert fresh_order(steps, steps) == ["old.py", "new.py", "newer.py"]


def test_files_of_one_archive_are_in_order_of_path() -> None:
    steps = by_age({"b.py": 5, "a.py": 5})
    assert fresh_order(steps, steps) == ["a.py", "b.py"]


def test_the_next_generation_moves_what_changed_to_the_end() -> None:
    old = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")]
    new = {"a": "1", "b": "1", "c": "2", "d": "1", "e": "1", "f": "1"}
    order = next_order(old, new, {})
    assert order == ["a", "b", "d", "e", "c", "f"]
    assert shared_prefix(old, [(path, new[path]) for path in order]) == 2
