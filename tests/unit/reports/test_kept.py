"""Checkpoints on disk: counted and deleted, while what stands beside them stays."""

from pathlib import Path

from support.checkpoints import STATE, alone

from orchestrator.engine.checkpoints import file
from orchestrator.engine.checkpoints.coding import PLAIN, Sealed
from orchestrator.reports import kept


def test_checkpoints_of_all_models_are_counted_and_go_and_what_was_chosen_for_a_model_stays(tmp_path: Path) -> None:
    for model in ("one", "two"):
        (tmp_path / model).mkdir()
        (tmp_path / model / f"a{kept.SUFFIX}").write_bytes(b"x" * 10)
    (tmp_path / "one" / "kv-type").write_text("q8_0")
    assert kept.size_of_checkpoints(tmp_path) == (2, 20)
    kept.drop_checkpoints(tmp_path)
    assert kept.size_of_checkpoints(tmp_path) == (0, 0)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["kv-type"]


def test_a_folder_that_is_not_there_holds_none(tmp_path: Path) -> None:
    assert kept.size_of_checkpoints(tmp_path / "none") == (0, 0)
    kept.drop_checkpoints(tmp_path / "none")


def test_a_checkpoint_is_named_here_as_by_the_engine() -> None:
    assert kept.SUFFIX == file.SUFFIX


def test_encrypted_and_plain_ones_are_told_apart_by_how_they_begin(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    for name, coding in (("a", PLAIN), ("b", Sealed(b"k" * 32)), ("c", PLAIN)):
        file.write(tmp_path / "one" / f"{name}.kv", alone(0), STATE, coding)
    (tmp_path / "one" / "d.kv").write_bytes(b"")
    assert kept.sealed_checkpoints(tmp_path) == (1, 2)
