"""Vectors in LanceDB: a `VectorIndex` under a folder of its own, with one small database for each codex and space.

A database's folder is named by a hash of the codex and the space; `names.json` in it has their names. Vectors can be made
again, so a database that cannot be read is removed.
"""

import hashlib
import json
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from codex.archive.lance import (
    LANCE_ERRORS,
    LanceSession,
    check_columns,
    is_of_the_disk,
    panics_as_errors,
    retried,
    short_message,
)
from codex.vectors.port import Space, VectorError, VectorsDamaged

_SCHEMA = 1  # in every folder's name; another version's are removed when the codex is next filled
_NAMES = "names.json"


class LanceVectors:
    """See `VectorIndex`. Cheap to make: LanceDB is imported at the first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._session = LanceSession()
        self._open: dict[Path, Any] = {}
        self._writing = threading.RLock()

    def held(self, codex: str, space: Space) -> frozenset[str]:
        try:
            with self._table(codex, space) as table:
                return frozenset() if table is None else digests_of(table)
        except VectorsDamaged:
            return frozenset()

    def count(self, codex: str, space: Space) -> int:
        with self._table(codex, space) as table:
            return 0 if table is None else int(table.count_rows())

    def add(self, codex: str, space: Space, vectors: Mapping[str, Sequence[float]]) -> None:
        if vectors:
            with self._writing, self._made(codex, space) as table:
                add_vectors(table, space.dimensions, vectors)

    def adopt(self, codex: str, space: Space, digests: Collection[str]) -> frozenset[str]:
        wanted = set(digests)
        found: set[str] = set()
        for other in self._others(codex, space):
            there = (wanted - found) & self.held(other, space)
            if there:
                found |= self._copied(codex, space, other, there)
        return frozenset(found)

    def _copied(self, codex: str, space: Space, other: str, digests: Collection[str]) -> set[str]:
        copied: set[str] = set()
        try:
            with self._table(other, space) as theirs:
                for rows in rows_among(theirs, digests):
                    with self._writing, self._made(codex, space) as table:
                        add_rows(table, rows)
                    copied.update(rows.column("digest").to_pylist())
        except VectorsDamaged as error:
            if error.codex == codex:
                raise
        return copied

    def nearest(self, codex: str, space: Space, vector: Sequence[float], n: int) -> tuple[tuple[str, float], ...]:
        with self._table(codex, space) as table:
            return () if table is None or n <= 0 else tuple(nearest_rows(table, vector, n))

    def sweep(self, codex: str, space: Space, used: Collection[str]) -> int:
        with self._writing:
            mine = self._folder(codex, space)
            for folder in self._root.glob(f"{_hash(codex)}.*"):
                if folder != mine:
                    self._remove(folder)
            unused = self.held(codex, space) - set(used)
            if len(unused) <= len(used):
                return 0
            with self._made(codex, space) as table:
                forget_rows(table, unused)
            return len(unused)

    def drop(self, codex: str) -> None:
        with self._writing:
            for folder in self._root.glob(f"{_hash(codex)}.*"):
                self._remove(folder)

    def codices(self) -> frozenset[str]:
        names = (_codex_of(folder) for folder in self._root.glob("*.*"))
        return frozenset(name for name in names if name is not None)

    def close(self) -> None:
        with self._writing:
            self._open.clear()
            self._session = LanceSession()

    # -- folders and tables ----------------------------------------------------------------------------------------

    def _folder(self, codex: str, space: Space) -> Path:
        return self._root / f"{_hash(codex)}{_suffix(space)}"

    def _others(self, codex: str, space: Space) -> Iterator[str]:
        """Other codices with vectors of the same space."""
        for folder in sorted(self._root.glob(f"*{_suffix(space)}")):
            other = _codex_of(folder)
            if other is not None and other != codex:
                yield other

    @contextmanager
    def _table(self, codex: str, space: Space) -> Iterator[Any]:
        """The open table, None when there is none. What cannot be read is removed, with `VectorsDamaged`."""
        folder = self._folder(codex, space)
        try:
            with panics_as_errors():
                yield self._opened(folder)
        except LANCE_ERRORS as error:
            if is_of_the_disk(error):
                raise VectorError(
                    f"the vectors of {codex!r} cannot be used: {short_message(error)}; free some room"
                ) from error
            with self._writing:
                self._remove(folder)
            raise VectorsDamaged(codex, short_message(error)) from error

    def _opened(self, folder: Path) -> Any:
        if folder not in self._open:
            with self._writing:
                if folder not in self._open and folder.is_dir():
                    self._open[folder] = open_table(folder, self._session)
        return self._open.get(folder)

    @contextmanager
    def _made(self, codex: str, space: Space) -> Iterator[Any]:
        """The open table, new when there is none. Under the lock."""
        with self._table(codex, space) as table:
            yield table if table is not None else self._create(codex, space)

    def _create(self, codex: str, space: Space) -> Any:
        folder = self._folder(codex, space)
        folder.mkdir(parents=True, mode=0o700)
        names = {"codex": codex, "embedder": space.embedder, "dimensions": space.dimensions}
        (folder / _NAMES).write_text(json.dumps(names), encoding="utf-8")
        try:
            self._open[folder] = create_table(folder, self._session, space.dimensions)
        except LANCE_ERRORS:  # no room: nothing was stored, and a folder without its table would look damaged
            self._remove(folder)
            raise
        return self._open[folder]

    def _remove(self, folder: Path) -> None:
        self._open.pop(folder, None)
        shutil.rmtree(folder, ignore_errors=True)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _suffix(space: Space) -> str:
    named = f"{space.embedder}\n{space.dimensions}"
    return f".{_hash(named)}.v{_SCHEMA}"


def _codex_of(folder: Path) -> str | None:
    try:
        names = json.loads((folder / _NAMES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(names["codex"])


EXACT_ROWS = 30_000
_PARTITION_ROWS = 1_000
_PROBED = 0.2  # of the partitions
_INDEX = "nearest_"  # and the number of rows that it was trained on
_FRAGMENTS = 64  # files that a search opens before they are folded into one
_KEEP_VERSIONS = timedelta(minutes=10)
_READ_ROWS = 8_192


def create_table(folder: Path, session: LanceSession, dimensions: int) -> Any:
    """A new empty table in a folder that exists."""
    import pyarrow as pa

    fields = [pa.field("digest", pa.string()), pa.field("vector", pa.list_(pa.float32(), dimensions))]
    return session.connect(folder).create_table("vectors", schema=pa.schema(fields))


def open_table(folder: Path, session: LanceSession) -> Any:
    """The table of a folder."""
    table = session.connect(folder).open_table("vectors")
    check_columns(table, ("digest", "vector"))
    return table


def digests_of(table: Any) -> frozenset[str]:
    """Of all rows."""
    if not table.count_rows():
        return frozenset()
    return frozenset(table.search().select(["digest"]).to_arrow().column("digest").to_pylist())


def add_vectors(table: Any, dimensions: int, vectors: Mapping[str, Sequence[float]]) -> None:
    """Rows for digests that have none."""
    import numpy as np
    import pyarrow as pa

    flat = pa.array(np.asarray(list(vectors.values()), dtype=np.float32).ravel())
    vector = pa.FixedSizeListArray.from_arrays(flat, dimensions)
    add_rows(table, pa.table({"digest": list(vectors), "vector": vector}))


def add_rows(table: Any, rows: Any) -> None:
    """The same for rows as Arrow has them; folds when many small files have come together."""
    retried(lambda: table.merge_insert("digest").when_not_matched_insert_all().execute(rows))
    if table.stats()["fragment_stats"]["num_fragments"] > _FRAGMENTS:
        fold(table)


def rows_among(table: Any, wanted: Collection[str]) -> Iterator[Any]:
    """The rows of these digests, as Arrow tables of bounded size."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if table is None or not table.count_rows():
        return
    asked = pa.array(sorted(wanted), pa.string())
    for batch in table.search().select(["digest", "vector"]).to_batches(_READ_ROWS):
        found = batch.filter(compute.is_in(batch.column("digest"), value_set=asked))
        if found.num_rows:
            yield pa.Table.from_batches([found])


