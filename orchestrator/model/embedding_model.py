"""Which model embeds, and what its header says: found and checked before llama.cpp sees it.

It is a model beside the one that answers. One that cannot be used is reported; only search by meaning is off then.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from governor.embedding import EmbeddingCost, embedding_cost, placed
from governor.gguf import Gguf, GgufError, read_gguf
from governor.model_shape import FootprintError, ModelShape, no_embedding, shape_of, vector_length
from orchestrator.engine.builtin.files import BUILTINS, BuiltinError, ensure, is_builtin
from orchestrator.engine.client.embedding import embedding_name
from orchestrator.engine.embedding.port import BATCH_TEXTS, MOST_WINDOW, batch_tokens
from orchestrator.engine.model import EmbeddingSpec
from orchestrator.model.model_file import built_in
from orchestrator.settings.model import EmbeddingSettings
from orchestrator.wire.places import path_of


@dataclass(frozen=True)
class EmbeddingFile:
    """`name` changes whenever the vectors of texts would; `dimensions` is their length. `shape` None: its header does not
    hold what it costs."""

    spec: EmbeddingSpec
    name: str
    dimensions: int
    shape: ModelShape | None = None

    @property
    def cost(self) -> EmbeddingCost | None:
        """Bytes that it takes beside the model that answers."""
        if self.shape is None:
            return None
        return embedding_cost(self.shape, self.batch, BATCH_TEXTS, self.spec.gpu_layers)

    @property
    def batch(self) -> int:
        """Tokens that are computed in one piece."""
        trained = self.shape.trained if self.shape else MOST_WINDOW
        return batch_tokens(trained, self.spec.window)


@dataclass(frozen=True)
class EmbeddingChoice:
    """`setting` is how it was named, '' for none; `fault` says why there is no `file` though one was named, `notice` what
    of its settings does nothing."""

    setting: str = ""
    file: EmbeddingFile | None = None
    fault: str = ""
    notice: str = ""

    @property
    def spec(self) -> EmbeddingSpec | None:
        return self.file.spec if self.file is not None else None


def find_embedding(given: EmbeddingSettings, models: Path) -> EmbeddingChoice:
    """The model of these settings. Builds a built-in one on first need."""
    if not given.model:
        return EmbeddingChoice()
    if is_builtin(given.model) and given.model not in built_in(embeds=True):
        what = "writes text and does not embed" if given.model in BUILTINS else "does not exist"
        fault = f"{given.model} {what}; built in to embed: {', '.join(built_in(embeds=True))}"
        return EmbeddingChoice(given.model, fault=fault)
    try:
        path = ensure(given.model, models) if is_builtin(given.model) else path_of(given.model).resolve()
        gguf = read_gguf(path)
        fault = no_embedding(gguf)
        if fault:
            return EmbeddingChoice(given.model, fault=f"{path} does not embed: {fault}")
        spec = EmbeddingSpec(str(path), given.window, given.threads)
        file = EmbeddingFile(spec, embedding_name(spec), vector_length(gguf), shape_in(gguf))
        return EmbeddingChoice(given.model, file)
    except (BuiltinError, GgufError) as error:
        return EmbeddingChoice(given.model, fault=str(error))
    except OSError as error:
        return EmbeddingChoice(given.model, fault=f"{error.filename} cannot be read: {error.strerror}")


def on_gpu(choice: EmbeddingChoice, asked: int, room: int | None, main_gpu: int) -> EmbeddingChoice:
    """The choice with its layers where they fit. `room`: bytes that the model which answers leaves on the GPU `main_gpu`,
    None where there is none that the engine can use, or nobody knows."""
    file = choice.file
    if file is None:
        return choice
    if file.shape is None:
        return replace(choice, notice="it runs on the CPU: its header does not tell what it costs" if asked > 0 else "")
    found = placed(file.shape, file.batch, BATCH_TEXTS, asked, room)
    spec = replace(file.spec, gpu_layers=found.layers, main_gpu=main_gpu)
    return replace(choice, file=replace(file, spec=spec), notice=found.why)


def shape_in(gguf: Gguf) -> ModelShape | None:
    try:
        return shape_of(gguf)
    except FootprintError:
        return None
