"""Queries of the tables of one codex's archive: by words, by string, by place, by digest, or of all rows.

Knows LanceDB and Arrow, and no folders, locks or codices. Raises what LanceDB raises.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from codex.archive.archive import ChunkMatch
from codex.archive.definitions import ChunkPlace, Definitions
from codex.archive.identifiers import in_a_row, words
from codex.archive.rows import RowCache, checked_text, decode_match, decode_place, values_of
from codex.archive.substring_index import may_hold
from codex.archive.tables import Tables, among, row_id
from codex.trees.roles import GENERATED, is_marked

_EXACT_READ = 200  # chunks looked through for a string before the files are that may hold it
_FEW_PATHS = 500  # looked up by their paths; of more, all chunks are read at the same price
_SCANNED = 8_192  # rows read at once when all are read


def held(opened: Tables) -> Mapping[str, str]:
    """Digest by path where both tables agree; a file without chunks is one that is empty."""
    of_chunks: dict[str, str | None] = {}
    for path, digest in _pairs(opened.chunks):
        of_chunks[path] = digest if of_chunks.get(path, digest) == digest else None
    return {path: digest for path, digest in _pairs(opened.files) if of_chunks.get(path, digest) == digest}


def found(opened: Tables, query: Sequence[str], n: int, where: str | None = None) -> list[ChunkMatch]:
    """The `n` chunks that hold any of the words best (BM25), ties in the order of path and line."""
    rows = _ranked(opened.chunks, opened.row_cache, query, n, where)
    return sorted((decode_match(row, score) for row, score in rows), key=lambda match: (-match.score, match.place))


def exact(opened: Tables, text: str, n: int) -> list[ChunkMatch]:
    """The first `n` chunks found whose text holds the string.

    The chunks that hold all words of the string are looked through. Where that is not enough (no words, half a word at
    an end, too many chunks), the texts of those files are whose sketches say that they may hold it.
    """
    most = max(_EXACT_READ, 4 * n)
    read = _holding_all(opened.chunks, words(text), most)
    seen = [match for match, whole in read if text in whole]
    if len(seen) >= n or (seen and len(read) < most):
        return sorted(seen, key=lambda match: (-match.score, match.place))[:n]
    paths = _may_hold(opened.files, text)
    if not paths:
        return []
    quoted = text.replace("'", "''")
    among_them = f" AND ({among(paths)})" if len(paths) <= _FEW_PATHS else ""
    where = f"contains(text, '{quoted}'){among_them}"
    rows = _answered(opened.chunks, lambda there: there.query().where(where).select(["card"]).limit(n))
    return sorted(map(decode_match, values_of(rows, "card")), key=lambda match: match.place)


def phrase(table: Any, wanted: Sequence[str], n: int) -> list[ChunkMatch]:
    """The best `n` chunks that have these words one behind the other."""
    read = _holding_all(table, wanted, max(_EXACT_READ, 4 * n))
    seen = [match for match, whole in read if in_a_row(wanted, whole)]
    return sorted(seen, key=lambda match: (-match.score, match.place))[:n]


def _holding_all(table: Any, wanted: Sequence[str], most: int) -> list[tuple[ChunkMatch, str]]:
    """Chunks that hold every one of these words, with their texts."""
    rows = _searched(table, wanted, most, ("card", "text", "_score"), None, every=True) if wanted else None
    return [] if rows is None else list(zip(_matches(rows), values_of(rows, "text"), strict=True))


def _may_hold(files: Any, text: str) -> list[str]:
    """Paths whose sketches do not rule the string out."""
    read: Any = _answered(files, lambda there: there.query().select(["path", "sketch"]))
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


def found_files(opened: Tables, query: Sequence[str], n: int) -> list[tuple[str, float]]:
    """Paths and scores of the `n` files that hold any of the words best."""
    return sorted(_ranked(opened.files, opened.path_cache, query, n, None), key=lambda pair: (-pair[1], pair[0]))


def _ranked(table: Any, shown: RowCache, query: Sequence[str], n: int, where: str | None) -> list[tuple[str, float]]:
    """What is shown of the `n` best rows, with their scores."""
    if shown:
        rows = _searched(table, query, n, ("_score", "_rowid"), where)
        cached = [] if rows is None else shown.of(values_of(rows, "_rowid"))
        if cached is not None:
            return list(zip(cached, values_of(rows, "_score"), strict=True)) if cached else []
    rows = _searched(table, query, n, (shown.column, "_score", "_rowid"), where)
    if rows is None:
        return []
    values = values_of(rows, shown.column)
    shown.learn(values_of(rows, "_rowid"), values)
    return list(zip(values, values_of(rows, "_score"), strict=True))


def scan(table: Any) -> Iterator[ChunkMatch]:
    """All chunks."""
    return map(decode_match, encoded_rows(table))


def encoded_rows(table: Any) -> Iterator[str]:
    """The encoded rows of all chunks."""
    if table.count_rows():
        for batch in table.search().select(["card"]).to_batches(_SCANNED):
            yield from values_of(batch, "card")


def defined(rows: Iterable[str]) -> Definitions:
    """Where names are defined, by the encoded rows of all chunks."""
    found = Definitions()
    for match in map(decode_match, rows):
        found.add(match.place, match.names)
    return found


def read(table: Any, places: Sequence[ChunkPlace]) -> Mapping[ChunkPlace, tuple[ChunkMatch, str]]:
    """The chunks at these places, with their texts. Raises ValueError for a text that is not what was stored."""
    if not places:
        return {}
    where = among([row_id(place.path, place.start) for place in places], "id")
    rows = _answered(table, lambda there: there.query().where(where).select(["card", "text", "chunk_digest"]))
    asked = set(places)
    found = zip(
        map(decode_match, values_of(rows, "card")),
        values_of(rows, "text"),
        values_of(rows, "chunk_digest"),
        strict=True,
    )
    return {
        one.place: (one, checked_text(one.place, text, digest)) for one, text, digest in found if one.place in asked
    }


def digests(table: Any) -> Mapping[str, tuple[ChunkPlace, ...]]:
    """All chunks by the digest of their text."""
    if not table.count_rows():
        return {}
    return _by_digest(table.search().select(["chunk_digest", "card"]).to_batches(_SCANNED))


def generated(table: Any) -> frozenset[str]:
    """Paths of the chunks that are marked as a program's work; only rows that may be are decoded."""
    maybe = (decode_match(row) for row in encoded_rows(table) if GENERATED in row)
    return frozenset(match.place.path for match in maybe if is_marked(match.kind))


