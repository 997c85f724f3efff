"""A file system of a few hundred kilobytes or some megabytes, to be filled to its last page."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mounted at `place` while inside; `size` as mount takes it ("600k"). Only root may: others skip the test."""
    place.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs more rights")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
