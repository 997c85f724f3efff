"""One load of a codex at a time, over threads and processes.

Advisory file locks, because the kernel releases them with the process, however it ends.
"""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from codex.errors import LoadRunning
from codex.schema import translated


@contextmanager
def load_lock(folder: Path, name: str, source: str, title: str) -> Iterator[None]:
    """Hold the codex's name and its source. Raises LoadRunning at once when either is held, DiskFull, CatalogError."""
    with ExitStack() as held:
        for key in sorted((f"name:{name}", f"source:{source}")):
            path = folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.lock"
            with translated(path):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = held.enter_context(path.open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LoadRunning(
                    f"a load of {title} as {name!r} is running; wait for it, or end it with: lore load --cancel {name}"
                ) from None
        yield
