"""The checkpoints on disk, all models' together, and their deletion while the daemon runs.

A checkpoint that is gone is a miss: what it held is computed again. Files that cannot be looked at or deleted stay.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SUFFIX = ".kv"  # of a checkpoint, as the engine names it
VERSION_PLAIN, VERSION_SEALED = b"LOREKV\1\0", b"LOREKV\2\0"  # how the engine's files begin
log = logging.getLogger("lorekeep")


def checkpoint_files(folder: Path) -> Iterator[Path]:
    """Beside them the folder holds notes of what was chosen for a model, which are not made again at once."""
    return folder.glob(f"*/*{SUFFIX}")


def size_of_checkpoints(folder: Path) -> tuple[int, int]:
    """How many, and their bytes."""
    sizes = []
    for path in checkpoint_files(folder):
        with suppress(OSError):  # it went meanwhile
            sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)


def sealed_checkpoints(folder: Path) -> tuple[int, int]:
    """How many are encrypted, and how many are not, as they say of themselves."""
    sealed = plain = 0
    for path in checkpoint_files(folder):
        with suppress(OSError), path.open("rb") as file:
            version = file.read(len(VERSION_SEALED))
            sealed, plain = sealed + (version == VERSION_SEALED), plain + (version == VERSION_PLAIN)
    return sealed, plain


def drop_checkpoints(folder: Path) -> None:
    """Folders stay: the engine writes into them."""
    for path in checkpoint_files(folder):
        try:
            path.unlink(missing_ok=True)
        except OSError as fault:
            log.warning("a checkpoint could not be deleted: %s", fault)
