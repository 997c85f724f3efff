"""LanceDB's tables as the archive needs them: schemas, rows, writes that are one commit, full-text look-ups.

Knows LanceDB and Arrow, and neither folders, locks nor codices. Raises what LanceDB raises.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from codex.archive import Hit
from codex.prepare import Prepared
from codex.snippets import snippet

HIT_COLUMNS = ("path", "start", "end", "symbol", "kind", "signature", "names", "text", "_score")
_STRINGS = ("id", "path", "digest", "branch", "symbol", "kind", "signature", "names", "text", "words", "chunk_digest")
_FILE_STRINGS = ("id", "path", "digest", "words")
_KEEP_VERSIONS = timedelta(minutes=10)  # a search that began on an older version ends in milliseconds
_CONFLICT_TRIES = 5
_IN_LIST = 500  # paths in one condition: the parser is recursive


@dataclass(frozen=True)
class Tables:
    """The two open tables of one codex."""

    chunks: Any
    files: Any


def create_tables(folder: Path) -> Tables:
    """New empty tables with their indexes in a folder that exists."""
    import pyarrow as pa

    numbers = [pa.field(name, pa.int32()) for name in ("start", "end")]
    chunks = pa.schema([*(pa.field(name, pa.string()) for name in _STRINGS), *numbers])
    files = pa.schema([pa.field(name, pa.string()) for name in _FILE_STRINGS])
    database = _lancedb().connect(folder)
    return Tables(database.create_table("chunks", schema=chunks), database.create_table("files", schema=files))


def open_tables(folder: Path) -> Tables:
    """The tables that stand in a folder."""
    database = _lancedb().connect(folder)
    return Tables(database.open_table("chunks"), database.open_table("files"))


def chunk_rows(prepared: Sequence[Prepared], branch: str) -> list[dict[str, Any]]:
    """Rows of the table `chunks`."""
    return [
        {
            "id": f"{file.path}\n{one.chunk.start}",
            "path": file.path,
            "digest": file.digest,
            "branch": branch,
            "symbol": one.chunk.symbol,
            "kind": one.chunk.kind,
            "signature": one.chunk.signature,
            "names": "\n".join(one.chunk.names),
            "text": one.chunk.text,
            "words": one.words,
            "chunk_digest": one.chunk.digest,
            "start": one.chunk.start,
            "end": one.chunk.end,
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
        gone = among(held)
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        retried(lambda: merge.when_not_matched_by_source_delete(gone).execute(rows))


def held(opened: Tables) -> Mapping[str, str]:
    """Digest by path where both tables agree; a file without chunks is one that is empty."""
    chunks = _pairs(opened.chunks)
    of_chunks: dict[str, str | None] = {}
    for path, digest in chunks:
        of_chunks[path] = digest if of_chunks.get(path, digest) == digest else None
    return {path: digest for path, digest in _pairs(opened.files) if of_chunks.get(path, digest) == digest}


def match(
    table: Any, query: Sequence[str], n: int, columns: Sequence[str], where: str | None = None
) -> list[dict[str, Any]]:
    """The `n` rows that hold any of the words best, with `_score` (BM25), ties in the order of path and line."""
    from lancedb.query import MatchQuery

    search = table.search(MatchQuery(" ".join(query), "words"), query_type="fts").select(list(columns)).limit(n)
    if where is not None:
        search = search.where(where, prefilter=True)
    rows: list[dict[str, Any]] = search.to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (-row["_score"], row["path"], row.get("start", 0)))


def hit(row: Mapping[str, Any], query: Sequence[str]) -> Hit:
    """A row of `chunks` as it is handed out."""
    return Hit(
        path=row["path"],
        start=row["start"],
        end=row["end"],
        symbol=row["symbol"],
        kind=row["kind"],
        signature=row["signature"],
        score=row["_score"],
        scores={"chunk": row["_score"]},
        snippet=snippet(row["text"], query),
        text=row["text"],
        names=tuple(name for name in row["names"].split("\n") if name),
    )


def ensure_index(table: Any) -> None:
    """Makes the full-text index, which also says how rows outside it are scanned. Needs a row."""
    if not table.count_rows() or any("words" in index.columns for index in table.list_indices()):
        return
    from lancedb.index import FTS

    # Stop words are left to the query: a question's are not those of code ("not", "with", "for" are names too).
    config = FTS(base_tokenizer="whitespace", stem=True, remove_stop_words=False, max_token_length=64)
    retried(lambda: table.create_index("words", config=config))


def fold(table: Any) -> None:
    """Brings the index up to all rows, compacts, frees old versions."""
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


def _lancedb() -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings would go to stderr, one per query
    import lancedb

    return lancedb


def _any_held(table: Any, paths: Sequence[str]) -> list[str]:
    """Those of the paths that the table holds."""
    if not paths or not table.count_rows():
        return []
    rows = table.search().select(["path"]).where(among(paths)).to_arrow()
    return sorted(set(rows.column("path").to_pylist()))


def _pairs(table: Any) -> list[tuple[str, str]]:
    rows = table.search().select(["path", "digest"]).to_arrow().group_by(["path", "digest"]).aggregate([])
    return list(zip(rows.column("path").to_pylist(), rows.column("digest").to_pylist(), strict=True))
