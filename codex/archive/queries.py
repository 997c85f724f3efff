"""The chunks of one codex's archive: their values, the queries of its tables, and what is kept of them in memory.

Queries are by words, by string, by place, by digest, or of all rows. They know LanceDB and Arrow, and no folders, locks or
codices, and raise what LanceDB raises.

The row codec. What a search shows or ranks by is one column, because nine columns of a hundred rows take twice as long to
read. The checksum detects a changed letter, which neither LanceDB nor JSON does; a text is checked by its digest:

    checksum (CRC-32, eight hex digits) · JSON [path, start, end, symbol, kind, signature, names, references]

The row cache. Reading rows from disk is a sixth of a search, so that column is cached by the row's address. An address
(fragment and offset, LanceDB's `_rowid`) keeps its content: a change and a fold write new rows into new fragments. The
cache can hold rows that are deleted; no search finds those. It takes about 400 bytes a chunk, and does not cache a table
of more than `_MOST` rows.

The definitions. A gigabyte of source has 1.6 million, which took 400 MB as objects; as arrays one takes 20 bytes. A name is
its hash of 64 bits: one in ten million such codebases has two names with the same hash.
"""

import hashlib
import json
import threading
import zlib
from array import array
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from codex.archive.lance import LANCE_ERRORS, ReadingMark
from codex.archive.prepare import PreparedChunk
from codex.archive.substring_index import may_hold
from codex.trees.roles import GENERATED
from codex.words import in_a_row, words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

_CHECK = 8  # hex digits
_DECODE = json.JSONDecoder().raw_decode  # `json.loads` looks for blanks first: half as much again, of hundreds a search
_MOST = 150_000  # 60 MB
_MOST_READ = 4_000_000  # characters of chunks that were read
_EXACT_READ = 200  # chunks looked through for a string before the files are that may hold it
_FEW_PATHS = 500  # looked up by their paths; of more, all chunks are read at the same price
_IN_LIST = 500  # values in one condition: the parser is recursive
_SCANNED = 8_192  # rows read at once when all are read
_DEFINERS = 64  # `__init__`, `get`, `main`: a name that so many chunks define says nothing, and costs time


class ChunkPlace(NamedTuple):  # a search hashes and orders a thousand: a dataclass does both in Python
    """Lines `start`–`end` (1-based, inclusive) of a file: one chunk."""

    path: str
    start: int
    end: int


class ChunkMatch(NamedTuple):  # hundreds are made for a search: a frozen dataclass takes four times as long
    """A chunk of the index, without its text. `score` is BM25, comparable within one answer only.

    `names` are what it defines, `references` the names that it uses, `digest` its file's: only where its text is read too.
    """

    place: ChunkPlace
    symbol: str
    kind: str
    signature: str
    names: tuple[str, ...]
    references: tuple[str, ...]
    score: float = 0.0
    digest: str = ""

    @property
    def generated(self) -> bool:
        """Whether its file says that a program wrote it."""
        return self.kind == GENERATED or self.kind.startswith(f"{GENERATED} ")


@dataclass(frozen=True, slots=True)
class FileMatch:
    """A file that matches as a whole."""

    path: str
    score: float


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
                fresh.update(zip(_values(batch, "_rowid"), _values(batch, self.column), strict=True))
        every = list(fresh.values())  # before searches add theirs
        self._values = fresh
        return every if rows <= _MOST else None


