"""Vectors by digest of the embedded text, for each codex and space, in LanceDB. The codex has no model.

Contract, which `tests/contracts/test_vectors.py` also holds the tests' vectors in memory to:

* Keys. A vector belongs to the text of a chunk, by its digest, and to the space that it was made in. It does not belong
  to a place: a branch that is checked out again, a moved file and a second codex of the same tree reuse vectors.
* Updates. `codex.vectors.filling` fills it. A chunk without a vector is not found by meaning.
* Threads. Any thread may call; writes wait for each other. A call that begins after a write sees it.
* Errors. `VectorsDamaged`: the stored data cannot be read; it has been removed, and `held` is empty. `VectorError`:
  every other fault of the machine. An unknown codex or space is empty, not an error.

Each codex and space has one small database, in a folder named by a hash of both; `names.json` in it has their names.
Vectors can be made again, so a database that cannot be read is removed.
"""

import hashlib
import json
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from codex.archive.lance import (
    KEEP_VERSIONS,
    LANCE_ERRORS,
    LanceSession,
    check_columns,
    is_of_the_disk,
    panics_as_errors,
    remedy,
    retried,
    short_message,
)
from codex.archive.queries import among
from codex.errors import CodexError
from codex.vectors.embedder import Space

_SCHEMA = 1  # in every folder's name; another version's are removed when the codex is next filled
_NAMES = "names.json"
EXACT_ROWS = 30_000
_PARTITION_ROWS = 1_000
_PROBED = 0.2  # of the partitions
_INDEX = "nearest_"  # and the number of rows that it was trained on
_FRAGMENTS = 64  # files that a search opens before they are folded into one
_READ_ROWS = 8_192
_IN_LIST = 500  # digests of one deletion: the parser of conditions is recursive


class VectorError(CodexError):
    """Vectors cannot be stored because of the world."""


class VectorsDamaged(VectorError):
    """The vectors of a codex cannot be read; they were removed and will be embedded again."""

    def __init__(self, codex: str, why: str) -> None:
        super().__init__(f"the vectors of {codex!r} are damaged ({why}); they were removed and will be embedded again")
        self.codex = codex


