"""The LanceDB table of vectors: its columns, its index of nearest neighbours, its queries.

Up to `EXACT_ROWS` rows a search compares with all of them; beyond, an IVF index without quantisation is built and built
again when the table has doubled. Measured with 384 dimensions on two cores: all of 25,000 take 12 ms, of 100,000 40 ms,
with the index 10 ms and, of the hundred nearest, the same ones. 16-bit floats halve the file and double the time.

Knows LanceDB and Arrow, and neither folders, locks nor codices. Raises what LanceDB raises.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from codex.archive.tables import LanceSession, check_columns, retried

EXACT_ROWS = 30_000
_PARTITION_ROWS = 1_000
_PROBED = 0.2  # of the partitions
_INDEX = "nearest_"  # and the number of rows that it was trained on
_FRAGMENTS = 64  # files that a search opens before they are folded into one
_KEEP_VERSIONS = timedelta(minutes=10)
_READ_ROWS = 8_192


def create(folder: Path, session: LanceSession, dimensions: int) -> Any:
    """A new empty table in a folder that exists."""
    import pyarrow as pa

    fields = [pa.field("digest", pa.string()), pa.field("vector", pa.list_(pa.float32(), dimensions))]
    return session.connect(folder).create_table("vectors", schema=pa.schema(fields))


def open_table(folder: Path, session: LanceSession) -> Any:
    """The table that stands in a folder."""
    table = session.connect(folder).open_table("vectors")
    check_columns(table, ("digest", "vector"))
    return table


def digests(table: Any) -> frozenset[str]:
    """Of all rows."""
    if not table.count_rows():
        return frozenset()
    return frozenset(table.search().select(["digest"]).to_arrow().column("digest").to_pylist())


def add(table: Any, dimensions: int, vectors: Mapping[str, Sequence[float]]) -> None:
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


def among(table: Any, wanted: Collection[str]) -> Iterator[Any]:
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


def nearest(table: Any, vector: Sequence[float], n: int) -> list[tuple[str, float]]:
    """Digest and cosine of the `n` nearest rows, best first; ties by digest."""
    rows = table.count_rows()
    if not rows:
        return []
    search = table.search(list(vector), vector_column_name="vector").distance_type("cosine")
    search = search.nprobes(max(20, int(rows / _PARTITION_ROWS * _PROBED)))
    found = search.select(["digest", "_distance"]).limit(n).to_arrow()
    pairs = zip(found.column("digest").to_pylist(), found.column("_distance").to_pylist(), strict=True)
    return sorted(((digest, 1 - distance) for digest, distance in pairs), key=lambda pair: (-pair[1], pair[0]))


def forget(table: Any, unused: Collection[str]) -> None:
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
