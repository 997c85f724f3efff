"""Places where nothing can be kept: nothing is remembered, it is said once, and nobody is stopped."""

import logging
import os
import sqlite3
from pathlib import Path

import pytest

from codex.catalog.databases import SqliteBytesCache


def nothing_is_kept(remembered: SqliteBytesCache, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            remembered.put([("a", b"1")])
            assert remembered.get("a") is None
    assert [record.getMessage().startswith("continues without a cache: ") for record in caplog.records] == [True]


def test_a_folder_in_the_files_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "outlines.sqlite3"
    path.mkdir()
    nothing_is_kept(SqliteBytesCache(path), caplog)


def test_a_file_in_the_folders_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("no folder")
    nothing_is_kept(SqliteBytesCache(tmp_path / "cache" / "outlines.sqlite3"), caplog)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_damaged_file_in_a_folder_that_may_not_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    path = folder / "outlines.sqlite3"
    path.write_bytes(b"no database" * 1000)
    folder.chmod(0o500)
    try:
        nothing_is_kept(SqliteBytesCache(path), caplog)
    finally:
        folder.chmod(0o700)


def test_a_place_that_becomes_usable_is_used(tmp_path: Path) -> None:
    path = tmp_path / "outlines.sqlite3"
    path.mkdir()
    remembered = SqliteBytesCache(path)
    assert remembered.get("a") is None
    path.rmdir()
    remembered.put([("a", b"1")])
    assert remembered.get("a") == b"1"
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM remembered").fetchone() == (1,)
