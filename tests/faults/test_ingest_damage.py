"""A catalog that was damaged tells nothing wrong."""

import sqlite3
from pathlib import Path

import pytest
from support.ingesting import many, request

from codex.catalog.catalog import pack
from codex.errors import CatalogError
from codex.library import Library


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7, 0.9])
def test_a_damaged_page_of_the_catalog_is_never_a_wrong_answer(tmp_path: Path, place: float) -> None:
    library = Library(tmp_path / "data")
    library.load(request(many(tmp_path / "root", 50)))
    library.close()
    path = tmp_path / "data" / "catalog.sqlite"
    raw = bytearray(path.read_bytes())
    at = int(len(raw) * place)
    raw[at : at + 3000] = b"\xa5" * 3000
    path.write_bytes(raw)
    try:
        library = Library(tmp_path / "data")
        told = {one.path: one.text for one in library.catalog.documents(library.catalog.generation("it").entries)}
    except CatalogError:
        return
    assert told == {f"{number:04}.py": f"x = {number}\n" * 50 for number in range(50)}


def test_bytes_that_were_changed_in_the_catalog_are_not_told(tmp_path: Path) -> None:
    library = Library(tmp_path / "data")
    generation = library.load(request(many(tmp_path / "root", 3))).generation
    with sqlite3.connect(tmp_path / "data" / "catalog.sqlite") as database:
        database.execute("UPDATE content SET body = ? WHERE digest = ?", (b"junk", generation.entries[1].digest))
        database.execute("UPDATE content SET body = ? WHERE digest = ?", (pack(b"other"), generation.entries[2].digest))
    assert next(library.catalog.documents([generation.entries[0]])).text.startswith("x = 0")
    for entry in generation.entries[1:]:
        with pytest.raises(CatalogError, match="no longer holds"):
            next(library.catalog.documents([entry]))
    library.close()