def holding(table: Any, wanted: Sequence[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
    """The chunks whose texts have these digests."""
    if not wanted or not table.count_rows():
        return {}
    rows = table.search().where(among(wanted, "chunk_digest")).select(["chunk_digest", "card"])
    return _by_digest(rows.to_batches(_SCANNED))


def _searched(
    table: Any, query: Sequence[str], n: int, columns: Sequence[str], where: str | None, every: bool = False
) -> Any | None:
    """Rows that hold any of the words, or every one; None of an empty table, which may have no index yet."""
    from lancedb.query import FullTextOperator, MatchQuery

    operator = FullTextOperator.AND if every else FullTextOperator.OR
    match = MatchQuery(" ".join(query), "words", operator=operator)

    def asked(there: Any) -> Any:
        search = there.query().nearest_to_text(match).select(list(columns)).limit(n)
        return search if where is None else search.where(where)

    return _answered(table, asked, some=True)


def _answered(table: Any, asked: Callable[[Any], Any], some: bool = False) -> Any | None:
    """The rows of a query as Arrow has them; with `some` None of an empty table.

    In one trip to LanceDB's own thread: its synchronous calls make five of one query, and with both cores busy each
    takes up to a millisecond.
    """
    from lancedb.background_loop import LOOP

    async def answer(there: Any) -> Any | None:
        return await asked(there).to_arrow() if not some or await there.count_rows() else None

    return LOOP.run(answer(table._table))  # the asynchronous table that the synchronous one wraps


def _matches(rows: Any | None) -> list[ChunkMatch]:
    return [] if rows is None else list(map(decode_match, values_of(rows, "card"), values_of(rows, "_score")))


def _by_digest(batches: Iterable[Any]) -> Mapping[str, tuple[ChunkPlace, ...]]:
    found: dict[str, list[ChunkPlace]] = {}
    for batch in batches:
        rows = batch.column("card").to_pylist()
        for digest, row in zip(batch.column("chunk_digest").to_pylist(), rows, strict=True):
            found.setdefault(digest, []).append(decode_place(row))
    return {digest: tuple(sorted(places)) for digest, places in found.items()}


def _pairs(table: Any) -> list[tuple[str, str]]:
    if not table.count_rows():
        return []
    pairs: dict[tuple[str, str], None] = {}
    for batch in table.search().select(["path", "digest"]).to_batches(_SCANNED):
        pairs.update(dict.fromkeys(zip(values_of(batch, "path"), values_of(batch, "digest"), strict=True)))
    return list(pairs)