def nearest_rows(table: Any, vector: Sequence[float], n: int) -> list[tuple[str, float]]:
    """Digest and cosine of the `n` nearest rows, best first; ties by digest."""
    rows = table.count_rows()
    if not rows:
        return []
    search = table.search(list(vector), vector_column_name="vector").distance_type("cosine")
    search = search.nprobes(max(20, int(rows / _PARTITION_ROWS * _PROBED)))
    found = search.select(["digest", "_distance"]).limit(n).to_arrow()
    pairs = zip(found.column("digest").to_pylist(), found.column("_distance").to_pylist(), strict=True)
    return sorted(((digest, 1 - distance) for digest, distance in pairs), key=lambda pair: (-pair[1], pair[0]))


def forget_rows(table: Any, unused: Collection[str]) -> None:
    """Without these rows from now on, and their room freed."""
    gone = sorted(unused)
    for at in range(0, len(gone), 500):  # in one condition: the parser is recursive
        _delete(table, gone[at : at + 500])
    fold(table)


def fold(table: Any) -> None:
    """Few files, an index where it pays, no old versions."""
    retried(lambda: table.optimize(cleanup_older_than=_KEEP_VERSIONS))
    rows = table.count_rows()
    trained = max((int(one.name.removeprefix(_INDEX)) for one in table.list_indices()), default=0)
    if rows > EXACT_ROWS and rows >= 2 * trained:
        _train(table, rows, trained)


def _delete(table: Any, digests: Sequence[str]) -> None:
    quoted = ", ".join(f"'{digest}'" for digest in digests)
    retried(lambda: table.delete(f"digest IN ({quoted})"))


def _train(table: Any, rows: int, before: int) -> None:
    from lancedb.index import IvfFlat

    config = IvfFlat(distance_type="cosine", num_partitions=rows // _PARTITION_ROWS)
    retried(lambda: table.create_index("vector", config=config, name=f"{_INDEX}{rows}"))
    if before and before != rows:
        retried(lambda: table.drop_index(f"{_INDEX}{before}"))