class ReadChunks:
    """Chunks with their texts that were read of one `revision` of an archive, which is what makes them right: the next
    questions about the same code show them again. Thread-safe: it only grows, until there is too much and all goes."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._chunks: dict[ChunkPlace, tuple[ChunkMatch, str]] = {}
        self._characters = 0

    def of(self, places: Iterable[ChunkPlace]) -> dict[ChunkPlace, tuple[ChunkMatch, str]]:
        """Those of these places that are known."""
        known = self._chunks
        return {place: known[place] for place in places if place in known}

    def learn(self, read: Mapping[ChunkPlace, tuple[ChunkMatch, str]]) -> None:
        if self._characters > _MOST_READ:
            self._chunks, self._characters = {}, 0
        self._chunks.update(read)
        self._characters += sum(len(text) for _, text in read.values())


@dataclass(frozen=True)
class Tables:
    """The two open tables of one codex, the mark of who reads them, and what a search shows of their rows."""

    chunks: Any
    files: Any
    mark: ReadingMark
    row_cache: RowCache = field(default_factory=lambda: RowCache("card"))
    path_cache: RowCache = field(default_factory=lambda: RowCache("path"))

    def fill_caches(self) -> list[str] | None:
        """Reads beforehand what searches show. Returns the encoded rows of all chunks, None when they are too many."""
        self.path_cache.fill(self.files)
        return self.row_cache.fill(self.chunks)


# -- queries


def held(opened: Tables) -> Mapping[str, str]:
    """Digest by path where both tables agree; a file without chunks is one that is empty."""
    of_chunks: dict[str, str | None] = {}
    for path, digest in _pairs(opened.chunks):
        of_chunks[path] = digest if of_chunks.get(path, digest) == digest else None
    return {path: digest for path, digest in _pairs(opened.files) if of_chunks.get(path, digest) == digest}


def best_chunks(opened: Tables, query: Sequence[str], n: int, paths: Sequence[str] | None = None) -> list[ChunkMatch]:
    """The `n` chunks that hold any of the words best (BM25), ties in the order of path and line."""
    where = None if paths is None else among(paths)
    rows = _run(_ranked(opened.chunks, opened.row_cache, query, n, where))
    return _in_order(decode_match(row, score) for row, score in rows)


def best_chunks_and_files(
    opened: Tables, query: Sequence[str], chunks: int, files: int
) -> tuple[list[ChunkMatch], list[FileMatch]]:
    """The chunks, and the files as wholes in the order of path on a tie, that hold any of the words best."""

    async def both() -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
        # One after the other: LanceDB uses all cores for each, and side by side both were slower.
        of_chunks = await _ranked(opened.chunks, opened.row_cache, query, chunks, None)
        return of_chunks, await _ranked(opened.files, opened.path_cache, query, files, None)

    of_chunks, of_files = _run(both())
    ranked = sorted((FileMatch(path, score) for path, score in of_files), key=lambda match: (-match.score, match.path))
    return _in_order(decode_match(row, score) for row, score in of_chunks), ranked


def exact(opened: Tables, text: str, n: int) -> list[ChunkMatch]:
    """The first `n` chunks found whose text holds the string.

    The chunks that hold all words of the string are looked through. Where that is not enough (no words, half a word at
    an end, too many chunks), the texts of those files are whose sketches say that they may hold it.
    """
    most = max(_EXACT_READ, 4 * n)
    read = _holding_all(opened.chunks, words(text), most)
    seen = [match for match, whole in read if text in whole]
    if len(seen) >= n or (seen and len(read) < most):
        return _in_order(seen)[:n]
    paths = _may_hold(opened.files, text)
    if not paths:
        return []
    quoted = text.replace("'", "''")
    among_them = f" AND ({among(paths)})" if len(paths) <= _FEW_PATHS else ""
    where = f"contains(text, '{quoted}'){among_them}"
    rows = _run(_answered(opened.chunks, lambda there: there.query().where(where).select(["card"]).limit(n)))
    return _in_order(map(decode_match, _values(rows, "card")))


def phrase(table: Any, wanted: Sequence[str], n: int) -> list[ChunkMatch]:
    """The best `n` chunks that have these words one behind the other."""
    read = _holding_all(table, wanted, max(_EXACT_READ, 4 * n))
    return _in_order(match for match, whole in read if in_a_row(wanted, whole))[:n]


def read(table: Any, places: Sequence[ChunkPlace]) -> Mapping[ChunkPlace, tuple[ChunkMatch, str]]:
    """The chunks at these places, with their texts. Raises ValueError for a text that is not what was stored."""
    if not places:
        return {}
    where = among([row_id(place.path, place.start) for place in places], "id")
    columns = ["text", "chunk_digest", "digest"]
    rows = _run(_answered(table, lambda there: there.query().where(where).select(["card", *columns])))
    asked = set(places)
    found = zip(map(decode_match, _values(rows, "card")), *(_values(rows, column) for column in columns), strict=True)
    return {
        one.place: (one._replace(digest=of_file), _checked(one.place, text, digest))
        for one, text, digest, of_file in found
        if one.place in asked
    }


def encoded_rows(table: Any) -> Iterator[str]:
    """The encoded rows of all chunks."""
    if table.count_rows():
        for batch in table.search().select(["card"]).to_batches(_SCANNED):
            yield from _values(batch, "card")


def scan(table: Any) -> Iterator[ChunkMatch]:
    """All chunks."""
    return map(decode_match, encoded_rows(table))


def generated(table: Any) -> frozenset[str]:
    """Paths of the chunks that are marked as a program's work; only rows that may be are decoded."""
    maybe = (decode_match(row) for row in encoded_rows(table) if GENERATED in row)
    return frozenset(match.place.path for match in maybe if match.generated)


