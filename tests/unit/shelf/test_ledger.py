"""What floors were made of, and what questions touched."""

from orchestrator.shelf.ledger import Ledger


def test_questions_are_counted_by_file_and_codex(tmp_path):
    ledger = Ledger(tmp_path / "l.sqlite3")
    ledger.touch("a", ["x.py", "x.py", "y.py"])
    ledger.touch("a", ["x.py"])
    ledger.touch("b", ["x.py"])
    assert ledger.touched("a") == {"x.py": 2, "y.py": 1}


def test_hot_files_are_those_of_one_generation_also_after_a_restart(tmp_path):
    Ledger(tmp_path / "l.sqlite3").freeze("a", 2, ["x.py"])
    ledger = Ledger(tmp_path / "l.sqlite3")
    assert (ledger.frozen("a", 2), ledger.frozen("a", 3), ledger.frozen("b", 2)) == (("x.py",), None, None)


def test_a_dropped_codex_is_forgotten(tmp_path):
    ledger = Ledger(tmp_path / "l.sqlite3")
    ledger.touch("a", ["x.py"])
    ledger.freeze("a", 1, ["x.py"])
    ledger.forget("a")
    assert (dict(ledger.touched("a")), ledger.frozen("a", 1)) == ({}, None)


def test_a_damaged_file_is_begun_again(tmp_path):
    (tmp_path / "l.sqlite3").write_bytes(b"no database at all" * 100)
    assert dict(Ledger(tmp_path / "l.sqlite3").touched("a")) == {}
