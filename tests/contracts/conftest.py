"""The backends that the contracts of the engine's port are checked on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import odd_models
from support.backends import Subject, subject
from support.fake_engine import FakeBackend

from orchestrator.engine.builtin import ensure
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.model import EngineSpec


@pytest.fixture(scope="module", params=["fake", "quoter", "noise", "sliding"])
def on(request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    if request.param == "fake":
        yield subject(FakeBackend(end_every=10**6), None, 500)
        return
    length, sliding = 200 if request.param == "noise" else 500, request.param == "sliding"
    path = (
        odd_models.sliding(tmp_path_factory.mktemp("sliding") / "model.gguf")
        if sliding
        else ensure({"quoter": "builtin:quoter", "noise": "builtin:noise-s"}[request.param], models)
    )
    backend = LlamaBackend(EngineSpec(str(path), threads=1, batch=256, gpu_layers=0, flash_attention=sliding))
    yield subject(backend, 0.05, length)  # at most 0.0075 was seen
    backend.close()
