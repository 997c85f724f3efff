"""The folder of one model's checkpoints, as a process finds it: anybody may have put anything there, or taken it away."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.engine.checkpoints.file import DamagedCheckpoint, SegmentHeader, read_header

log = logging.getLogger("lorekeep.engine.tiers")

SUFFIX = ".kv"


def usable(folder: Path) -> bool:
    """Whether checkpoints can be kept there, after making it. Among other models' folders it is the last one used."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.utime(folder)
    except OSError as error:
        log.warning("no checkpoints are kept on disk: %s", error)
        return False
    return True


def checkpoints(folder: Path, root: str, damaged: Callable[[Exception], None]) -> Iterator[tuple[SegmentHeader, int]]:
    """Headers and sizes of `root`'s files, longest unused first. What is damaged, which is told, foreign or left over is
    deleted."""
    for leftover in folder.glob("*.tmp"):
        delete(leftover)
    for path in sorted(folder.glob(f"*{SUFFIX}"), key=written):
        try:
            header, size = read_header(path), path.stat().st_size
        except (OSError, DamagedCheckpoint) as error:
            damaged(error)
            delete(path)
            continue
        if header.root == root and path.stem == header.name:
            yield header, size
        else:
            delete(path)


def written(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0  # gone meanwhile


def delete(path: Path) -> None:
    """What cannot be deleted stays and is not used."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be deleted: %s", path, error.strerror or error)
