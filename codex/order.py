"""The order of a codex's files, after one rule: whatever changes more often stands further right.

A prefix is shared up to the first difference, so a file that changes belongs at the end. The order is frozen with a
generation; the next one keeps it as far as possible. Pure: knows neither disk nor clock.

    old     a  b  c  d  e          c was edited, f is new
    new     a  b  d  e  c  f       shared: a b
"""

from collections.abc import Iterable, Mapping, Sequence

_DAY_NS = 86_400 * 1_000_000_000
_OLDEST = 12  # steps of age: 2**12 days are eleven years
BEING_WRITTEN = 99  # differs from the commit, or is not in version control yet: right of everything else


def by_commits(commits: Mapping[str, int]) -> dict[str, int]:
    """Volatility from the number of recent commits that touched a file, in powers of two."""
    return {path: count.bit_length() for path, count in commits.items()}


def by_age(modified_ns: Mapping[str, int]) -> dict[str, int]:
    """Volatility from times of change, measured from the newest file and not from a clock, in powers of two days."""
    newest = max(modified_ns.values(), default=0)
    return {path: _OLDEST - min(_OLDEST, ((newest - at) // _DAY_NS).bit_length()) for path, at in modified_ns.items()}


def fresh_order(paths: Iterable[str], volatility: Mapping[str, int]) -> list[str]:
    """Stable files first, then by path. Without a known volatility a file counts as hardly ever changed."""
    return sorted(paths, key=lambda path: (volatility.get(path, 0), path))


def next_order(old: Sequence[tuple[str, str]], new: Mapping[str, str], volatility: Mapping[str, int]) -> list[str]:
    """Order of the next generation. `old`: (path, digest) in order; `new`: digest by path.

    Unchanged files keep their order; changed and added ones follow. No order shares a longer prefix with the old one.
    """
    kept = [path for path, digest in old if new.get(path) == digest]
    rest = new.keys() - set(kept)
    return kept + fresh_order(rest, volatility)
