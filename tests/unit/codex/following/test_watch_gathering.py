from hypothesis import given
from hypothesis import strategies as st

from codex.following.gathering import ChangeBatch, Gathering, Pace
from codex.settings import WatchSettings

SETTINGS = WatchSettings(debounce_s=0.3, longest_wait_s=2.0, longest_hold_s=60.0)


def test_nothing_is_due_while_nothing_happened() -> None:
    assert Gathering(SETTINGS).due() is None
    assert Gathering(SETTINGS).take(1e9) is None


def test_the_events_of_one_save_are_one_batch() -> None:
    gathering = Gathering(SETTINGS)
    for at, path in [(10.0, "a.py~"), (10.1, "a.py"), (10.2, "a.py")]:
        gathering.note(at, path)
    assert gathering.take(10.4) is None
    assert gathering.take(10.5) == ChangeBatch(frozenset({"a.py~", "a.py"}))
    assert gathering.take(99.0) is None


def test_a_stream_of_writes_is_told_at_the_longest_wait() -> None:
    gathering = Gathering(SETTINGS)
    for tenth in range(30):
        gathering.note(tenth / 10, "log.txt")
    assert gathering.due() == 2.0


def test_a_checkout_is_one_batch_told_after_its_end() -> None:
    gathering = Gathering(SETTINGS)
    gathering.hold(0.0)
    for number in range(500):
        gathering.note(number / 100, f"f{number}.py")
    assert gathering.take(5.5) is None
    gathering.note(5.6, everything=True, commit=True)
    gathering.release(5.7)
    batch = gathering.take(6.0)
    assert batch is not None
    assert (len(batch.paths), batch.everything, batch.commit) == (500, True, True)


def test_a_lock_left_behind_by_a_killed_git_holds_only_for_its_time() -> None:
    gathering = Gathering(SETTINGS)
    gathering.hold(0.0)
    gathering.note(1.0, "a.py")
    assert gathering.due() == 60.0


def test_an_index_lock_without_any_change_tells_nothing() -> None:
    gathering = Gathering(SETTINGS)
    gathering.hold(0.0)
    gathering.release(0.1)
    assert gathering.due() is None


def test_more_paths_than_can_be_listed_become_a_comparison_of_everything() -> None:
    gathering = Gathering(SETTINGS)
    for number in range(3000):
        gathering.note(0.0, f"f{number}")
    batch = gathering.take(1.0)
    assert batch is not None
    assert batch.everything


def test_a_change_that_comes_alone_is_taken_in_at_once() -> None:
    pace = Pace()
    assert pace.left(0.0) == 0.0
    pace.ended(0.0, 4.0)
    assert pace.left(4.0) == 0.0
    pace.ended(100.0, 104.0)
    assert pace.left(104.0) == 0.0


def test_of_a_stream_each_but_the_first_rests_twice_as_long_as_it_took_and_half_a_minute_at_most() -> None:
    pace = Pace()
    pace.ended(0.0, 4.0)
    pace.ended(4.0, 8.0)
    assert (pace.left(8.0), pace.left(15.0), pace.left(17.0)) == (8.0, 1.0, 0.0)
    pace.ended(16.0, 116.0)
    assert pace.left(116.0) == 30.0


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 40)), min_size=2, max_size=30))
def test_of_any_stream_a_third_of_the_time_is_taken_and_one_more_and_none_waits_longer_than_its_rest(
    batches: list[tuple[float, float]],
) -> None:
    pace, now, took = Pace(), 0.0, list[float]()
    for takes, gap in batches:
        came = now + gap
        begins = came + pace.left(came)
        assert begins - came <= 2 * max(took, default=0.0) + 1e-9
        now = begins + takes
        pace.ended(begins, now)
        took.append(takes)
    assert sum(took) <= now / 3 + 2 * max(took)
