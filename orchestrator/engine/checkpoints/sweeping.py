"""Keeps the checkpoints of models that are not loaded within the same budget: the longest unused model's go first."""

import logging
import shutil
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("lorekeep.engine.tiers")


def sweep(root: Path, own: str, budget: int) -> int:
    """Deletes folders of `root` but `own`, longest unused first, until all together are within `budget` bytes.

    Returns the bytes freed. Any of it may be deleted at any moment, by anybody, or not be for us to read.
    """
    folders = folders_in(root)
    sizes = {folder: size_of(folder) for folder in folders}
    total, freed = sum(sizes.values()), 0
    for folder in sorted(folders, key=used):
        if total - freed <= budget:
            break
        if folder.name != own:
            shutil.rmtree(folder, ignore_errors=True)
            freed += sizes[folder]
            log.info("checkpoints of a model that is no longer loaded were deleted: %s", folder.name)
    return freed


def folders_in(root: Path) -> list[Path]:
    """None where they cannot be looked for: whether checkpoints can be kept there is found out where they are."""
    try:
        return [folder for folder in root.iterdir() if folder.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("checkpoints of other models cannot be looked for: %s", error)
        return []


def size_of(folder: Path) -> int:
    total = 0
    with suppress(OSError):  # deleted meanwhile, or not for us to read
        for file in folder.iterdir():
            with suppress(OSError):
                total += file.lstat().st_size
    return total


def used(folder: Path) -> float:
    """When something was last written or deleted in it."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
