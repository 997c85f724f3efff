"""Whether reading takes time in proportion to what is read: told by the thread's own time, and only by how it grows."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

Read = TypeVar("Read")
NOISE_S = 0.04  # below this a machine's own unsteadiness is all that is measured
TRIES = 3  # a neighbour on the same core makes the same steps slower for a while


def grows_at_most(times: int, read: Callable[[Read], object], once: Read, more: Read) -> bool:
    """Of the noise alone nothing need be compared with."""
    return any(_at_most(times, read, once, more) for _ in range(TRIES))


def _at_most(times: int, read: Callable[[Read], object], once: Read, more: Read) -> bool:
    took = _took(read, more)
    return took <= NOISE_S or took <= times * _took(read, once) + NOISE_S


def _took(read: Callable[[Read], object], given: Read) -> float:
    """Seconds of CPU, without what Python takes to look through all that this process holds: that is not the reader's."""
    gc.disable()
    try:
        began = time.thread_time()
        read(given)
        return time.thread_time() - began
    finally:
        gc.enable()
