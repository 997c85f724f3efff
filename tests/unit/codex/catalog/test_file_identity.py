"""A database whose file is deleted under it refuses to be written to: what it took would be lost with the process."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from codex.catalog.databases import insist_on_own_file, open_database, transaction
from codex.errors import Misplaced

SCHEMA = ("CREATE TABLE one (value INTEGER);",)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "one.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    opened = open_database(path, SCHEMA)
    yield opened
    opened.close()


def write(database: sqlite3.Connection, path: Path) -> None:
    with transaction(database, path) as writing:
        writing.execute("INSERT INTO one VALUES (1)")


def test_a_deleted_file_is_written_to_no_more_and_one_that_is_put_back_is(
    database: sqlite3.Connection, path: Path
) -> None:
    write(database, path)
    kept = path.rename(path.with_name("kept"))
    with pytest.raises(Misplaced, match=f"{path} was deleted or moved while it was in use: what is written is lost"):
        write(database, path)
    kept.rename(path)
    write(database, path)
    assert database.execute("SELECT count(*) FROM one").fetchone() == (2,)


def test_another_file_in_its_place_is_not_the_one_that_is_open(database: sqlite3.Connection, path: Path) -> None:
    path.rename(path.with_name("kept"))
    other = open_database(path, SCHEMA)
    with pytest.raises(Misplaced, match="start the daemon anew and load again"):
        write(database, path)
    write(other, path)
    other.close()


def test_a_folder_above_that_was_moved_is_found_too(database: sqlite3.Connection, path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    with pytest.raises(Misplaced):
        insist_on_own_file(database, path)
