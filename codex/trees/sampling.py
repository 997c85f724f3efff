"""A sample of a codebase's files, and what is true of all of them as far as the sample tells. Pure.

Files are drawn by a hash of their names: as good as by chance, and the same every time. Each counts by its size, because
what is asked for is a share of all bytes.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

FILES = 128
MOST_BYTES = 8 << 20  # of them; what is drawn later is left out
HEAD = 16_000  # characters of one file: its beginning tells its tokens a byte

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SampledFile:
    """A file of the sample: its name, its bytes, and its text, None where a load leaves it out."""

    path: str
    size: int
    text: str | None


def drawn(files: Iterable[T], path: Callable[[T], str], size: Callable[[T], int]) -> list[T]:
    """At most so many of the files, and of their bytes; at least one where there is any."""
    chosen: list[T] = []
    left = MOST_BYTES
    for one in heapq.nsmallest(FILES, files, key=lambda each: _lot(path(each))):
        if not chosen or size(one) <= left:
            chosen.append(one)
            left -= size(one)
    return chosen


def head(text: str) -> str:
    """The beginning of a text, to the end of a line where there is one."""
    if len(text) <= HEAD:
        return text
    end = text.rfind("\n", 0, HEAD) + 1
    return text[: end or HEAD]


def scaled(shares: Sequence[tuple[int, float]], total_bytes: int) -> int:
    """What all bytes hold of something. `shares`: of each file of the sample its bytes, and how much one of them holds."""
    weight = sum(size for size, _ in shares)
    return round(total_bytes * sum(size * share for size, share in shares) / weight) if weight else 0


def _lot(path: str) -> bytes:
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()
