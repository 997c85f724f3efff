"""Search by meaning, put together: the model that embeds, its vectors, and who keeps them. Empty-handed without a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codex.archive.archive import Archive
from codex.searching.search import Search
from codex.vectors.lance import LanceVectors
from codex.vectors.port import Embedder
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.embedding import EmbeddingRefused
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import EngineFailed, NotFound
from orchestrator.model.embedding.bridge import Bridge, embedders
from orchestrator.model.embedding.embedding_model import EmbeddingChoice
from orchestrator.model.embedding.filling import Filling
from orchestrator.model.embedding.refusals import Refusals
from orchestrator.service import Embedded
from orchestrator.settings.embedding import EmbeddingSettings

REFUSALS = "unembeddable.sqlite3"


@dataclass(frozen=True)
class Meaning:
    model: EmbeddingChoice
    search: Search
    filling: Filling
    bridge: Bridge
    refusals: Refusals

    @staticmethod
    def of(
        given: EmbeddingSettings, model: EmbeddingChoice, client: EngineClient, archive: Archive, folder: Path
    ) -> "Meaning":
        """`folder`: where the vectors lie."""
        bridge, vectors, refusals = Bridge(client), LanceVectors(folder), Refusals(folder.with_name(REFUSALS))
        question: Embedder | None = None
        texts: Embedder | None = None
        if model.file is not None:
            question, texts = embedders(bridge, model.file, refusals, given.query_prefix, given.text_prefix)
        filling = Filling(archive, vectors, texts, resting=lambda: client.embedding_resting)
        return Meaning(model, Search(archive, question, vectors), filling, bridge, refusals)

    def rest(self, why: str) -> None:
        """With a reason the model leaves the memory, filling pauses and search goes by words; '' ends that."""
        self.bridge.client.rest_embedding(why)
        if not why:
            self.filling.rested()

    def close(self) -> None:
        """The files of it; nobody may be asking any more."""
        self.refusals.close()
        self.filling.vectors.close()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """For who asks for vectors. Raises NotFound where there is no model, EngineFailed where it fails."""
        if self.model.file is None:
            raise NotFound(self.model.fault or "no embedding model is configured", "set embedding.model to a GGUF file")
        try:
            found = await self.bridge.client.embed(texts)
        except EngineUnavailable as error:
            raise EngineFailed(f"the engine cannot embed now: {error}", "ask again", retry_after=2.0) from error
        except EmbeddingRefused as error:
            raise EngineFailed(f"these texts cannot be embedded: {error}", "see embedding.model") from error
        vectors = found.vectors.astype("<f4").tobytes()
        return Embedded(self.model.setting, found.dimensions, vectors, found.tokens, found.cut)

    def report(self) -> dict[str, Any]:
        """`model` is the setting, '' for none; `name` is what its vectors are kept under; `resting` says why it is out of
        the memory. Bytes are those that are planned for it, whether it is `loaded` or not."""
        file = self.model.file
        cost = file.cost if file else None
        return {
            "model": self.model.setting,
            "name": file.name if file else "",
            "dimensions": file.dimensions if file else None,
            "fault": self.model.fault,
            "notice": self.model.notice,
            "resting": self.bridge.client.embedding_resting,
            "loaded": self.bridge.client.embedding_bytes > 0,
            "gpu_layers": cost.layers if cost else None,
            "weights": cost.weights if cost else None,
            "buffers": cost.buffers if cost else None,
        }
