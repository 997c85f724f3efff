"""The vocabulary of a GGUF file in llama.cpp, without its weights; read once a process, because that takes a second."""

import functools
from pathlib import Path
from typing import Any

import llama_cpp as lib

from orchestrator.engine.llama import native


@functools.cache
def vocabulary_model(path: Path) -> Any:
    native.start()
    settings = lib.llama_model_default_params()
    settings.vocab_only = True
    model = lib.llama_model_load_from_file(str(path).encode(), settings)
    assert model, path
    return model
