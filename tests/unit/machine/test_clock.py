"""A clock that nobody sets, beside a wall clock that is set to and fro."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.machine.clock import SHIFTED_S, SteadyClock, since_boot

YEAR = 365 * 86_400.0
STEPS = st.lists(st.tuples(st.floats(0, YEAR), st.sampled_from([0.0, 0.0, 3600.0, -3600.0, 20 * YEAR, -20 * YEAR])))


@given(STEPS)
def test_it_tells_what_has_passed_however_the_wall_clock_is_set(steps):
    passed, wall = [100.0], [1.7e9]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    began, lasted, moved = clock(), 0.0, 0.0
    for more, by in steps:
        lasted, moved = lasted + more, moved + by
        passed[0] += more
        wall[0] += more + by
        assert abs(clock() - began - lasted) < 0.01
        assert abs(clock.shift - moved) < 0.01
        assert clock.oldest() <= min(wall[0], clock()) + 0.01


def test_a_wall_clock_that_is_merely_kept_is_not_told_as_set():
    wall = [1.7e9]
    clock = SteadyClock(lambda: wall[0], lambda: 0.0)
    for _ in range(3):
        wall[0] += SHIFTED_S / 4
        assert clock.shift == 0.0
    wall[0] += SHIFTED_S
    told = clock.shift
    wall[0] += SHIFTED_S / 2
    assert clock.shift == told > SHIFTED_S


def test_it_goes_on_by_itself():
    before = since_boot()
    assert since_boot() >= before > 0
