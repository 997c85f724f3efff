"""A clock that jumps, forward or back, never makes an older conversation the latest."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.answering.sessions import SessionStore, StoredTurn


class Clock:
    def __init__(self, moments):
        self.moments = list(moments)

    def __call__(self):
        return self.moments.pop(0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.floats(0, 4e9), min_size=7, max_size=7), st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_the_last_one_used_is_the_one_that_is_continued_whatever_the_clock_says(tmp_path, moments, used):
    store = SessionStore(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite3", Clock(moments))
    made = [store.create(1, "demo") for _ in range(3)]
    for number in used:
        store.append(made[number].id, [StoredTurn("user", "hello")])
        assert store.last_of(1, "demo").name == made[number].name
    assert store.all_of(1)[0].name == made[used[-1]].name
    store.close()


@pytest.mark.parametrize("later", [999.0, 1000.0, 1001.0])
def test_a_new_conversation_is_the_latest_though_the_clock_stands_or_was_set_back(tmp_path, later):
    store = SessionStore(tmp_path / "s.sqlite3", Clock([1000.0, later]))
    store.create(1, "demo", "first")
    store.create(1, "demo", "second")
    assert [one.name for one in store.all_of(1)] == ["second", "first"]
    store.close()
