"""What the doctor finds in files and databases."""

import sqlite3

from orchestrator.reports.findings import fault_of, findings, plugin_failures


def test_a_sound_database_has_no_fault_and_a_damaged_one_is_told(tmp_path):
    store = tmp_path / "sessions.sqlite3"
    with sqlite3.connect(store) as database:
        database.execute("CREATE TABLE t (a)")
        database.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 200)
    database.close()
    assert fault_of(store) == ""
    raw = bytearray(store.read_bytes())
    raw[4096:8192] = b"\xff" * 4096
    store.write_bytes(raw)
    assert fault_of(store) != ""
    store.write_bytes(b"this is no database at all, though it has the name of one" * 20)
    assert "not a database" in fault_of(store)


def test_looking_changes_nothing_and_needs_no_right_to_write(tmp_path):
    store = tmp_path / "none.sqlite3"
    assert fault_of(store) != ""
    assert not store.exists()


def test_a_file_that_is_no_model_says_where_it_is_damaged(tmp_path):
    (tmp_path / "odd.gguf").write_bytes(b"GG")
    assert "odd.gguf" in findings(str(tmp_path / "odd.gguf"))["fault"]


def test_without_plugins_nothing_is_broken():
    assert plugin_failures() == []
