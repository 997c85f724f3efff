import os

from orchestrator.engine.tiers.sweeping import sweep


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


def test_what_is_within_the_budget_stays(tmp_path):
    folder(tmp_path, "old", 1000, 1)
    assert sweep(tmp_path, "loaded", 1000) == 0
    assert sweep(tmp_path / "missing", "loaded", 0) == 0
