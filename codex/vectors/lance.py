"""Vectors in LanceDB: a `VectorIndex` under a folder of its own, with one small database for each codex and space.

A database's folder names the codex and the space by hash and holds their names in `names.json`. Vectors can be made
again, so what cannot be read is removed.
"""

import hashlib
import json
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codex.archive.faults import LANCE_ERRORS, is_of_the_world, panics_as_errors, why
from codex.archive.tables import LanceSession
from codex.vectors import tables
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
                return frozenset() if table is None else tables.digests(table)
        except VectorsDamaged:
            return frozenset()

    def count(self, codex: str, space: Space) -> int:
        with self._table(codex, space) as table:
            return 0 if table is None else int(table.count_rows())

    def add(self, codex: str, space: Space, vectors: Mapping[str, Sequence[float]]) -> None:
        if vectors:
            with self._writing, self._made(codex, space) as table:
                tables.add(table, space.dimensions, vectors)

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
                for rows in tables.among(theirs, digests):
                    with self._writing, self._made(codex, space) as table:
                        tables.add_rows(table, rows)
                    copied.update(rows.column("digest").to_pylist())
        except VectorsDamaged as error:
            if error.codex == codex:
                raise
        return copied

    def nearest(self, codex: str, space: Space, vector: Sequence[float], n: int) -> tuple[tuple[str, float], ...]:
        with self._table(codex, space) as table:
            return () if table is None or n <= 0 else tuple(tables.nearest(table, vector, n))

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
                tables.forget(table, unused)
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
            if is_of_the_world(error):
                raise VectorError(f"the vectors of {codex!r} cannot be used: {why(error)}; free some room") from error
            with self._writing:
                self._remove(folder)
            raise VectorsDamaged(codex, why(error)) from error

    def _opened(self, folder: Path) -> Any:
        if folder not in self._open:
            with self._writing:
                if folder not in self._open and folder.is_dir():
                    self._open[folder] = tables.open_table(folder, self._session)
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
            self._open[folder] = tables.create(folder, self._session, space.dimensions)
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
