"""A model's files: all shards of it, and a sample that tells one model from another without reading it whole.

Loads no llama.cpp: the daemon asks here too.
"""

import re
from pathlib import Path
from typing import Protocol

_HEAD = 4 * 1024 * 1024
_PIECE = 64 * 1024
_PIECES = 64


class Digest(Protocol):
    """One of hashlib's."""

    def update(self, data: bytes, /) -> None: ...


def shards(first: Path) -> list[Path]:
    """All files of a split model (`name-00001-of-00003.gguf`), or the one file."""
    found = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", first.name)
    if not found:
        return [first]
    return [first.with_name(f"{found[1]}-{number:05d}-of-{found[2]}.gguf") for number in range(1, int(found[2]) + 1)]


def sample_file(path: Path, digest: Digest) -> None:
    """The size, the header and pieces spread over the file: at most 8 MiB are read."""
    size = path.stat().st_size
    digest.update(f"{size}\n".encode())
    with path.open("rb") as file:
        digest.update(file.read(_HEAD))
        for number in range(_PIECES):
            file.seek(max(_HEAD, (size - _PIECE) * (number + 1) // _PIECES))
            digest.update(file.read(_PIECE))