class VectorIndex:
    """An index under a folder of its own. Cheap to make: LanceDB is imported at the first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._session = LanceSession()
        self._open: dict[Path, Any] = {}
        self._writing = threading.RLock()

    def held(self, codex: str, space: Space) -> frozenset[str]:
        """Digests of the texts that have a vector."""
        try:
            with self._table(codex, space) as table:
                if table is None or not table.count_rows():
                    return frozenset()
                return frozenset(table.search().select(["digest"]).to_arrow().column("digest").to_pylist())
        except VectorsDamaged:
            return frozenset()

    def count(self, codex: str, space: Space) -> int:
        """How many vectors there are, without reading them."""
        with self._table(codex, space) as table:
            return 0 if table is None else int(table.count_rows())

    def add(self, codex: str, space: Space, vectors: Mapping[str, Sequence[float]]) -> None:
        """Stores vectors by digest, as one step; what was held under a digest stays as it is."""
        if not vectors:
            return
        with self._writing, self._made(codex, space) as table:
            import numpy as np
            import pyarrow as pa

            flat = pa.array(np.asarray(list(vectors.values()), dtype=np.float32).ravel())
            vector = pa.FixedSizeListArray.from_arrays(flat, space.dimensions)
            _add(table, pa.table({"digest": list(vectors), "vector": vector}))

    def adopt(self, codex: str, space: Space, digests: Collection[str]) -> frozenset[str]:
        """Takes over the vectors that other codices hold of these texts; returns whose it found."""
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
                for rows in _rows_among(theirs, digests):
                    with self._writing, self._made(codex, space) as table:
                        _add(table, rows)
                    copied.update(rows.column("digest").to_pylist())
        except VectorsDamaged as error:
            if error.codex == codex:
                raise
        return copied

    def nearest(self, codex: str, space: Space, vector: Sequence[float], n: int) -> tuple[tuple[str, float], ...]:
        """Digests of the `n` texts nearest to a vector with their cosine, best first; ties by digest."""
        with self._table(codex, space) as table:
            rows = table.count_rows() if table is not None and n > 0 else 0
            if not rows:
                return ()
            search = table.search(list(vector), vector_column_name="vector").distance_type("cosine")
            search = search.nprobes(max(20, int(rows / _PARTITION_ROWS * _PROBED)))
            found = search.select(["digest", "_distance"]).limit(n).to_arrow()
        pairs = zip(found.column("digest").to_pylist(), found.column("_distance").to_pylist(), strict=True)
        return tuple(sorted(((digest, 1 - distance) for digest, distance in pairs), key=lambda one: (-one[1], one[0])))

    def sweep(self, codex: str, space: Space, used: Collection[str]) -> int:
        """Deletes unused vectors once they outnumber those in use: a branch may be checked out again.

        Also forgets the codex's vectors of all other spaces. Returns the number of vectors forgotten in this one.
        """
        with self._writing:
            mine = self._folder(codex, space)
            for folder in self._root.glob(f"{_hash(codex)}.*"):
                if folder != mine:
                    self._remove(folder)
            unused = self.held(codex, space) - set(used)
            if len(unused) <= len(used):
                return 0
            self.forget(codex, space, unused)
            return len(unused)

    def forget(self, codex: str, space: Space, digests: Collection[str]) -> None:
        """Deletes these vectors at once."""
        if not digests:
            return
        with self._writing, self._made(codex, space) as table:
            gone = sorted(digests)
            for at in range(0, len(gone), _IN_LIST):
                condition = among(gone[at : at + _IN_LIST], "digest")
                retried(partial(table.delete, condition))
            _fold(table)

    def drop(self, codex: str) -> None:
        """Forgets the codex in every space, and frees its room; no error when it is not known."""
        with self._writing:
            for folder in self._root.glob(f"{_hash(codex)}.*"):
                self._remove(folder)

    def codices(self) -> frozenset[str]:
        """Names of those that have vectors: who drops those that are no longer loaded needs them."""
        names = (_codex_of(folder) for folder in self._root.glob("*.*"))
        return frozenset(name for name in names if name is not None)

    def close(self) -> None:
        """Lets go of all files; the next call opens them again. Nobody may be asking."""
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
                    f"the vectors of {codex!r} cannot be used: {short_message(error)}; {remedy(error)}"
                ) from error
            with self._writing:
                self._remove(folder)
            raise VectorsDamaged(codex, short_message(error)) from error

    def _opened(self, folder: Path) -> Any:
        if folder not in self._open:
            with self._writing:
                if folder not in self._open and folder.is_dir():
                    table = self._session.connect(folder).open_table("vectors")
                    check_columns(table, ("digest", "vector"))
                    self._open[folder] = table
        return self._open.get(folder)

    @contextmanager
    def _made(self, codex: str, space: Space) -> Iterator[Any]:
        """The open table, new when there is none. Under the lock."""
        with self._table(codex, space) as table:
            yield table if table is not None else self._create(codex, space)

    def _create(self, codex: str, space: Space) -> Any:
        import pyarrow as pa

        folder = self._folder(codex, space)
        folder.mkdir(parents=True, mode=0o700)
        names = {"codex": codex, "embedder": space.embedder, "dimensions": space.dimensions}
        (folder / _NAMES).write_text(json.dumps(names), encoding="utf-8")
        try:
            fields = [pa.field("digest", pa.string()), pa.field("vector", pa.list_(pa.float32(), space.dimensions))]
            self._open[folder] = self._session.connect(folder).create_table("vectors", schema=pa.schema(fields))
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


def _add(table: Any, rows: Any) -> None:
    """Adds Arrow's rows of digests that have none; folds when many small files have come together."""
    retried(lambda: table.merge_insert("digest").when_not_matched_insert_all().execute(rows))
    if table.stats()["fragment_stats"]["num_fragments"] > _FRAGMENTS:
        _fold(table)


def _rows_among(table: Any, wanted: Collection[str]) -> Iterator[Any]:
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


def _fold(table: Any) -> None:
    """Few files, an index where it pays, no old versions."""
    retried(lambda: table.optimize(cleanup_older_than=KEEP_VERSIONS))
    rows = table.count_rows()
    trained = max((int(one.name.removeprefix(_INDEX)) for one in table.list_indices()), default=0)
    if rows <= EXACT_ROWS or rows < 2 * trained:
        return
    from lancedb.index import IvfFlat

    config = IvfFlat(distance_type="cosine", num_partitions=rows // _PARTITION_ROWS)
    retried(lambda: table.create_index("vector", config=config, name=f"{_INDEX}{rows}"))
    if trained and trained != rows:
        retried(lambda: table.drop_index(f"{_INDEX}{trained}"))
