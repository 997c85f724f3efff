"""Which folders beside its own a store may delete from."""

from orchestrator.engine.checkpoints.file import other_models


def test_a_folder_without_a_checkpoint_is_no_models_and_stays(tmp_path):
    for name, file in (("own", "a.kv"), ("other", "b.kv"), ("foreign", "weights.gguf")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"x")
    assert [model.folder.name for model in other_models(tmp_path, "own")] == ["other"]
