"""A library with its index in memory, and a folder to load."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.libraries import MemoryIndex, fill

from codex.library import Library


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex()


@pytest.fixture
def library(tmp_path: Path, index: MemoryIndex) -> Iterator[Library]:
    opened = Library(tmp_path / "data", indexer=index)
    yield opened
    opened.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fill(tmp_path / "project", {"src/a.py": "a = 1\n", "src/b.py": "b = 2\n", "logo.png": "x", ".env": "K=1\n"})
