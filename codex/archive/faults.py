"""LanceDB's errors, told apart: the disk cannot take more, another writer was quicker, or what is stored is damaged."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

_WORLD = ("no space left", "permission denied", "read-only file system", "quota exceeded", "file too large")
_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EMFILE, errno.ENFILE}

_SOURCE = re.compile(r",? /\S+\.rs:\d+:\d+")
_PANICS = {"pyo3_async_runtimes", "pyo3_runtime"}  # modules that exist as the names of their classes only

LANCE_ERRORS = (RuntimeError, ValueError, OSError)  # all that its calls raise, under `panics_as_errors`


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic in LanceDB's Rust as a RuntimeError: it answers some damage so, with classes that cannot be imported."""
    try:
        yield
    except BaseException as error:  # pyo3's own PanicException is no Exception
        if type(error).__module__ not in _PANICS:
            raise
        raise RuntimeError(f"LanceDB gave up: {error}") from error


def why(error: Exception) -> str:
    """Its message in one line, without the place in LanceDB's sources."""
    return _SOURCE.sub("", " ".join(str(error).split()))[:200]


def is_of_the_world(error: Exception) -> bool:
    """A full disk, a missing permission, a lost race: what was stored stays usable."""
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    text = str(error).lower()
    return "conflict" in text or "too many open files" in text or any(word in text for word in _WORLD)
