"""Laws of the times that a question names."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as some

from orchestrator.karma.periods import MONTHS, nearness, periods_of

MOMENTS = some.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=some.just(UTC))


@given(MOMENTS)
def test_a_moment_is_in_every_time_that_names_its_month_or_day(moment: datetime) -> None:
    month = MONTHS[moment.month - 1].capitalize()
    names = (
        month,
        f"{month} {moment.year}",
        f"{month} {moment.day}",
        f"{moment.day} {month} {moment.year}",
        f"{moment:%Y-%m-%d}",
    )
    for name in names:
        assert nearness(periods_of(f"what was said in {name}?"), moment.timestamp()) == 1, name


@given(MOMENTS, MOMENTS)
def test_nearness_is_a_share_and_is_0_where_no_time_is_named(moment: datetime, named: datetime) -> None:
    assert nearness([], moment.timestamp()) == 0
    assert 0 <= nearness(periods_of(f"on {named:%Y-%m-%d}"), moment.timestamp()) <= 1


@given(some.text(max_size=40))
def test_any_text_is_read_for_times(text: str) -> None:
    assert all(1 <= one.month <= 12 for one in periods_of(text))
