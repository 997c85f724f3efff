"""Prometheus' text format: families of metrics, the values that they have, and the text. Knows nothing of what is counted.

A family declares every value that its labels may have, so that no more series can come to be than those there are at the
start. https://prometheus.io/docs/instrumenting/exposition_formats has the format, version 0.0.4.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import Literal


@dataclass(frozen=True)
class Family:
    """One metric. `says`: what it counts, in one line. `labels`: each with all values that it may have; a histogram has
    none. `bounds`: of a histogram, the buckets' upper bounds, inclusive and ascending, without infinity."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    says: str
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bounds: Sequence[float] = ()

    @property
    def series(self) -> Iterator[tuple[str, ...]]:
        """The values of its labels, of each series that it may have."""
        return product(*self.labels.values())


@dataclass(frozen=True)
class Distribution:
    """How many values lay in each bucket, those above the last bound at the end, and their sum."""

    counts: Sequence[int]
    total: float


Values = float | Distribution | Mapping[tuple[str, ...], float]
Metric = tuple[Family, Values]
"""A family and its value: of a histogram a distribution, with labels one number a series, else a number."""


class Tally:
    """Counts events of one family, by its labels; all series stand at 0 from the start."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._counts: dict[tuple[str, ...], float] = dict.fromkeys(family.series, 0)

    def add(self, *labels: str, by: float = 1) -> None:
        """Raises KeyError for a value of a label that the family does not declare."""
        self._counts[labels] += by

    def metric(self) -> Metric:
        return self.family, self._counts


class Histogram:
    """Counts values of one family by their size."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._counts = [0] * (len(family.bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.family.bounds, value)] += 1
        self._total += value

    def metric(self) -> Metric:
        return self.family, Distribution(self._counts, self._total)


def text(metrics: Iterable[Metric]) -> str:
    """Of families that each come once."""
    return "".join(f"{line}\n" for family, values in metrics for line in lines(family, values))


def lines(family: Family, values: Values) -> Iterator[str]:
    yield f"# HELP {family.name} {family.says}"
    yield f"# TYPE {family.name} {family.kind}"
    if isinstance(values, Distribution):
        yield from histogram_lines(family, values)
    elif isinstance(values, Mapping):
        for series, value in values.items():
            yield f"{family.name}{labelled(family, series)} {value!r}"
    else:
        yield f"{family.name} {values!r}"


def histogram_lines(family: Family, values: Distribution) -> Iterator[str]:
    """Each bucket counts all values up to its bound."""
    bounds = (*map(repr, family.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(values.counts), strict=True):
        yield f'{family.name}_bucket{{le="{bound}"}} {count}'
    yield f"{family.name}_sum {values.total!r}"
    yield f"{family.name}_count {sum(values.counts)}"


def labelled(family: Family, series: Sequence[str]) -> str:
    """Values are names of ours, which hold nothing that the format escapes."""
    pairs = (f'{label}="{value}"' for label, value in zip(family.labels, series, strict=True))
    return f"{{{','.join(pairs)}}}"