def by_digest(table: Any, wanted: Sequence[str] | None = None) -> Mapping[str, tuple[ChunkPlace, ...]]:
    """The chunks by the digest of their text, or only those whose texts have these digests."""
    if not table.count_rows():
        return {}
    search = table.search() if wanted is None else table.search().where(among(wanted, "chunk_digest"))
    places: dict[str, list[ChunkPlace]] = {}
    for batch in search.select(["chunk_digest", "card"]).to_batches(_SCANNED):
        for digest, row in zip(_values(batch, "chunk_digest"), _values(batch, "card"), strict=True):
            places.setdefault(digest, []).append(ChunkPlace(*_decoded(row)[:3]))
    return {digest: tuple(sorted(found)) for digest, found in places.items()}


def among(values: Sequence[str], column: str = "path") -> str:
    """The condition that a row is of one of these paths, or has one of these values in another column."""
    quoted = [f"""'{value.replace("'", "''")}'""" for value in values]
    parts = [f"{column} IN ({', '.join(quoted[at : at + _IN_LIST])})" for at in range(0, len(quoted), _IN_LIST)]
    return " OR ".join(parts) if parts else "false"


def row_id(path: str, start: int) -> str:
    """What a row of `chunks` is found by: a chunk's path and first line."""
    return f"{path}\n{start}"


def _holding_all(table: Any, wanted: Sequence[str], most: int) -> list[tuple[ChunkMatch, str]]:
    """Chunks that hold every one of these words, with their texts."""
    if not wanted:
        return []
    rows = _run(_searched(table, wanted, most, ("card", "text", "_score"), None, every=True))
    if rows is None:
        return []
    scored = map(decode_match, _values(rows, "card"), _values(rows, "_score"))
    return list(zip(scored, _values(rows, "text"), strict=True))


def _may_hold(files: Any, text: str) -> list[str]:
    """Paths whose sketches do not rule the string out."""
    read: Any = _run(_answered(files, lambda there: there.query().select(["path", "sketch"])))
    rows = read.combine_chunks()
    if not rows.num_rows:
        return []
    sketches = rows.column("sketch").chunk(0)
    _, offsets, body = sketches.buffers()
    import numpy as np

    begins = np.frombuffer(offsets, np.int32)[sketches.offset : sketches.offset + len(sketches) + 1]
    numbers = may_hold(begins, np.frombuffer(body, np.uint8), text)
    paths: list[str] = rows.column("path").take(numbers).to_pylist()
    return paths


