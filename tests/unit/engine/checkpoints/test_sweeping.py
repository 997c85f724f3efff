import os

from orchestrator.engine.checkpoints.checkpoint_folder import usable
from orchestrator.engine.checkpoints.sweeping import sweep


def folder(root, name, size, used):
    (root / name).mkdir()
    (root / name / "a.kv").write_bytes(b"x" * size)
    os.utime(root / name, (used, used))


def test_the_longest_unused_models_checkpoints_go_first_and_the_loaded_ones_never(tmp_path):
    for name, used in (("loaded", 1), ("old", 2), ("recent", 3)):
        folder(tmp_path, name, 1000, used)
    assert sweep(tmp_path, "loaded", 2000) == 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loaded", "recent"]
    assert sweep(tmp_path, "loaded", 10) == 1000
    assert [path.name for path in tmp_path.iterdir()] == ["loaded"]


def test_a_root_that_cannot_be_looked_into_keeps_no_engine_from_starting(tmp_path, caplog):
    root = tmp_path / ("x" * 300)  # longer than a name may be: it cannot be read, by no user
    assert sweep(root, "loaded", 0) == 0
    assert "cannot be looked for" in caplog.text
    assert not usable(root / "loaded")
    (tmp_path / "taken").write_bytes(b"")
    assert sweep(tmp_path / "taken", "loaded", 0) == 0


def test_what_is_within_the_budget_stays(tmp_path):
    folder(tmp_path, "old", 1000, 1)
    assert sweep(tmp_path, "loaded", 1000) == 0
    assert sweep(tmp_path / "missing", "loaded", 0) == 0
