"""What a search shows of a row, kept in memory by the row's address: reading it from disk is a sixth of a search.

An address (fragment and offset, LanceDB's `_rowid`) never gets other contents: a change writes new rows into new
fragments, and so does folding. What is kept may belong to rows that are gone; no search finds those again.
About 400 bytes a chunk, and nothing for a table of more than `_MOST` rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

_MOST = 150_000  # 60 MB
_SCANNED = 8_192


class RowCache:
    """One column of one table. Thread-safe: it only grows, or is made anew."""

    def __init__(self, column: str) -> None:
        self.column = column
        self._values: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def of(self, addresses: Sequence[int]) -> list[str] | None:
        """The values of these rows; None when one of them is not known."""
        values = self._values
        try:
            return [values[address] for address in addresses]
        except KeyError:
            return None

    def learn(self, addresses: Iterable[int], values: Iterable[str]) -> None:
        """Of rows that were read; only beside what `fill` found worth keeping."""
        if 0 < len(self._values) < 2 * _MOST:
            self._values.update(zip(addresses, values, strict=True))

    def fill(self, table: Any) -> list[str] | None:
        """Reads the whole table, in place of what was known. Returns all values, None when they are too many to keep."""
        rows = table.count_rows()
        fresh: dict[int, str] = {}
        if 0 < rows <= _MOST:
            for batch in table.search().with_row_id(True).select([self.column]).to_batches(_SCANNED):
                fresh.update(zip(values_of(batch, "_rowid"), values_of(batch, self.column), strict=True))
        every = list(fresh.values())  # before searches add theirs
        self._values = fresh
        return every if rows <= _MOST else None


def values_of(rows: Any, column: str) -> list[Any]:
    """A column without nulls. By way of NumPy: Arrow's own list takes ten times as long."""
    values: list[Any] = rows.column(column).to_numpy(zero_copy_only=False).tolist()
    return values
