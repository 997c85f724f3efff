"""Which model embeds, and what its header says: found and checked before llama.cpp sees it.

It is a model beside the one that answers. One that cannot be used is told, and takes away search by meaning alone.
"""

from dataclasses import dataclass
from pathlib import Path

from governor.errors import GgufError
from governor.gguf import Gguf, read_gguf
from orchestrator.engine.builtin.files import BuiltinError, ensure, is_builtin
from orchestrator.engine.embed_client import embedding_name
from orchestrator.engine.model import EmbeddingSpec
from orchestrator.settings.embedding import EmbeddingSettings

RANK = 4  # llama.cpp's number of the pooling of models that rank


@dataclass(frozen=True)
class EmbeddingFile:
    """`name` changes whenever the vectors of texts would; `dimensions` is their length."""

    spec: EmbeddingSpec
    name: str
    dimensions: int


@dataclass(frozen=True)
class EmbeddingModel:
    """`setting` is how it was named, '' for none; `fault` says why there is no `file` though one was named."""

    setting: str = ""
    file: EmbeddingFile | None = None
    fault: str = ""

    @property
    def spec(self) -> EmbeddingSpec | None:
        return self.file.spec if self.file is not None else None


def find_embedding(given: EmbeddingSettings, models: Path) -> EmbeddingModel:
    """The model of these settings. Builds a built-in one on first need."""
    if not given.model:
        return EmbeddingModel()
    try:
        path = ensure(given.model, models) if is_builtin(given.model) else Path(given.model).expanduser().resolve()
        gguf = read_gguf(path)
        fault = no_embedding(gguf)
        if fault:
            return EmbeddingModel(given.model, fault=f"{path} does not embed: {fault}")
        spec = EmbeddingSpec(str(path), given.window, given.threads)
        return EmbeddingModel(given.model, EmbeddingFile(spec, embedding_name(spec), dimensions(gguf)))
    except (BuiltinError, GgufError) as error:
        return EmbeddingModel(given.model, fault=str(error))
    except OSError as error:
        return EmbeddingModel(given.model, fault=f"{error.filename} cannot be read: {error.strerror}")


def no_embedding(gguf: Gguf) -> str:
    """Why this model gives no vectors of texts; '' where it does."""
    architecture = gguf.text("general.architecture")
    pooling = gguf.number(f"{architecture}.pooling_type") or 0
    if pooling == RANK:
        return "it is a ranking model: it gives a score"
    if not pooling and gguf.metadata.get(f"{architecture}.attention.causal") is not False:
        return f"it is a model of architecture {architecture} that writes text"
    return "" if dimensions(gguf) else "its header does not tell the length of its vectors"


def dimensions(gguf: Gguf) -> int:
    architecture = gguf.text("general.architecture")
    told = gguf.number(f"{architecture}.embedding_length_out") or gguf.number(f"{architecture}.embedding_length")
    return told or 0
