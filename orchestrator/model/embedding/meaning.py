"""Search by meaning as the daemon has it: the codex's embedder over the engine, its vectors, and texts that it refuses.

codex's search and filling, in threads ─▶ EngineEmbedder ─▶ Bridge ─▶ the engine's client, in its event loop
"""

import asyncio
import concurrent.futures
import hashlib
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from codex.archive.archive import Archive
from codex.catalog.databases import Renewable
from codex.errors import CodexError
from codex.searching.search import Search
from codex.vectors.embedder import Embedder, EmbeddingFailed, UnembeddableText
from codex.vectors.index import VectorIndex
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.embedding import EmbeddingLost, EmbeddingRefused, Embeddings
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.embedding.port import HARMLESS
from orchestrator.engine.messages import Urgency
from orchestrator.errors import EngineFailed, NotFound
from orchestrator.model.embedding.embedding_model import EmbeddingChoice, EmbeddingFile
from orchestrator.model.embedding.filling import Filling
from orchestrator.service import Embedded
from orchestrator.settings.model import EmbeddingSettings
from orchestrator.wire.status import EmbeddingModel

SCHEMA = (
    "CREATE TABLE refused (model TEXT NOT NULL, text TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (model, text));",
)
QUESTION_SECONDS = 10.0  # a model that is loaded for it included; a search by words does not wait longer
REFUSALS = "unembeddable.sqlite3"
INSERT = "INSERT OR IGNORE INTO refused VALUES (?, ?, ?)"

log = logging.getLogger("lorekeep.embedding")


class Refusals:
    """Texts that a model could make nothing of, or that ended the engine: remembered, so that one of them stops nothing
    twice. By the model's name and the text's digest: another model, or the text after an edit, is tried. Thread-safe.

    The file is made by the first refusal. Where it cannot be used, refusals hold until the daemon ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: Renewable | None = None
        self._known: set[tuple[str, str]] | None = None

    def any(self, model: str, texts: Iterable[str]) -> bool:
        with self._lock:
            known = self._read()
            return bool(known) and any((model, _digest(text)) in known for text in texts)

    def add(self, model: str, text: str, why: str) -> None:
        with self._lock:
            key = (model, _digest(text))
            if key in self._read():
                return
            self._read().add(key)
            log.warning("a text cannot be embedded with %s and is passed over from now on: %s", model, why)
            self._write(*key, why)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _read(self) -> set[tuple[str, str]]:
        if self._known is None:
            self._known = set()
            if self._path.exists():
                try:
                    self._known.update(self._opened().read("SELECT model, text FROM refused"))
                except CodexError as fault:
                    log.warning("%s", fault)
        return self._known

    def _write(self, model: str, text: str, why: str) -> None:
        try:
            self._opened().write(lambda file: file.execute(INSERT, (model, text, why)))
        except CodexError as fault:
            log.warning("%s", fault)

    def _opened(self) -> Renewable:
        self._file = self._file or Renewable(self._path, SCHEMA, "texts that cannot be embedded are tried once more")
        return self._file


class Bridge:
    """The engine's client for threads. Made in the event loop that the client lives in."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self._loop = asyncio.get_running_loop()

    def embed(self, texts: Sequence[str], urgency: Urgency, seconds: float | None) -> Embeddings:
        """Blocks, in a thread that is not the loop's. With `seconds` for it, an engine that starts is not waited for.

        Raises EmbeddingFailed, as TextRefused where one of the texts is the reason.
        """
        if seconds is not None and self.client.state is not ChildState.READY:
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
        return self.file.name if not self.space else f"{self.file.name}-{_digest(self.space)[:8]}"

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
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


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
        bridge, vectors, refusals = Bridge(client), VectorIndex(folder), Refusals(folder.with_name(REFUSALS))
        question: Embedder | None = None
        texts: Embedder | None = None
        if model.file is not None:
            question, texts = embedders(bridge, model.file, refusals, given.query_prefix, given.text_prefix)
        filling = Filling(archive, vectors, texts, resting=lambda: client.embedding.resting)
        return Meaning(model, Search(archive, question, vectors), filling, bridge, refusals)

    def rest(self, why: str) -> None:
        """With a reason the model leaves the memory, filling pauses and search goes by words; '' ends that."""
        self.bridge.client.embedding.rest(why)
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

    def report(self) -> EmbeddingModel:
        file = self.model.file
        cost = file.cost if file else None
        return EmbeddingModel(
            model=self.model.setting,
            name=file.name if file else "",
            dimensions=file.dimensions if file else None,
            fault=self.model.fault,
            notice=self.model.notice,
            resting=self.bridge.client.embedding.resting,
            loaded=self.bridge.client.embedding.holds > 0,
            gpu_layers=cost.layers if cost else None,
            weights=cost.weights if cost else None,
            buffers=cost.buffers if cost else None,
        )
