"""What is asked of the tables of one codex's archive: by words, by string, by place, by digest, or all of it.

Knows LanceDB and Arrow, and neither folders, locks nor codices. Raises what LanceDB raises.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from codex.archive import Match
from codex.definitions import Place
from codex.identifiers import words
from codex.lance_tables import Tables, among, row_id

_EXACT_READ = 200  # chunks looked through for a string before all are
_SCANNED = 8_192  # rows read at once when all are read


def held(opened: Tables) -> Mapping[str, str]:
    """Digest by path where both tables agree; a file without chunks is one that is empty."""
    of_chunks: dict[str, str | None] = {}
    for path, digest in _pairs(opened.chunks):
        of_chunks[path] = digest if of_chunks.get(path, digest) == digest else None
    return {path: digest for path, digest in _pairs(opened.files) if of_chunks.get(path, digest) == digest}


def found(table: Any, query: Sequence[str], n: int, where: str | None = None) -> list[Match]:
    """The `n` chunks that hold any of the words best (BM25), ties in the order of path and line."""
    rows = _searched(table, query, n, ("card", "_score"), where)
    return sorted((_match(row["card"], row["_score"]) for row in rows), key=lambda match: (-match.score, match.place))


def exact(table: Any, text: str, n: int) -> list[Match]:
    """The first `n` chunks found whose text holds the string.

    An index of strings would take as much room as the texts (measured: 90 MB and 11 s for 100,000 chunks), and is slow
    for common ones. So the chunks that hold all words of the string are looked through, and only when that is not
    enough (no words, half a word at an end, too many chunks), every text is: 0.2 s for 100,000.
    """
    wanted, most = words(text), max(_EXACT_READ, 4 * n)
    rows = _searched(table, wanted, most, ("card", "text", "_score"), None, every=True) if wanted else []
    seen = [_match(row["card"], row["_score"]) for row in rows if text in row["text"]]
    if len(seen) >= n or (seen and len(rows) < most):
        return sorted(seen, key=lambda match: (-match.score, match.place))[:n]
    if not table.count_rows():
        return []
    quoted = text.replace("'", "''")
    scanned = table.search().where(f"contains(text, '{quoted}')").select(["card"]).limit(n).to_arrow()
    return sorted(map(_match, scanned.column("card").to_pylist()), key=lambda match: match.place)


def found_files(table: Any, query: Sequence[str], n: int) -> list[tuple[str, float]]:
    """Paths and scores of the `n` files that hold any of the words best."""
    rows = _searched(table, query, n, ("path", "_score"), None)
    return sorted(((row["path"], row["_score"]) for row in rows), key=lambda pair: (-pair[1], pair[0]))


def scan(table: Any) -> Iterator[Match]:
    """All chunks."""
    if table.count_rows():
        for batch in table.search().select(["card"]).to_batches(_SCANNED):
            yield from map(_match, batch.column("card").to_pylist())


def read(table: Any, places: Sequence[Place]) -> Mapping[Place, tuple[Match, str]]:
    """The chunks at these places, with their texts."""
    if not places:
        return {}
    where = among([row_id(place.path, place.start) for place in places], "id")
    rows = _answered(table, lambda there: there.query().where(where).select(["card", "text"]))
    asked = set(places)
    texts = {match.place: (match, row["text"]) for row in rows for match in [_match(row["card"])]}
    return {place: text for place, text in texts.items() if place in asked}


def digests(table: Any) -> Mapping[str, tuple[Place, ...]]:
    """All chunks by the digest of their text."""
    if not table.count_rows():
        return {}
    return _by_digest(table.search().select(["chunk_digest", "card"]).to_batches(_SCANNED))


def holding(table: Any, wanted: Sequence[str]) -> Mapping[str, tuple[Place, ...]]:
    """The chunks whose texts have these digests."""
    if not wanted or not table.count_rows():
        return {}
    rows = table.search().where(among(wanted, "chunk_digest")).select(["chunk_digest", "card"])
    return _by_digest(rows.to_batches(_SCANNED))


def _searched(
    table: Any, query: Sequence[str], n: int, columns: Sequence[str], where: str | None, every: bool = False
) -> list[Any]:
    """Rows that hold any of the words, or every one."""
    from lancedb.query import FullTextOperator, MatchQuery

    operator = FullTextOperator.AND if every else FullTextOperator.OR
    match = MatchQuery(" ".join(query), "words", operator=operator)

    def asked(there: Any) -> Any:
        search = there.query().nearest_to_text(match).select(list(columns)).limit(n)
        return search if where is None else search.where(where)

    return _answered(table, asked)


def _answered(table: Any, asked: Callable[[Any], Any]) -> list[Any]:
    """The rows of a query, [] of an empty table.

    In one trip to LanceDB's own thread: its synchronous calls make five of one query, and with both cores busy each
    takes up to a millisecond.
    """
    from lancedb.background_loop import LOOP

    async def answer(there: Any) -> Any:
        return (await asked(there).to_arrow()).to_pylist() if await there.count_rows() else []

    rows: list[Any] = LOOP.run(answer(table._table))  # the asynchronous table that the synchronous one wraps
    return rows


def _match(card: str, score: float = 0.0) -> Match:
    path, start, end, symbol, kind, signature, names, references = json.loads(card)
    return Match(Place(path, start, end), symbol, kind, signature, tuple(names), tuple(references), score)


def _by_digest(batches: Iterable[Any]) -> Mapping[str, tuple[Place, ...]]:
    found: dict[str, list[Place]] = {}
    for batch in batches:
        cards = batch.column("card").to_pylist()
        for digest, card in zip(batch.column("chunk_digest").to_pylist(), cards, strict=True):
            found.setdefault(digest, []).append(Place(*json.loads(card)[:3]))
    return {digest: tuple(sorted(places)) for digest, places in found.items()}


def _pairs(table: Any) -> list[tuple[str, str]]:
    if not table.count_rows():
        return []
    rows = table.search().select(["path", "digest"]).to_arrow().group_by(["path", "digest"]).aggregate([])
    return list(zip(rows.column("path").to_pylist(), rows.column("digest").to_pylist(), strict=True))
