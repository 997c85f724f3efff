"""The fields of a chunk that a search shows or ranks by: encoded in one column, and cached in memory.

The row codec. One column, because nine columns of a hundred rows take twice as long to read:

    checksum (CRC-32, eight hex digits) · JSON [path, start, end, symbol, kind, signature, names, references]

The checksum detects a changed letter, which neither LanceDB nor JSON does. A text is checked by its digest.

The row cache. Reading rows from disk is a sixth of a search, so that column is cached by the row's address. An address
(fragment and offset, LanceDB's `_rowid`) keeps its content: a change and a fold write new rows into new fragments. The
cache can hold rows that are deleted; no search finds those. It takes about 400 bytes a chunk, and does not cache a table
of more than `_MOST` rows.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from codex.archive.archive import ChunkMatch
from codex.archive.definitions import ChunkPlace
from codex.archive.prepare import PreparedChunk

_CHECK = 8
_MOST = 150_000  # 60 MB
_SCANNED = 8_192


def encode_row(one: PreparedChunk) -> str:
    """The card of a chunk that is to be stored."""
    chunk = one.chunk
    encoded = json.dumps(
        [*(chunk.path, chunk.start, chunk.end, chunk.symbol, chunk.kind, chunk.signature), chunk.names, one.references],
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return _check(encoded) + encoded


def decode_match(card: str, score: float = 0.0) -> ChunkMatch:
    """What was stored. Raises ValueError for a card that is not as it was."""
    path, start, end, symbol, kind, signature, names, references = _decoded(card)
    return ChunkMatch(ChunkPlace(path, start, end), symbol, kind, signature, tuple(names), tuple(references), score)


def decode_place(card: str) -> ChunkPlace:
    """Only where the chunk stands. Raises ValueError like `match_of`."""
    return ChunkPlace(*_decoded(card)[:3])


def checked_text(place: ChunkPlace, text: str, digest: str) -> str:
    """The text, when it is the one that was stored. Raises ValueError."""
    if hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest() != digest:
        raise ValueError(f"the text of {place.path}:{place.start}-{place.end} is not what was stored")
    return text


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


def _decoded(card: str) -> Any:
    if card[:_CHECK] != _check(card[_CHECK:]):
        raise ValueError(f"a card is not what was stored: {card[:80]!r}")
    return json.loads(card[_CHECK:])


def _check(encoded: str) -> str:
    return f"{zlib.crc32(encoded.encode('utf-8', errors='replace')):08x}"
