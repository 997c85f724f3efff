"""The two tables of one codex's archive: made, opened, written by one commit each, indexed, folded.

Knows LanceDB and Arrow, and no folders, locks or codices. Raises what LanceDB raises.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from codex.archive.lance import KEEP_VERSIONS, LanceSession, ReadingMark, check_columns, retried
from codex.archive.prepare import PreparedDocument
from codex.archive.queries import Tables, among, encode_row, row_id
from codex.archive.substring_index import sketch

_STRINGS = ("id", "path", "digest", "text", "words", "chunk_digest", "card")
_FILE_STRINGS = ("id", "path", "digest", "words")
_NEWEST = "newest.json"
SEEN_AFTER = timedelta(seconds=60)  # what others write: names are read anew with each change seen, some megabytes


def create_tables(folder: Path, session: LanceSession) -> Tables:
    """New empty tables in a folder that exists."""
    return Tables(*_created(session.connect(folder), began=False), ReadingMark(folder))


def create_shared(place: str, noted: Path, session: LanceSession) -> Tables:
    """New empty tables on object storage; those are kept that one who was killed has made."""
    return Tables(*_created(session.connect(place, SEEN_AFTER), began=True), ReadingMark(noted))


def open_shared(place: str, noted: Path, session: LanceSession) -> Tables:
    """The tables on object storage. Nothing is written: that they have their indexes is up to who writes.

    Raises ValueError for tables that are damaged.
    """
    database = session.connect(place, SEEN_AFTER)
    return _opened(database, ReadingMark(noted))


def _created(database: Any, *, began: bool) -> tuple[Any, Any]:
    import pyarrow as pa

    chunks = pa.schema([*(pa.field(name, pa.string()) for name in _STRINGS), pa.field("start", pa.int32())])
    files = pa.schema([*(pa.field(name, pa.string()) for name in _FILE_STRINGS), pa.field("sketch", pa.binary())])
    return (
        database.create_table("chunks", schema=chunks, exist_ok=began),
        database.create_table("files", schema=files, exist_ok=began),
    )


def open_tables(folder: Path, session: LanceSession) -> Tables:
    """The tables of a folder, with their indexes: whoever wrote them may have been killed before the first.

    Raises ValueError for tables that are damaged, or that two processes in a row did not survive.
    """
    mark = ReadingMark(folder)
    if mark.left_behind():
        raise ValueError("processes ended while they read it")
    with mark.reading():
        opened = _opened(session.connect(folder), mark)
        _check_versions(folder, opened)
        ensure_indexes(opened)
    return opened


def opened_anew(folder: Path, session: LanceSession, opened: Tables) -> Tables:
    """The same tables of a folder in another session: their mark, and what a search shows of their rows, stay."""
    with opened.mark.reading():
        database = session.connect(folder)
        return replace(opened, chunks=database.open_table("chunks"), files=database.open_table("files"))


def _opened(database: Any, mark: ReadingMark) -> Tables:
    opened = Tables(database.open_table("chunks"), database.open_table("files"), mark)
    check_columns(opened.chunks, ("card", "words"))
    check_columns(opened.files, ("digest", "words", "sketch"))
    return opened


def latest(opened: Tables) -> None:
    """What anybody has written is seen from now on."""
    opened.chunks.checkout_latest()
    opened.files.checkout_latest()


def ensure_indexes(opened: Tables) -> None:
    """Makes those that whoever wrote the tables was killed before."""
    ensure_index(opened.chunks)
    ensure_index(opened.files)


def note_versions(folder: Path, opened: Tables) -> None:
    """Keeps which versions are the newest: were their manifests lost, the ones before would be taken for the truth."""
    unfinished = folder / f"{_NEWEST}.part"
    unfinished.write_text(json.dumps([opened.chunks.version, opened.files.version]), encoding="utf-8")
    unfinished.replace(folder / _NEWEST)


def _check_versions(folder: Path, opened: Tables) -> None:
    try:
        chunks, files = json.loads((folder / _NEWEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if opened.chunks.version < chunks or opened.files.version < files:
        raise ValueError("the newest version of a table is gone")


def chunk_rows(prepared: Sequence[PreparedDocument]) -> list[dict[str, Any]]:
    """Rows of the table `chunks`."""
    return [
        {
            "id": row_id(file.path, one.chunk.start),
            "path": file.path,
            "digest": file.digest,
            "text": one.chunk.text,
            "words": one.words,
            "chunk_digest": one.chunk.digest,
            "card": encode_row(one),
            "start": one.chunk.start,
        }
        for file in prepared
        for one in file.chunks
    ]


def file_rows(prepared: Sequence[PreparedDocument]) -> list[dict[str, Any]]:
    """Rows of the table `files`."""
    return [
        {
            "id": one.path,
            "path": one.path,
            "digest": one.digest,
            "words": one.words,
            "sketch": sketch(each.chunk.text for each in one.chunks),
        }
        for one in prepared
    ]


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


def ensure_index(table: Any) -> None:
    """Makes the full-text index, which also says how rows outside it are scanned. Needs a row."""
    if not table.count_rows():
        return
    from lancedb.index import FTS

    if "words" not in _indexed(table):
        # Stop words are left to the query: a question's are not those of code ("not", "with", "for" are names too).
        config = FTS(base_tokenizer="whitespace", stem=True, remove_stop_words=False, max_token_length=64)
        retried(lambda: table.create_index("words", config=config))
    ensure_look_up(table, "path")
    ensure_look_up(table, "id")


def ensure_look_up(table: Any, column: str) -> bool:
    """Makes the index that finds rows by a column's value; False when there was nothing to do."""
    if not table.count_rows() or column in _indexed(table):
        return False
    from lancedb.index import BTree

    retried(lambda: table.create_index(column, config=BTree()))
    return True


def _indexed(table: Any) -> set[str]:
    return {column for index in table.list_indices() for column in index.columns}


def fold(table: Any) -> None:
    """Brings the index up to all rows, compacts, frees old versions."""
    ensure_index(table)
    retried(lambda: table.optimize(cleanup_older_than=KEEP_VERSIONS))


def unindexed(table: Any) -> int:
    """Rows that a search has to scan."""
    for index in table.list_indices():
        if "words" in index.columns:
            stats = table.index_stats(index.name)
            return int(stats.num_unindexed_rows) if stats is not None else int(table.count_rows())
    return int(table.count_rows())


def _any_held(table: Any, paths: Sequence[str]) -> list[str]:
    """Those of the paths that the table holds."""
    if not paths or not table.count_rows():
        return []
    rows = table.search().select(["path"]).where(among(paths)).to_arrow()
    return sorted(set(rows.column("path").to_pylist()))