async def _ranked(
    table: Any, shown: RowCache, query: Sequence[str], n: int, where: str | None
) -> list[tuple[str, float]]:
    """What is shown of the `n` best rows, with their scores."""
    if shown:
        rows = await _searched(table, query, n, ("_score", "_rowid"), where)
        cached = [] if rows is None else shown.of(_values(rows, "_rowid"))
        if cached is not None:
            return list(zip(cached, _values(rows, "_score"), strict=True)) if cached else []
    rows = await _searched(table, query, n, (shown.column, "_score", "_rowid"), where)
    if rows is None:
        return []
    values = _values(rows, shown.column)
    shown.learn(_values(rows, "_rowid"), values)
    return list(zip(values, _values(rows, "_score"), strict=True))


async def _searched(
    table: Any, query: Sequence[str], n: int, columns: Sequence[str], where: str | None, every: bool = False
) -> Any | None:
    """Rows that hold any of the words, or every one; None of an empty table, which may have no index yet."""
    from lancedb.query import FullTextOperator, MatchQuery

    operator = FullTextOperator.AND if every else FullTextOperator.OR
    match = MatchQuery(" ".join(query), "words", operator=operator)

    def asked(there: Any) -> Any:
        search = there.query().nearest_to_text(match).with_row_id().select(list(columns)).limit(n)
        return search if where is None else search.where(where)

    return await _answered(table, asked, some=True)


async def _answered(table: Any, asked: Callable[[Any], Any], some: bool = False) -> Any | None:
    """The rows of a query as Arrow has them; with `some` None of an empty table.

    LanceDB's own `to_arrow` asks for the schema before each query, to look for columns of blobs, and makes a table of the
    rows twice: with that a search takes a quarter more of a processor.
    """
    import pyarrow as pa

    there = table._table  # the asynchronous table that the synchronous one wraps
    try:
        stream = await asked(there)._inner.execute()
        batches = [batch async for batch in stream]
        return pa.Table.from_batches(batches, None if batches else stream.schema)
    except LANCE_ERRORS:
        if some and not await there.count_rows():  # counted only now: it is a trip of its own
            return None
        raise


def _run(work: Coroutine[Any, Any, T]) -> T:
    """The result of one or several queries, in one trip to LanceDB's own thread: its synchronous calls make five of one
    query, and with both cores busy each takes up to a millisecond."""
    from lancedb.background_loop import LOOP

    found: T = LOOP.run(work)
    return found


def _in_order(matches: Iterable[ChunkMatch]) -> list[ChunkMatch]:
    return sorted(matches, key=lambda match: (-match.score, match.place))


def _pairs(table: Any) -> list[tuple[str, str]]:
    if not table.count_rows():
        return []
    pairs: dict[tuple[str, str], None] = {}
    for batch in table.search().select(["path", "digest"]).to_batches(_SCANNED):
        pairs.update(dict.fromkeys(zip(_values(batch, "path"), _values(batch, "digest"), strict=True)))
    return list(pairs)


def _values(rows: Any, column: str) -> list[Any]:
    """A column without nulls. By way of NumPy: Arrow's own list takes ten times as long."""
    values: list[Any] = rows.column(column).to_numpy(zero_copy_only=False).tolist()
    return values


# -- the row codec


