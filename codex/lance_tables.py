"""LanceDB's tables as the archive needs them: schemas, rows, writes that are one commit, full-text look-ups.

Knows LanceDB and Arrow, and neither folders, locks nor codices. Raises what LanceDB raises.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from codex.archive import Match
from codex.definitions import Place
from codex.identifiers import words
from codex.prepare import Prepared, PreparedChunk

_STRINGS = ("id", "path", "digest", "branch", "text", "words", "chunk_digest", "card")
_FILE_STRINGS = ("id", "path", "digest", "words")
_KEEP_VERSIONS = timedelta(minutes=10)  # a search that began on an older version ends in milliseconds
_CONFLICT_TRIES = 5
_IN_LIST = 500  # paths in one condition: the parser is recursive
_EXACT_READ = 200  # chunks looked through for a string before all are
_SCANNED = 8_192  # rows read at once when all are read


@dataclass(frozen=True)
class Tables:
    """The two open tables of one codex."""

    chunks: Any
    files: Any


def create_tables(folder: Path) -> Tables:
    """New empty tables in a folder that exists."""
    import pyarrow as pa

    chunks = pa.schema([*(pa.field(name, pa.string()) for name in _STRINGS), pa.field("start", pa.int32())])
    files = pa.schema([pa.field(name, pa.string()) for name in _FILE_STRINGS])
    database = lancedb().connect(folder)
    return Tables(database.create_table("chunks", schema=chunks), database.create_table("files", schema=files))


def open_tables(folder: Path) -> Tables:
    """The tables that stand in a folder."""
    database = lancedb().connect(folder)
    return Tables(database.open_table("chunks"), database.open_table("files"))


def chunk_rows(prepared: Sequence[Prepared], branch: str) -> list[dict[str, Any]]:
    """Rows of the table `chunks`."""
    return [
        {
            "id": f"{file.path}\n{one.chunk.start}",
            "path": file.path,
            "digest": file.digest,
            "branch": branch,
            "text": one.chunk.text,
            "words": one.words,
            "chunk_digest": one.chunk.digest,
            "card": _card(one),
            "start": one.chunk.start,
        }
        for file in prepared
        for one in file.chunks
    ]


def file_rows(prepared: Sequence[Prepared]) -> list[dict[str, Any]]:
    """Rows of the table `files`."""
    return [{"id": one.path, "path": one.path, "digest": one.digest, "words": one.words} for one in prepared]


def write(table: Any, rows: list[dict[str, Any]], paths: Sequence[str]) -> None:
    """Rows in place of all that these paths held, as one commit."""
    held = _any_held(table, paths)
    if not held:
        if rows:
            retried(lambda: table.add(rows))
            ensure_index(table)
    elif not rows:
        retried(lambda: table.delete(among(held)))
    else:
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        retried(lambda: merge.when_not_matched_by_source_delete(among(held)).execute(rows))


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
    if not places or not table.count_rows():
        return {}
    starts = ", ".join(sorted({str(place.start) for place in places}))
    where = f"({among(sorted({place.path for place in places}))}) AND start IN ({starts})"
    rows = table.search().where(where).select(["card", "text"]).to_arrow().to_pylist()
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
    quoted = ", ".join(f"'{digest}'" for digest in wanted)
    rows = table.search().where(f"chunk_digest IN ({quoted})").select(["chunk_digest", "card"])
    return _by_digest(rows.to_batches(_SCANNED))


def ensure_index(table: Any) -> None:
    """Makes the full-text index, which also says how rows outside it are scanned. Needs a row."""
    if not table.count_rows():
        return
    from lancedb.index import FTS, BTree

    there = {column for index in table.list_indices() for column in index.columns}
    if "words" not in there:
        # Stop words are left to the query: a question's are not those of code ("not", "with", "for" are names too).
        config = FTS(base_tokenizer="whitespace", stem=True, remove_stop_words=False, max_token_length=64)
        retried(lambda: table.create_index("words", config=config))
    if "path" not in there:
        retried(lambda: table.create_index("path", config=BTree()))


def fold(table: Any) -> None:
    """Brings the index up to all rows, compacts, frees old versions."""
    ensure_index(table)
    retried(lambda: table.optimize(cleanup_older_than=_KEEP_VERSIONS))


def unindexed(table: Any) -> int:
    """Rows that a search has to scan."""
    for index in table.list_indices():
        if "words" in index.columns:
            stats = table.index_stats(index.name)
            return int(stats.num_unindexed_rows) if stats is not None else int(table.count_rows())
    return int(table.count_rows())


def among(paths: Sequence[str]) -> str:
    """The condition that a row is of one of these paths."""
    quoted = [f"""'{path.replace("'", "''")}'""" for path in paths]
    parts = [f"path IN ({', '.join(quoted[at : at + _IN_LIST])})" for at in range(0, len(quoted), _IN_LIST)]
    return " OR ".join(parts) if parts else "false"


