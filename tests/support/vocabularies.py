"""The vocabulary of a GGUF file in llama.cpp, without its weights; read once a process, because that takes a second."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp as lib

from orchestrator.engine.calling import ToolRules
from orchestrator.engine.llama import native
from orchestrator.engine.llama.grammars import Grammars
from orchestrator.engine.vocab import Vocabulary

Says = Callable[..., bool]


@functools.cache
def vocabulary_model(path: Path) -> Any:
    native.start()
    settings = lib.llama_model_default_params()
    settings.vocab_only = True
    model = lib.llama_model_load_from_file(str(path).encode(), settings)
    assert model, path
    return model


def saying(model: Any) -> Says:
    """Whether an answer that ends here may be this text, in which control tokens are spelled."""
    grammars, vocabulary = Grammars(lib.llama_model_get_vocab(model)), Vocabulary(model)
    end = lib.llama_vocab_eos(lib.llama_model_get_vocab(model))

    def says(text: str, rules: ToolRules, schema: str = "") -> bool:
        constraint = grammars.constraint(schema, rules)
        for token in vocabulary.template(text):
            if not constraint.allows(token):
                return False
            constraint.accept(token)
        return bool(constraint.mask()[end])

    return says