def encode_row(one: PreparedChunk) -> str:
    """The row of a chunk that is to be stored."""
    chunk = one.chunk
    encoded = json.dumps(
        [*(chunk.path, chunk.start, chunk.end, chunk.symbol, chunk.kind, chunk.signature), chunk.names, one.references],
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return _check(encoded) + encoded


def decode_match(row: str, score: float = 0.0) -> ChunkMatch:
    """What was stored. Raises ValueError for a row that is not as it was."""
    path, start, end, symbol, kind, signature, names, references = _decoded(row)
    return ChunkMatch(ChunkPlace(path, start, end), symbol, kind, signature, tuple(names), tuple(references), score)


def _decoded(row: str) -> Any:
    encoded = row[_CHECK:]
    if row[:_CHECK] != _check(encoded):
        raise ValueError(f"a row is not what was stored: {row[:80]!r}")
    return _DECODE(encoded)[0]


def _check(encoded: str) -> str:
    return f"{zlib.crc32(encoded.encode('utf-8', errors='replace')):08x}"


def _checked(place: ChunkPlace, text: str, digest: str) -> str:
    """The text, when it is the one that was stored. Raises ValueError."""
    if hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest() != digest:
        raise ValueError(f"the text of {place.path}:{place.start}-{place.end} is not what was stored")
    return text


# -- the definitions


def defined(rows: Iterable[str]) -> "Definitions":
    """Where names are defined, by the encoded rows of all chunks."""
    definitions = Definitions()
    definitions.replace((), ((match.place, match.names) for match in map(decode_match, rows)))
    return definitions


@dataclass(frozen=True)
class _Sorted:
    """Definitions in the order of their names' hashes, with the numbers of their paths."""

    names: "NDArray[np.int64]"
    paths: "NDArray[np.int32]"
    starts: "NDArray[np.int32]"
    ends: "NDArray[np.int32]"


class Definitions:
    """Names to the chunks that define them. Thread-safe.

    A write appends; the next look-up sorts. A path that is replaced gets a new number, so that its old rows are dropped
    when they are next sorted.
    """

    def __init__(self) -> None:
        self._sorted: _Sorted | None = None
        self._names = array("q")  # of rows that are not sorted yet
        self._rows = array("i")  # path, start, end of each of these
        self._numbers: dict[str, int] = {}
        self._paths: list[str | None] = []  # by number; None: replaced
        self._current = True  # no row is unsorted, and none is of a path that was replaced
        self._lock = threading.Lock()

    def replace(self, paths: Iterable[str], chunks: Iterable[tuple[ChunkPlace, Sequence[str]]]) -> None:
        """These chunks with the names that they define, in place of what the paths defined."""
        with self._lock:
            self._current = False
            for path in paths:
                number = self._numbers.pop(path, None)
                if number is not None:
                    self._paths[number] = None
            for place, names in chunks:
                number = self._numbers.setdefault(place.path, len(self._paths))
                if number == len(self._paths):
                    self._paths.append(place.path)
                self._names.extend(map(hash, names))
                self._rows.extend((number, place.start, place.end) * len(names))

    def defining(self, names: Iterable[str]) -> dict[str, tuple[ChunkPlace, ...]]:
        """The chunks that define each of these names, sorted; names without one, or with more than 64, are left out."""
        import numpy as np

        rows = self._in_order()
        asked = list(dict.fromkeys(names))
        keys = np.fromiter(map(hash, asked), np.int64, len(asked))
        firsts = np.searchsorted(rows.names, keys, "left")
        counts = np.searchsorted(rows.names, keys, "right") - firsts
        counts[counts > _DEFINERS] = 0
        owners = np.repeat(np.arange(len(asked)), counts)
        at = np.repeat(firsts - np.cumsum(counts) + counts, counts) + np.arange(len(owners))
        columns = (owners, rows.paths[at], rows.starts[at], rows.ends[at])
        places: dict[str, list[ChunkPlace]] = {}
        for owner, number, start, end in zip(*(column.tolist() for column in columns), strict=True):
            path = self._paths[number]
            if path is not None:  # replaced meanwhile
                places.setdefault(asked[owner], []).append(ChunkPlace(path, start, end))
        return {name: tuple(sorted(defining)) for name, defining in places.items()}

    def _in_order(self) -> _Sorted:
        import numpy as np

        with self._lock:
            before = self._sorted
            if before is not None and self._current:
                return before
            names, columns = np.array(self._names, np.int64), np.array(self._rows, np.int32).reshape(-1, 3).T
            if before is not None:
                names = np.concatenate([before.names, names])
                columns = np.concatenate([np.array([before.paths, before.starts, before.ends]), columns], axis=1)
            there = np.array([path is not None for path in self._paths], np.bool_)[columns[0]]
            names, columns = names[there], columns[:, there]
            order = np.argsort(names, kind="stable")
            self._sorted = _Sorted(names[order], *columns[:, order])
            self._names, self._rows, self._current = array("q"), array("i"), True
            return self._sorted
