"""A codex's map: a line for each file that it answers from, and what tells least has none where there is no room."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.libraries import fill, request

from codex.catalog.databases import SqliteBytesCache
from codex.library import Library
from orchestrator.codices.reading import CodexMaps, fitting
from orchestrator.errors import NotFound

FILES = {
    "src/deep/inner/a.py": "def helper():\n    return 1\n",
    "main.py": "class App:\n    def run(self):\n        return 1\n",
    "tests/test_main.py": "def test_it():\n    pass\n",
}
PLENTY = 10_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def maps(tmp_path: Path, source: Path) -> Iterator[CodexMaps]:
    library, remembered = Library(tmp_path / "codices"), SqliteBytesCache(tmp_path / "outlines.sqlite3")
    unbuilt: Any = SimpleNamespace(get=lambda name: None)
    fill(source, FILES)
    library.load(request(source, name="demo"))
    yield CodexMaps(library.catalog, unbuilt, remembered)
    remembered.close()
    library.close()


def test_every_file_has_a_line_that_names_what_it_defines(maps):
    found = maps.of("demo", PLENTY)
    assert list(found.lines) == sorted(FILES)
    assert found.left_out == 0
    assert "App" in found.lines["main.py"]
    assert "helper" in found.lines["src/deep/inner/a.py"]


def test_without_room_for_all_source_near_the_root_stays_and_the_rest_is_counted(maps):
    whole = maps.of("demo", PLENTY)
    room = len("main.py") + len(whole.lines["main.py"]) + len(": \n")
    found = maps.of("demo", room)
    assert (list(found.lines), found.left_out) == (["main.py"], 2)


def test_a_codex_that_there_is_not_is_refused(maps):
    with pytest.raises(NotFound):
        maps.of("nobody", PLENTY)


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=30)), st.integers(0, 200))
def test_what_fits_is_the_beginning_and_no_longer_than_is_allowed(lines, most):
    kept = fitting(lines, most)
    assert kept == list(lines)[: len(kept)]
    assert sum(len(f"{path}: {lines[path]}\n") for path in kept) <= most
    if len(kept) < len(lines):
        path = list(lines)[len(kept)]
        assert sum(len(f"{one}: {lines[one]}\n") for one in [*kept, path]) > most
