"""LanceDB as the archive and the vectors need it: sessions, retried writes, its errors, and its death.

Its Rust code can panic: `panics_as_errors` makes that an error. It can also end the process when it reads damaged files,
by an abort or by allocating too much, and a restarted process would end the same way each time. Therefore a reader writes
a mark into the folder and removes it afterwards. When two processes in a row have left their mark, the folder is taken for
damaged; a single mark can be from a process that was killed at that moment. A mark that cannot be written is skipped.

Knows no tables, folders or codices.
"""

import errno
import fcntl
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from codex.errors import OPEN_FILES
from codex.process_memory import give_back_at_once

LANCE_ERRORS = (RuntimeError, ValueError, OSError)  # all that its calls raise, under `panics_as_errors`
KEEP_VERSIONS = timedelta(minutes=10)  # a search that began on an older version ends in milliseconds
_CONFLICT_TRIES = 5
_INDEX_CACHE = 256 << 20  # bytes; LanceDB's own bounds are 6 GiB and 1 GiB for every connection
_METADATA_CACHE = 64 << 20
_ENVIRONMENT = {  # LanceDB reads these when it is first used
    "LANCEDB_LOG": "error",  # its warnings would go to stderr, one per query
    "LANCE_DEFAULT_IO_BUFFER_SIZE": str(32 << 20),  # bytes read ahead of whoever folds; its own bound is 2 GiB
    "LANCE_FTS_PARTITION_SIZE": "64",  # MiB of words that a fold holds, then a part of the index; its own bound is 2 GiB
    "LANCE_DEFAULT_BATCH_SIZE": "1024",  # rows at once; a row of `files` has 10 kB, and 8,192 were several at a time
}
_WORLD = ("no space left", "permission denied", "read-only file system", "quota exceeded", "file too large")
_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EMFILE, errno.ENFILE}
_SOURCE = re.compile(r",? /\S+\.rs:\d+:\d+")
_PANICS = {"pyo3_async_runtimes", "pyo3_runtime"}  # modules that exist as the names of their classes only
_MARK = "reading"
_GONE = b"0"
_ENOUGH = 2  # processes in a row that ended while they read
_SOUND = 100  # reads after which what ended before is forgotten: opening alone may go well


class LanceSession:
    """Connections that share caches of bounded size; nothing is imported before the first."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._caches: Any = None
        self._options = options  # of object storage

    def connect(self, place: Path | str, seen_after: timedelta | None = None) -> Any:
        """The database of a folder or of a place on object storage; `seen_after`: when what others write is seen, else
        never."""
        if self._caches is None:
            self._caches = lancedb().Session(_INDEX_CACHE, _METADATA_CACHE)
        options = None if self._options is None else dict(self._options)
        return lancedb().connect(
            place, session=self._caches, storage_options=options, read_consistency_interval=seen_after
        )


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


def check_columns(table: Any, columns: Sequence[str]) -> None:
    """Raises ValueError for a table without them: a manifest of zeros is one of an empty table without columns."""
    missing = [name for name in columns if name not in table.schema.names]
    if missing:
        raise ValueError(f"the table {table.name} has no column {missing[0]}")


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


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic in LanceDB's Rust as a RuntimeError: it answers some damage so, with classes that cannot be imported."""
    try:
        yield
    except BaseException as error:  # pyo3's own PanicException is no Exception
        if type(error).__module__ not in _PANICS:
            raise
        raise RuntimeError(f"LanceDB gave up: {error}") from error


def is_of_the_disk(error: Exception) -> bool:
    """A full disk, a missing permission, a lost race: what was stored stays usable."""
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    text = str(error).lower()
    return "conflict" in text or "too many open files" in text or any(word in text for word in _WORLD)


def remedy(error: Exception) -> str:
    """What helps where `is_of_the_disk` says yes."""
    text = str(error).lower()
    if "too many open files in system" in text:
        return "raise fs.file-max (sysctl -w fs.file-max=N)"
    if "too many open files" in text:
        return f"raise {OPEN_FILES}"
    if "permission denied" in text or "read-only" in text:
        return "make it writable"
    return "free some room"


def short_message(error: Exception) -> str:
    """Its message in one line, without the place in LanceDB's sources."""
    return _SOURCE.sub("", " ".join(str(error).split()))[:200]


class ReadingMark:
    """One folder's mark, for all threads of this process."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._file: int | None = None
        self._reads = 0
        self._ended = 0  # before this one, in a row
        with suppress(OSError):
            self._file = os.open(folder / _MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._ended = ended(self._file)
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Lets the file go; who still reads has no mark from then on, and leaves none."""
        with self._lock:
            if self._file is not None:
                if self._readers:
                    self._write(_GONE)
                os.close(self._file)
                self._file = None

    def left_behind(self) -> bool:
        """Whether the last processes ended while they read. Asked before the first read."""
        return self._file is not None and self._ended >= _ENOUGH

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The mark is in the folder meanwhile; one reader may be inside another."""
        with self._lock:
            self._readers += 1
            if self._readers == 1:
                self._write(b"%d" % min(self._ended + 1, 9))
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    self._reads += 1
                    self._ended = self._ended if self._reads < _SOUND else 0
                    self._write(_GONE)

    def _write(self, mark: bytes) -> None:
        """A microsecond: the byte goes to the kernel, which outlives this process, and not to the disk."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, mark, 0)


def ended(file: int) -> int:
    """How many processes in a row left their mark; 0 while another one lives, which may be reading. May raise OSError."""
    mark = os.pread(file, 1, 0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0
    return int(mark) if mark.isdigit() else 0


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
