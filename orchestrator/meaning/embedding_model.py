"""Which model embeds, and what its header says: found and checked before llama.cpp sees it.

It is a model beside the one that answers. One that cannot be used is told, and takes away search by meaning alone.
"""

from dataclasses import dataclass
from pathlib import Path

from governor.errors import GgufError
from governor.gguf import read_gguf
from governor.told import no_embedding, vector_length
from orchestrator.engine.builtin.files import BuiltinError, ensure, is_builtin
from orchestrator.engine.embed_client import embedding_name
from orchestrator.engine.model import EmbeddingSpec
from orchestrator.settings.embedding import EmbeddingSettings


@dataclass(frozen=True)
class EmbeddingFile:
    """`name` changes whenever the vectors of texts would; `dimensions` is their length."""

    spec: EmbeddingSpec
    name: str
    dimensions: int


@dataclass(frozen=True)
class EmbeddingChoice:
    """`setting` is how it was named, '' for none; `fault` says why there is no `file` though one was named."""

    setting: str = ""
    file: EmbeddingFile | None = None
    fault: str = ""

    @property
    def spec(self) -> EmbeddingSpec | None:
        return self.file.spec if self.file is not None else None


def find_embedding(given: EmbeddingSettings, models: Path) -> EmbeddingChoice:
    """The model of these settings. Builds a built-in one on first need."""
    if not given.model:
        return EmbeddingChoice()
    try:
        path = ensure(given.model, models) if is_builtin(given.model) else Path(given.model).expanduser().resolve()
        gguf = read_gguf(path)
        fault = no_embedding(gguf)
        if fault:
            return EmbeddingChoice(given.model, fault=f"{path} does not embed: {fault}")
        spec = EmbeddingSpec(str(path), given.window, given.threads)
        return EmbeddingChoice(given.model, EmbeddingFile(spec, embedding_name(spec), vector_length(gguf)))
    except (BuiltinError, GgufError) as error:
        return EmbeddingChoice(given.model, fault=str(error))
    except OSError as error:
        return EmbeddingChoice(given.model, fault=f"{error.filename} cannot be read: {error.strerror}")
