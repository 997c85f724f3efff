"""The memory of this process during a load: full garbage collections are paused, and freed memory is returned.

A full collection of Python visits every object and stops all other threads. Measured with 100,000 files: ten collections
while a map was made in a worker thread, and ten at each comparison with the disk. Each stopped the event loop, the last
ones for a second; nothing else stopped it for more than a seventh of a second. The objects that are built there have no
cycles and need no collector; young objects are collected as usual.

LanceDB folds in several threads, and glibc keeps the memory that each has freed: after a fold of 140,000 chunks the process
kept 572 MB, and 317 MB since the memory is returned.
"""

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NEVER = 1_000_000  # collections of the middle generation
_lock = threading.Lock()
_inside: list[tuple[int, int, int]] = []  # the thresholds to come back to, once for each who is inside
_MMAP_THRESHOLD = -3  # of mallopt, in glibc's malloc.h
_LARGE = 1 << 20  # bytes; left alone, glibc raises it to 32 MiB as such blocks are freed


@contextmanager
def gc_pause() -> Iterator[None]:
    """No full collection begins until the last caller has left; then the usual thresholds hold again."""
    with _lock:
        _inside.append(_inside[0] if _inside else gc.get_threshold())
        young, middle, _ = _inside[0]
        gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        with _lock:
            usual = _inside.pop()
            if not _inside:
                gc.set_threshold(*usual)


def give_back_at_once() -> None:
    """From now on a large block is returned to the kernel as soon as it is freed.

    A fold of 60,000 chunks peaks at 261 MB instead of 384 in the same time. No effect without `mallopt` in the C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Returns freed memory to the kernel; takes a tenth of a second. No effect without `malloc_trim` in the C library."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
