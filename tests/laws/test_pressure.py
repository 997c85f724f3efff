"""Pressure levels against a model that keeps the whole history instead of switches."""

from hypothesis import given
from hypothesis import strategies as st

from governor.pressure import START, Level, Power, PressureReading, step, thresholds
from governor.settings import PressureSettings

SETTINGS = PressureSettings()
pressures = st.one_of(
    st.none(), st.floats(0, 1.2), st.sampled_from([0.66, 0.67, 0.69, 0.70, 0.81, 0.82, 0.85, 0.91, 0.92, 0.95, 1.0])
)
histories = st.lists(st.tuples(st.floats(0.1, 40), pressures), max_size=60)


def run(history: list[tuple[float, float | None]]) -> list[Level]:
    state, now, levels = START, 0.0, []
    for passed, pressure in history:
        now += passed
        state = step(state, PressureReading(pressure), now, SETTINGS)
        levels.append(state.level)
    return levels


def naive(history: list[tuple[float, float | None]], threshold: float) -> list[bool]:
    """One threshold, from the whole history: it turns when every reading since some moment that lies far enough back
    would turn it."""
    on, said, now = False, [], 0.0
    seen: list[tuple[float, float | None]] = []  # since it last turned
    for passed, pressure in history:
        now += passed
        seen.append((now, pressure))
        edge, dwell = (threshold - SETTINGS.hysteresis, 60.0) if on else (threshold, 10.0)
        run_of = []
        for at, value in reversed(seen):
            if value is None or (value >= edge) == on:
                break
            run_of.append(at)
        if run_of and now - run_of[-1] >= dwell:
            on, seen = not on, []
        said.append(on)
    return said


@given(histories)
def test_levels_are_those_of_the_model_with_the_whole_history(history: list[tuple[float, float | None]]) -> None:
    switches = [naive(history, threshold) for threshold in thresholds(SETTINGS)]
    assert [level.rank for level in run(history)] == [sum(on) for on in zip(*switches, strict=True)]


@given(histories)
def test_a_higher_threshold_is_never_on_without_the_lower_ones(history: list[tuple[float, float | None]]) -> None:
    state, now = START, 0.0
    for passed, pressure in history:
        now += passed
        state = step(state, PressureReading(pressure), now, SETTINGS)
        on = [switch.on for switch in state.levels]
        assert on == sorted(on, reverse=True)


@given(histories)
def test_a_level_never_falls_sooner_than_its_dwell_after_it_rose(history: list[tuple[float, float | None]]) -> None:
    now, rose, before = 0.0, 0.0, Level.CALM
    for (passed, _), level in zip(history, run(history), strict=True):
        now += passed
        if level.rank > before.rank:
            rose = now
        elif level.rank < before.rank:
            assert now - rose >= SETTINGS.better_s - 1e-6
        before = level


@given(st.floats(0, 1), st.floats(0.1, 5), st.integers(1, 400))
def test_a_steady_pressure_reaches_its_level_and_stays(pressure: float, every: float, times: int) -> None:
    levels = run([(every, pressure)] * times)
    settled = [level for at, level in enumerate(levels) if at * every > 11]
    expected = sum(pressure >= threshold for threshold in thresholds(SETTINGS))
    assert {level.rank for level in settled} <= {expected}


@given(st.lists(st.tuples(st.floats(0.1, 40), st.sampled_from([None, True, False])), max_size=40))
def test_throttled_comes_before_low_power_and_both_keep_their_dwell(
    history: list[tuple[float, bool | None]],
) -> None:
    state, now = START, 0.0
    for passed, flag in history:
        now += passed
        state = step(state, PressureReading(None, flag, True), now, SETTINGS)
        expected = Power.LOW_POWER if state.low_power.on else Power.NORMAL
        assert state.power is (Power.THROTTLED if state.throttled.on else expected)
