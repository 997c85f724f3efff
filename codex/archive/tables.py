"""LanceDB as the archive and the vectors need it: sessions, tables, rows, indexes, writes that are one commit, errors.

Knows LanceDB and Arrow, and no folders, locks or codices. Raises what LanceDB raises. `panics_as_errors` makes panics of
its Rust code catchable. `is_of_the_disk` separates a full disk, a missing permission and a concurrent writer from damage.
"""

import errno
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from codex.archive.prepare import PreparedDocument
from codex.archive.rows import RowCache, encode_row
from codex.archive.substring_index import sketch
from codex.process_memory import give_back_at_once

_STRINGS = ("id", "path", "digest", "text", "words", "chunk_digest", "card")
_FILE_STRINGS = ("id", "path", "digest", "words")
_NEWEST = "newest.json"
_KEEP_VERSIONS = timedelta(minutes=10)  # a search that began on an older version ends in milliseconds
_CONFLICT_TRIES = 5
_INDEX_CACHE = 256 << 20  # bytes; LanceDB's own bounds are 6 GiB and 1 GiB for every connection
_METADATA_CACHE = 64 << 20
_ENVIRONMENT = {  # LanceDB reads these when it is first used
    "LANCEDB_LOG": "error",  # its warnings would go to stderr, one per query
    "LANCE_DEFAULT_IO_BUFFER_SIZE": str(32 << 20),  # bytes read ahead of whoever folds; its own bound is 2 GiB
    "LANCE_FTS_PARTITION_SIZE": "64",  # MiB of words that a fold holds, then a part of the index; its own bound is 2 GiB
    "LANCE_DEFAULT_BATCH_SIZE": "1024",  # rows at once; a row of `files` has 10 kB, and 8,192 were several at a time
}
_IN_LIST = 500  # paths in one condition: the parser is recursive
_WORLD = ("no space left", "permission denied", "read-only file system", "quota exceeded", "file too large")
_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EMFILE, errno.ENFILE}
_SOURCE = re.compile(r",? /\S+\.rs:\d+:\d+")
_PANICS = {"pyo3_async_runtimes", "pyo3_runtime"}  # modules that exist as the names of their classes only
LANCE_ERRORS = (RuntimeError, ValueError, OSError)  # all that its calls raise, under `panics_as_errors`


@dataclass(frozen=True)
class Tables:
    """The two open tables of one codex, and what a search shows of their rows."""

    chunks: Any
    files: Any
    row_cache: RowCache = field(default_factory=lambda: RowCache("card"))
    path_cache: RowCache = field(default_factory=lambda: RowCache("path"))


class LanceSession:
    """Connections that share caches of bounded size; nothing is imported before the first."""

    def __init__(self) -> None:
        self._caches: Any = None

    def connect(self, folder: Path) -> Any:
        """The database of a folder."""
        if self._caches is None:
            self._caches = lancedb().Session(_INDEX_CACHE, _METADATA_CACHE)
        return lancedb().connect(folder, session=self._caches)


def create_tables(folder: Path, session: LanceSession) -> Tables:
    """New empty tables in a folder that exists."""
    import pyarrow as pa

    chunks = pa.schema([*(pa.field(name, pa.string()) for name in _STRINGS), pa.field("start", pa.int32())])
    files = pa.schema([*(pa.field(name, pa.string()) for name in _FILE_STRINGS), pa.field("sketch", pa.binary())])
    database = session.connect(folder)
    return Tables(database.create_table("chunks", schema=chunks), database.create_table("files", schema=files))


def open_tables(folder: Path, session: LanceSession) -> Tables:
    """The tables that stand in a folder, with their indexes: whoever wrote them may have been killed before the first."""
    database = session.connect(folder)
    opened = Tables(database.open_table("chunks"), database.open_table("files"))
    check_columns(opened.chunks, ("card", "words"))
    check_columns(opened.files, ("digest", "words", "sketch"))
    _check_versions(folder, opened)
    ensure_index(opened.chunks)
    ensure_index(opened.files)
    return opened


def check_columns(table: Any, columns: Sequence[str]) -> None:
    """Raises ValueError for a table without them: a manifest of zeros is one of an empty table without columns."""
    missing = [name for name in columns if name not in table.schema.names]
    if missing:
        raise ValueError(f"the table {table.name} has no column {missing[0]}")


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
    retried(lambda: table.optimize(cleanup_older_than=_KEEP_VERSIONS))


def show(opened: Tables) -> list[str] | None:
    """Reads beforehand what searches show. Returns the encoded rows of all chunks, None when they are too many to keep."""
    opened.path_cache.fill(opened.files)
    return opened.row_cache.fill(opened.chunks)


def unindexed(table: Any) -> int:
    """Rows that a search has to scan."""
    for index in table.list_indices():
        if "words" in index.columns:
            stats = table.index_stats(index.name)
            return int(stats.num_unindexed_rows) if stats is not None else int(table.count_rows())
    return int(table.count_rows())


def among(values: Sequence[str], column: str = "path") -> str:
    """The condition that a row is of one of these paths, or has one of these values in another column."""
    quoted = [f"""'{value.replace("'", "''")}'""" for value in values]
    parts = [f"{column} IN ({', '.join(quoted[at : at + _IN_LIST])})" for at in range(0, len(quoted), _IN_LIST)]
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


def row_id(path: str, start: int) -> str:
    """What a row of `chunks` is found by: a chunk's path and first line."""
    return f"{path}\n{start}"


def lancedb() -> Any:
    """The library, imported at the first use."""
    give_back_at_once()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    lazy_import(
        "lance_namespace_urllib3_client"
    )  # calls to a remote catalog, half of what the import takes; its models are used
    import lancedb  # 1 s and 120 MB, paid only by who searches

    return lancedb


def _any_held(table: Any, paths: Sequence[str]) -> list[str]:
    """Those of the paths that the table holds."""
    if not paths or not table.count_rows():
        return []
    rows = table.search().select(["path"]).where(among(paths)).to_arrow()
    return sorted(set(rows.column("path").to_pylist()))


def lazy_import(name: str) -> None:
    """Does nothing where the package is not there or was imported already. `name` is a top-level one."""
    spec = find_spec(name) if name not in sys.modules else None
    if spec is None or spec.loader is None or not spec.submodule_search_locations:
        return
    module, loader = module_from_spec(spec), spec.loader

    def asked_for(attribute: str) -> object:
        if attribute.startswith("__"):  # asked of every module by who looks through them all
            raise AttributeError(attribute)
        if "__getattr__" in vars(module):
            del vars(module)["__getattr__"]
            loader.exec_module(module)
        return getattr(module, attribute)

    vars(module)["__getattr__"] = asked_for
    sys.modules[name] = module


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic in LanceDB's Rust as a RuntimeError: it answers some damage so, with classes that cannot be imported."""
    try:
        yield
    except BaseException as error:  # pyo3's own PanicException is no Exception
        if type(error).__module__ not in _PANICS:
            raise
        raise RuntimeError(f"LanceDB gave up: {error}") from error


def short_message(error: Exception) -> str:
    """Its message in one line, without the place in LanceDB's sources."""
    return _SOURCE.sub("", " ".join(str(error).split()))[:200]


def is_of_the_disk(error: Exception) -> bool:
    """A full disk, a missing permission, a lost race: what was stored stays usable."""
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    text = str(error).lower()
    return "conflict" in text or "too many open files" in text or any(word in text for word in _WORLD)
