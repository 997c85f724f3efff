"""The engine's embeddings behind the codex's port, which blocks: for worker threads beside the event loop."""

import asyncio
import concurrent.futures
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from codex.vectors.port import EmbeddingFailed, UnembeddableText
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.embedding import EmbeddingLost, EmbeddingRefused, Embeddings
from orchestrator.engine.client.supervision import ChildState
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.embedding.port import HARMLESS
from orchestrator.engine.messages import Urgency
from orchestrator.model.embedding.embedding_model import EmbeddingFile
from orchestrator.model.embedding.refusals import Refusals

QUESTION_SECONDS = 10.0  # a model that is loaded for it included; a search by words does not wait longer


class Bridge:
    """The event loop that the engine's client lives in, known once the program starts."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    def embed(self, texts: Sequence[str], urgency: Urgency, seconds: float | None) -> Embeddings:
        """Blocks, in a thread that is not the loop's. With `seconds` for it, an engine that starts is not waited for.

        Raises EmbeddingFailed, as TextRefused where one of the texts is the reason.
        """
        if self._loop is None or (seconds is not None and self.client.state is not ChildState.READY):
            raise EmbeddingFailed(f"the engine does not run: {self.client.reason or 'it is starting'}")
        asked = asyncio.run_coroutine_threadsafe(self.client.embed(texts, urgency, whole=True), self._loop)
        try:
            return asked.result(seconds)
        except TimeoutError as error:
            asked.cancel()
            raise EmbeddingFailed(f"the embedding model took longer than {seconds:.0f} s") from error
        except EmbeddingRefused as error:
            raise (UnembeddableText if error.text else EmbeddingFailed)(str(error)) from error
        except EmbeddingLost as error:
            if seconds is not None:
                raise EmbeddingFailed(str(error)) from error
            self.embed([HARMLESS], urgency, seconds)  # where this one is lost too, no text is to blame
            raise UnembeddableText(f"the engine ended while it embedded: {error}") from error
        except EngineUnavailable as error:
            raise EmbeddingFailed(str(error)) from error
        except concurrent.futures.CancelledError as error:
            raise EmbeddingFailed(self.client.ending or "the daemon is stopping") from error


@dataclass(frozen=True)
class EngineEmbedder:
    """An `Embedder` of the codex. Two with the same `file` and `space` give vectors that may be compared."""

    bridge: Bridge
    file: EmbeddingFile
    space: str  # what of the texts' side changes their vectors beside the model
    refusals: Refusals
    prefix: str = ""
    urgency: Urgency = Urgency.INTERACTIVE
    seconds: float | None = QUESTION_SECONDS

    @property
    def name(self) -> str:
        return self.file.name if not self.space else f"{self.file.name}-{_digest(self.space)}"

    @property
    def dimensions(self) -> int:
        return self.file.dimensions

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A text that the model could make nothing of, or that ended the engine, is refused ever after."""
        if self.refusals.any(self.name, texts):
            raise UnembeddableText("one of these texts could not be embedded before")
        try:
            found = self.bridge.embed([self.prefix + text for text in texts], self.urgency, self.seconds)
        except UnembeddableText as error:
            if len(texts) == 1:
                self.refusals.add(self.name, texts[0], str(error))
            raise
        vectors: list[list[float]] = found.vectors.tolist()
        return vectors


def embedders(
    bridge: Bridge, file: EmbeddingFile, refusals: Refusals, query_prefix: str, text_prefix: str
) -> tuple[EngineEmbedder, EngineEmbedder]:
    """For questions, which somebody waits for, and for what is searched."""
    question = EngineEmbedder(bridge, file, text_prefix, refusals, query_prefix)
    return question, EngineEmbedder(bridge, file, text_prefix, refusals, text_prefix, Urgency.BACKGROUND, None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
