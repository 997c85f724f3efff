"""The backends that the contracts of the engine's port are checked on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends import Subject, subject

from orchestrator.engine.builtin import ensure
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.llama.memory import LlamaBackend
from orchestrator.engine.model import EngineSpec


@pytest.fixture(scope="module", params=["fake", "quoter", "noise"])
def on(request: pytest.FixtureRequest, models: Path) -> Iterator[Subject]:
    if request.param == "fake":
        yield subject(FakeBackend(end_every=10**6), None, 500)
        return
    name, length = {"quoter": ("builtin:quoter", 500), "noise": ("builtin:noise-s", 200)}[request.param]
    backend = LlamaBackend(EngineSpec(str(ensure(name, models)), threads=1, batch=256, gpu_layers=0))
    yield subject(backend, 0.05, length)  # at most 0.0075 was seen
    backend.close()
