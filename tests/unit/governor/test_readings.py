"""Several GPUs read as one: the one that is fullest for its share bounds the whole."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpus import gpu

from governor.readings import HostReading, MemoryReading, SensorSnapshot, host_memory, memory_of, pooled
from governor.settings import GIB


def test_shared_by_what_is_free_all_of_it_can_be_had() -> None:
    whole = pooled((gpu(0, 24 * GIB, 18 * GIB), gpu(1, 8 * GIB, 6 * GIB)), (0.75, 0.25))
    assert (whole.free, whole.used, whole.total) == (24 * GIB, 8 * GIB, 32 * GIB)
    assert whole.name == "card 0 + card 1"


def test_a_gpu_that_others_fill_bounds_the_whole() -> None:
    whole = pooled((gpu(0, 24 * GIB, 20 * GIB), gpu(1, 24 * GIB, 2 * GIB)), (0.5, 0.5))
    assert whole.free == 4 * GIB


def test_with_all_on_one_gpu_the_others_do_not_count() -> None:
    one = gpu(1, 8 * GIB, 6 * GIB)
    assert pooled((gpu(0, 24 * GIB, 1 * GIB), one), (0.0, 1.0)) == one


def test_what_one_gpu_does_not_tell_is_unknown_of_the_whole() -> None:
    whole = pooled((gpu(0, 24 * GIB, None), gpu(1, 8 * GIB, 6 * GIB, None)), (0.5, 0.5))
    assert (whole.free, whole.total, whole.own) == (None, None, None)


@pytest.mark.parametrize("wrong", [{"total": 0, "free": 0}, {"free": -1}, {"free": 25 * GIB}, {"total": -1}])
def test_figures_that_cannot_be_are_unknown(wrong: dict[str, int]) -> None:
    card = gpu(0, 24 * GIB, 20 * GIB)
    assert memory_of(SensorSnapshot(0.0, (card,), HostReading())) == MemoryReading("VRAM", 24 * GIB, 20 * GIB, 0)
    assert memory_of(SensorSnapshot(0.0, (replace(card, **wrong),), HostReading())) is None
    host = replace(
        HostReading(ram_total=24 * GIB, ram_available=20 * GIB),
        **{{"total": "ram_total", "free": "ram_available"}[name]: value for name, value in wrong.items()},
    )
    assert host_memory(SensorSnapshot(0.0, (), host)) is None


@pytest.mark.parametrize(("said", "counts"), [(-GIB, 0), (30 * GIB, 4 * GIB), (None, None)])
def test_no_more_can_be_ours_than_is_used(said: int | None, counts: int | None) -> None:
    memory = memory_of(SensorSnapshot(0.0, (gpu(0, 24 * GIB, 20 * GIB, said),), HostReading()))
    assert memory == MemoryReading("VRAM", 24 * GIB, 20 * GIB, counts)


@given(st.lists(st.tuples(st.integers(0, 10**11), st.integers(1, 100)), min_size=2, max_size=6))
def test_what_can_be_had_of_the_whole_fits_on_every_gpu(cards: list[tuple[int, int]]) -> None:
    parts = sum(part for _, part in cards)
    shares = [part / parts for _, part in cards]
    whole = pooled([gpu(at, 10**11, free) for at, (free, _) in enumerate(cards)], shares)
    assert whole.free is not None
    assert all(whole.free * share <= free + 1 for (free, _), share in zip(cards, shares, strict=True))
