"""Full collections are put off while something large is built, and come back."""

import gc
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

from codex.process_memory import gc_pause


@pytest.fixture
def small_heap() -> Iterator[None]:
    """What lives so far is not counted: Python puts a full collection off until a quarter of what it saw last is new."""
    gc.freeze()
    gc.collect()
    yield
    gc.unfreeze()


@pytest.fixture
def full(small_heap: None) -> Iterator[list[int]]:
    """Grows by one with every full collection."""
    seen: list[int] = []

    def heard(phase: str, facts: dict[str, int]) -> None:
        if phase == "start" and facts["generation"] == 2:
            seen.append(1)

    gc.callbacks.append(heard)
    yield seen
    gc.callbacks.remove(heard)


def build(count: int) -> list[list[int]]:
    return [[number] for number in range(count)]


def test_no_full_collection_begins_inside_however_much_is_built(full: list[int]) -> None:
    gc.collect()
    before = len(full)
    with gc_pause():
        kept = build(1_000_000)
        assert len(full) == before
    del kept
    more = build(200_000)
    assert len(full) > before, "it is due again"
    del more


def test_what_is_young_is_collected_inside_too() -> None:
    class Ring:
        pass

    with gc_pause():
        for _ in range(10_000):
            ring = Ring()
            ring.self = ring  # type: ignore[attr-defined]
        del ring
        assert sum(isinstance(one, Ring) for one in gc.get_objects()) < 9_000


def test_the_last_who_leaves_brings_back_what_was_and_so_does_a_failure() -> None:
    usual = gc.get_threshold()
    both = Barrier(2)

    def work() -> None:
        with gc_pause():
            both.wait()
            both.wait()

    def fail() -> None:
        with gc_pause():
            both.wait()
            raise ValueError("broken")

    other = Thread(target=work)
    other.start()
    with pytest.raises(ValueError, match="broken"):
        fail()
    assert gc.get_threshold() != usual
    both.wait()
    other.join()
    assert gc.get_threshold() == usual
