"""Whether what is written to an open database is found again: its file may have been deleted or replaced under it.

SQLite goes on writing to the file that it opened, which ends with the process. Beside a rollback journal it looks for
this itself, beside a log (WAL) it does not.
"""

import sqlite3
from pathlib import Path

from codex.errors import Misplaced


class Connection(sqlite3.Connection):
    """`file`: device and number of what was opened; None where nobody could look."""

    file: tuple[int, int] | None = None


def file_at(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def insist_on_own_file(database: sqlite3.Connection, path: Path) -> None:
    """Raises Misplaced."""
    file = database.file if isinstance(database, Connection) else None
    if file is not None and file_at(path) != file:
        raise Misplaced(
            f"{path} was deleted or moved while it was in use: what is written is lost when the daemon ends; "
            "put it back, or start the daemon anew and load again"
        )
