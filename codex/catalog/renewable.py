"""A SQLite file of what can be made again: damage, also where it shows late, costs its content and no more.

What is kept only to be quicker is a `Cache`: where the disk refuses, it is done without. Thread-safe: one piece of work
at a time. Knows no tables.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

from codex.databases import open_or_replace, replaced, transaction, translated
from codex.errors import CatalogError, DatabaseDamaged

log = logging.getLogger("lorekeep.codex")
Got = TypeVar("Got")


class Renewable:
    """`lost` says what it means that the file was begun again. Every method raises DiskFull and CatalogError."""

    def __init__(self, path: Path, schema: Sequence[str], lost: str) -> None:
        self._path = path
        self._schema = schema
        self._lost = lost
        self._lock = threading.RLock()
        self._database = open_or_replace(path, schema)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def write(self, work: Callable[[Connection], Got]) -> Got:
        """One transaction; done once more, on the empty file, when damage shows."""

        def run() -> Got:
            with transaction(self._database, self._path) as database:
                return work(database)

        return self._undamaged(run)

    def read(self, query: str, *values: object) -> list[Any]:
        def run() -> list[Any]:
            with translated(self._path):
                return self._database.execute(query, values).fetchall()

        return self._undamaged(run)

    def _undamaged(self, work: Callable[[], Got]) -> Got:
        with self._lock:
            try:
                return work()
            except DatabaseDamaged:
                log.warning("%s is damaged and begun again: %s", self._path, self._lost)
                self._database.close()
                self._database = replaced(self._path, self._schema)
                return work()


class Cache:
    """The same without errors: a full disk, a missing permission, a newer version's file are logged once."""

    def __init__(self, path: Path, schema: Sequence[str], lost: str) -> None:
        self._path = path
        self._schema = schema
        self._lost = lost
        self._file: Renewable | None = None
        self._told = False
        self._lock = threading.RLock()
        self._done(self._opened)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def write(self, work: Callable[[Connection], Got]) -> Got | None:
        """None when it could not be done."""
        return self._done(lambda: self._opened().write(work))

    def read(self, query: str, *values: object) -> list[Any]:
        """Nothing when it could not be done."""
        return self._done(lambda: self._opened().read(query, *values)) or []

    def _opened(self) -> Renewable:
        if self._file is None:
            self._file = Renewable(self._path, self._schema, self._lost)
        return self._file

    def _done(self, work: Callable[[], Got]) -> Got | None:
        with self._lock:
            try:
                return work()
            except CatalogError as fault:
                if not self._told:
                    log.warning("done without: %s", fault)
                self._told = True  # it is met again with every text
                return None
