"""Texts that a model could make nothing of, or that ended the engine: remembered, so that one of them stops nothing twice.

By the model's name and the text's digest: another model, or the text after an edit, is tried. Thread-safe.
"""

import hashlib
import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from codex.catalog.renewable import Renewable
from codex.errors import CodexError

SCHEMA = (
    "CREATE TABLE refused (model TEXT NOT NULL, text TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (model, text));",
)
INSERT = "INSERT OR IGNORE INTO refused VALUES (?, ?, ?)"

log = logging.getLogger("lorekeep.embedding")


class Refusals:
    """The file is made by the first refusal. Where it cannot be used, refusals hold until the daemon ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: Renewable | None = None
        self._known: set[tuple[str, str]] | None = None

    def any(self, model: str, texts: Iterable[str]) -> bool:
        with self._lock:
            known = self._read()
            return bool(known) and any((model, digest(text)) in known for text in texts)

    def add(self, model: str, text: str, why: str) -> None:
        with self._lock:
            key = (model, digest(text))
            if key in self._read():
                return
            self._read().add(key)
            log.warning("a text cannot be embedded with %s and is passed over from now on: %s", model, why)
            self._write(*key, why)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _read(self) -> set[tuple[str, str]]:
        if self._known is None:
            self._known = set()
            if self._path.exists():
                try:
                    self._known.update(self._opened().read("SELECT model, text FROM refused"))
                except CodexError as fault:
                    log.warning("%s", fault)
        return self._known

    def _write(self, model: str, text: str, why: str) -> None:
        try:
            self._opened().write(lambda file: file.execute(INSERT, (model, text, why)))
        except CodexError as fault:
            log.warning("%s", fault)

    def _opened(self) -> Renewable:
        self._file = self._file or Renewable(self._path, SCHEMA, "texts that cannot be embedded are tried once more")
        return self._file


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
