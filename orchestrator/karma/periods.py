"""The times that a question names: months and dates, and how near to them a moment is. Pure.

    "in May 2023"        that month              "on 16 March", "March 16"    that day, of any year
    "2023-05-16"         that day                "in May"                     that month, of any year

What happened then was told then, or in the weeks after. "Yesterday" and the like are no times here: they ask for what is
new, whatever that is (`intent`). Days are those of UTC.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.karma.records import DAY_S

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
FADES_DAYS = 10.0  # behind a period a memory counts 1/e after so many days; 5 to 20 find the same
EARLY = 3.0  # a day before the period counts as three behind it: what has not happened is told less often
_MONTH = "|".join(MONTHS)
_DATE = re.compile(
    r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)\b"
    rf"|\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<name>{_MONTH})\b"
    r"(?: (?P<after>\d{1,2})(?:st|nd|rd|th)?\b)?(?:,? (?P<in>\d{4})\b)?",
    re.IGNORECASE,
)
_VERBS = frozenset({"may", "march"})  # in small letters without a number


@dataclass(frozen=True)
class Period:
    """`day` None: the whole month; `year` None: of any year."""

    month: int
    day: int | None = None
    year: int | None = None

    def days_to(self, moment: datetime) -> float:
        """0 within it; behind it days, before it three times as many; of any year, to the nearest."""
        years = [self.year] if self.year is not None else [moment.year - 1, moment.year, moment.year + 1]
        return min((_days(begin, end, moment) for year in years for begin, end in self._spans(year)), default=math.inf)

    def _spans(self, year: int) -> list[tuple[datetime, datetime]]:
        """One, or none where that month has no such day."""
        try:
            begin = datetime(year, self.month, self.day or 1, tzinfo=UTC)
            end = datetime(year + self.month // 12, self.month % 12 + 1, 1, tzinfo=UTC)
        except ValueError:
            return []
        return [(begin, end if self.day is None else begin + timedelta(days=1))]


def periods_of(question: str) -> list[Period]:
    found = []
    for one in _DATE.finditer(question):
        if one["year"]:
            found.append(Period(int(one["month"]), int(one["day"]), int(one["year"])))
            continue
        day, year = one["before"] or one["after"], one["in"]
        if day or year or one["name"] not in _VERBS:
            month = MONTHS.index(one["name"].lower()) + 1
            found.append(Period(month, int(day) if day else None, int(year) if year else None))
    return [one for one in found if 1 <= one.month <= len(MONTHS)]


def nearness(periods: Iterable[Period], moment_s: float) -> float:
    """1 in one of them, less before and behind; 0 where none is named."""
    moment = datetime.fromtimestamp(moment_s, UTC)
    return max((math.exp(-one.days_to(moment) / FADES_DAYS) for one in periods), default=0.0)


def day_of(moment_s: float) -> str:
    """As `16 May 2023`."""
    moment = datetime.fromtimestamp(moment_s, UTC)
    return f"{moment.day} {MONTHS[moment.month - 1].capitalize()} {moment.year}"


def _days(begin: datetime, end: datetime, moment: datetime) -> float:
    seconds = (moment - end).total_seconds() if moment >= end else EARLY * max(0.0, (begin - moment).total_seconds())
    return seconds / DAY_S
