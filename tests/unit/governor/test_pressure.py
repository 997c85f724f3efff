"""What pressure is made of, and what the power levels look at."""

from dataclasses import replace

import pytest

from governor.pressure import START, Level, Power, PressureReading, pressure_of, reading_of, step
from governor.readings import GpuReading, HostReading, MemoryReading
from governor.settings import GIB, PressureSettings

SETTINGS = PressureSettings()
HOST = HostReading()
GPU = GpuReading(0, "GPU-1", "gpu")


def test_pressure_is_what_others_hold_and_never_our_own_kv() -> None:
    assert pressure_of(MemoryReading("VRAM", 24 * GIB, 2 * GIB, 18 * GIB), 20 * GIB, 0) == pytest.approx(4 / 20)
    assert pressure_of(MemoryReading("VRAM", 24 * GIB, 0, 24 * GIB), 20 * GIB, 0) == 0.0


def test_weights_are_no_pressure_however_much_of_the_memory_they_fill() -> None:
    assert pressure_of(MemoryReading("VRAM", 24 * GIB, 2 * GIB, 22 * GIB), 23 * GIB, 20 * GIB) == 0.0
    assert pressure_of(MemoryReading("VRAM", 24 * GIB, 1 * GIB, 22 * GIB), 23 * GIB, 20 * GIB) == pytest.approx(1 / 3)


def test_where_weights_leave_nothing_pressure_is_full() -> None:
    assert pressure_of(MemoryReading("VRAM", 1, 1, 0), 0, 0) == 1.0
    assert pressure_of(MemoryReading("VRAM", 24 * GIB, 0, 24 * GIB), 23 * GIB, 23 * GIB) == 1.0


@pytest.mark.parametrize(
    ("gpu", "host", "throttled", "low_power"),
    [
        (None, HOST, None, None),
        (GPU, HOST, None, None),
        (GPU, replace(HOST, on_battery=True), None, True),
        (GPU, replace(HOST, on_battery=False), None, False),
        (replace(GPU, clock_reasons=frozenset({"power-cap", "idle"})), HOST, False, None),
        (replace(GPU, clock_reasons=frozenset({"thermal"})), HOST, True, None),
        (replace(GPU, power_limit=100.0, power_default=350.0), HOST, None, True),
        (replace(GPU, power_limit=300.0, power_default=350.0), HOST, None, False),
    ],
)
def test_power_looks_at_battery_limit_and_clock_reasons(
    gpu: GpuReading | None, host: HostReading, throttled: bool | None, low_power: bool | None
) -> None:
    assert reading_of(0.5, gpu, host, SETTINGS) == PressureReading(0.5, throttled, low_power)


def test_a_level_is_entered_after_10_s_and_left_after_60() -> None:
    state = START
    seen = []
    for now, pressure in ((0, 0.96), (9, 0.96), (10, 0.96), (11, 0.5), (70, 0.5), (71, 0.5)):
        state = step(state, PressureReading(pressure), float(now), SETTINGS)
        seen.append(state.level)
    assert seen == [Level.CALM, Level.CALM, Level.CRITICAL, Level.CRITICAL, Level.CRITICAL, Level.CALM]


def test_a_spike_that_passes_and_an_unknown_reading_change_nothing() -> None:
    state = START
    for now, pressure in ((0, 0.99), (8, 0.1), (9, 0.99), (15, None), (20, 0.99), (29, 0.99)):
        state = step(state, PressureReading(pressure), float(now), SETTINGS)
        assert state.level is Level.CALM
    assert state.power is Power.NORMAL


def test_levels_have_an_order() -> None:
    assert [level.rank for level in Level] == [0, 1, 2, 3]
