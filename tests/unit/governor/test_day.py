"""A day beside five kinds of programs: nothing flaps, nothing is above the ceiling; the page and its pictures show this."""

from itertools import pairwise
from pathlib import Path

import governor_pictures
import pytest
from governor_day import DAY, PROGRAMS, SETTINGS, TOTAL, Day, Moment, table

from governor.budget import ceiling_of
from governor.pressure import Level

PAGE = Path(__file__).resolve().parents[3] / "docs" / "governor.md"
PROGRAM = pytest.mark.parametrize("name", PROGRAMS)
WORSE, BETTER = SETTINGS.pressure.worse_s, SETTINGS.pressure.better_s


@pytest.fixture(scope="module")
def days() -> dict[str, Day]:
    return governor_pictures.days()


def test_the_page_has_the_table_of_the_day(days: dict[str, Day]) -> None:
    assert "\n".join(table(days)) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["levels.svg", "card.svg", "sacrifice.svg", "day.svg"])
def test_the_pictures_are_what_the_script_draws(days: dict[str, Day], name: str) -> None:
    drawn = governor_pictures.pictures(days)[name].encode()
    assert (governor_pictures.FOLDER / name).read_bytes() == drawn, "run scripts/governor_pictures.py"
    assert f"pictures/{name}" in PAGE.read_text(encoding="utf-8")


@PROGRAM
def test_no_level_and_no_coverage_is_left_before_its_dwell_time(days: dict[str, Day], name: str) -> None:
    """What got worse stays for the 60 seconds of better, what got better for the 10 of worse."""
    for rank in (lambda one: -one.level.rank, lambda one: one.coverage.rank):
        changed = days[name].changes(rank)
        for (before, after), (_, then) in pairwise(changed):
            if (rank(after) < rank(before)) != (rank(then) < rank(after)):
                least = BETTER if rank(after) < rank(before) else WORSE
                assert then.second - after.second >= least, (after, then)


@PROGRAM
def test_what_is_granted_is_never_above_the_ceiling(days: dict[str, Day], name: str) -> None:
    ceiling = ceiling_of(TOTAL, SETTINGS.memory)
    over = [one for one in days[name].moments if one.kv and held(one) > ceiling]
    assert over == []


def held(one: Moment) -> int:
    return one.others + one.fixed + one.kv


@PROGRAM
def test_the_time_before_a_day_is_over_is_accounted_for(days: dict[str, Day], name: str) -> None:
    day = days[name]
    assert sum(day.seconds(lambda one, level=level: one.level is level) for level in Level) == DAY  # type: ignore[misc]
    assert day.computed > 0


def test_a_desktop_moves_nothing_and_a_game_takes_the_codex_down_and_gives_it_back(days: dict[str, Day]) -> None:
    assert days["desktop"].changes(lambda one: one.coverage) == []
    game = days["game"].changes(lambda one: one.coverage)
    assert game[0][1].coverage.rank < game[0][0].coverage.rank
    assert game[-1][1].coverage is game[0][0].coverage
