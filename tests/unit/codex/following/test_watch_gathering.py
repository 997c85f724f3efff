from codex.following.watch import ChangeBatch, Gathering
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
