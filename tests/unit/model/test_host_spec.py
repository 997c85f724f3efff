"""What the engine is asked for, and what the doctor looks for, are the same."""

from pathlib import Path

import pytest
from support import odd_models

from orchestrator.engine.llama.model_files import fingerprint
from orchestrator.model.conditions import conditions_here
from orchestrator.model.embedding_model import EmbeddingChoice
from orchestrator.model.host import spec_of
from orchestrator.model.model_file import find_model
from orchestrator.reports.doctor import configured_model, floors_on_disk
from orchestrator.settings.model import ModelSettings, Settings
from orchestrator.settings.paths import Paths


@pytest.mark.parametrize("context", ["auto", 2048, 1024])
def test_the_doctor_counts_the_floors_that_an_engine_with_these_settings_would_find(tmp_path: Path, context: object):
    path = odd_models.long_rope(tmp_path / "model.gguf")
    settings = Settings(model=ModelSettings(path=str(path), context=context))
    paths = Paths.of({"HOME": str(tmp_path)})
    model = find_model(str(path), paths.models)
    offload = conditions_here(settings, paths).for_model(model.path, model.shape).offload
    spec = spec_of(settings, paths, model, offload, EmbeddingChoice(), 0)
    assert spec.context == (0 if context == "auto" else context)
    floor = paths.checkpoints / fingerprint(spec)[:32]
    floor.mkdir(parents=True)
    (floor / "segment").write_bytes(b"x" * 10)
    found = configured_model(settings, paths)
    assert found is not None
    assert floors_on_disk(path, found.offload, paths.checkpoints) == {"own": 10, "other": 0}