def retried(write: Callable[[], Any]) -> None:
    """Another process may have committed in between; LanceDB then asks to try again."""
    for attempt in range(_CONFLICT_TRIES):
        try:
            write()
            return
        except RuntimeError as error:
            if "conflict" not in str(error).lower() or attempt == _CONFLICT_TRIES - 1:
                raise
            time.sleep(0.02 * 2**attempt)


def _searched(
    table: Any, query: Sequence[str], n: int, columns: Sequence[str], where: str | None, every: bool = False
) -> list[Any]:
    """Rows that hold any of the words, or every one."""
    if not table.count_rows():
        return []
    from lancedb.query import FullTextOperator, MatchQuery

    operator = FullTextOperator.AND if every else FullTextOperator.OR
    match = MatchQuery(" ".join(query), "words", operator=operator)
    search = table.search(match, query_type="fts").select(list(columns)).limit(n)
    if where is not None:
        search = search.where(where, prefilter=True)
    rows: list[Any] = search.to_arrow().to_pylist()
    return rows


def _by_digest(batches: Iterable[Any]) -> Mapping[str, tuple[Place, ...]]:
    found: dict[str, list[Place]] = {}
    for batch in batches:
        cards = batch.column("card").to_pylist()
        for digest, card in zip(batch.column("chunk_digest").to_pylist(), cards, strict=True):
            found.setdefault(digest, []).append(Place(*json.loads(card)[:3]))
    return {digest: tuple(sorted(places)) for digest, places in found.items()}


def _card(one: PreparedChunk) -> str:
    """All that a search shows or ranks by, in one column: of hundred rows nine columns take twice as long to read."""
    chunk = one.chunk
    return json.dumps(
        [*(chunk.path, chunk.start, chunk.end, chunk.symbol, chunk.kind, chunk.signature), chunk.names, one.references],
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _match(card: str, score: float = 0.0) -> Match:
    path, start, end, symbol, kind, signature, names, references = json.loads(card)
    return Match(Place(path, start, end), symbol, kind, signature, tuple(names), tuple(references), score)


def lancedb() -> Any:
    """The library, imported at the first use."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings would go to stderr, one per query
    import lancedb  # 0.5 s and 140 MB, paid only by who searches

    return lancedb


def _any_held(table: Any, paths: Sequence[str]) -> list[str]:
    """Those of the paths that the table holds."""
    if not paths or not table.count_rows():
        return []
    rows = table.search().select(["path"]).where(among(paths)).to_arrow()
    return sorted(set(rows.column("path").to_pylist()))


def _pairs(table: Any) -> list[tuple[str, str]]:
    if not table.count_rows():
        return []
    rows = table.search().select(["path", "digest"]).to_arrow().group_by(["path", "digest"]).aggregate([])
    return list(zip(rows.column("path").to_pylist(), rows.column("digest").to_pylist(), strict=True))
