"""What a floor's hot files were, and what questions touched: small, lasting, in one SQLite file.

The hot subset is frozen with its generation: a floor that is raised again after a restart must be the same prefix, though
git, the room and what was asked have changed since. Thread-safe. A damaged file is begun again: floors are then
chosen anew.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from codex.schema import open_or_replace, transaction, translated

SCHEMA = (
    """
    CREATE TABLE touched (codex TEXT NOT NULL, path TEXT NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (codex, path));
    CREATE TABLE frozen (codex TEXT PRIMARY KEY, generation INTEGER NOT NULL, paths TEXT NOT NULL);
    """,
)
_MOST = 1 << 20  # a count beyond says nothing more


class Ledger:
    """Methods may be called from any thread. Raises DiskFull where it writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._database = open_or_replace(path, SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def touch(self, codex: str, paths: Iterable[str]) -> None:
        """One question more whose answer used these files."""
        rows = [(codex, path, _MOST) for path in dict.fromkeys(paths)]
        if rows:
            with self._lock, transaction(self._database, self._path) as database:
                database.executemany(
                    "INSERT INTO touched (codex, path, times) VALUES (?, ?, 1) "
                    "ON CONFLICT (codex, path) DO UPDATE SET times = min(times + 1, ?)",
                    rows,
                )

    def touched(self, codex: str) -> Mapping[str, int]:
        """Questions by path."""
        with self._lock, translated(self._path):
            return dict(self._database.execute("SELECT path, times FROM touched WHERE codex = ?", (codex,)).fetchall())

    def freeze(self, codex: str, generation: int, hot: Iterable[str]) -> None:
        """From now on these are the hot files of this generation; older generations' are forgotten."""
        with self._lock, transaction(self._database, self._path) as database:
            database.execute(
                "INSERT OR REPLACE INTO frozen (codex, generation, paths) VALUES (?, ?, ?)",
                (codex, generation, json.dumps(list(hot))),
            )

    def frozen(self, codex: str, generation: int) -> tuple[str, ...] | None:
        """The hot files of this generation, None while nothing was frozen."""
        with self._lock, translated(self._path):
            row = self._database.execute(
                "SELECT paths FROM frozen WHERE codex = ? AND generation = ?", (codex, generation)
            ).fetchone()
        return None if row is None else tuple(json.loads(row[0]))

    def forget(self, codex: str) -> None:
        with self._lock, transaction(self._database, self._path) as database:
            database.execute("DELETE FROM touched WHERE codex = ?", (codex,))
            database.execute("DELETE FROM frozen WHERE codex = ?", (codex,))
