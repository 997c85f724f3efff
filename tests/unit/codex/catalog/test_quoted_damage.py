"""Damage in a database that SQLite quotes, byte for byte, in its complaint: such bytes are no UTF-8."""

from pathlib import Path

import pytest

from codex.catalog.catalog import Catalog
from codex.catalog.databases import SqliteBytesCache
from codex.errors import DatabaseDamaged


def damage(path: Path) -> None:
    raw = path.read_bytes()
    assert b"CREATE TABLE" in raw
    path.write_bytes(raw.replace(b"CREATE TABLE", b"CREATE \x9eABLE"))


def test_a_catalog_is_refused_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    Catalog(path).close()
    damage(path)
    with pytest.raises(DatabaseDamaged, match="move it away"):
        Catalog(path)


def test_what_may_be_forgotten_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    remembered = SqliteBytesCache(path)
    remembered.put([("a", b"1")])
    remembered.close()
    damage(path)
    assert remembered.get("a") is None
    remembered.put([("a", b"2")])
    assert remembered.get("a") == b"2"
