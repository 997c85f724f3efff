"""Search by meaning as the daemon has it: vectors made in the background, and the codex's embedder over the engine.

    loaded, changed, mended, started ─▶ wanted ─▶ fill, a turn of it ─▶ complete
                                                   │ others wait: to the end of the line
                                                   │ the model is gone: again after a while

    search and filling, in threads ─▶ EngineEmbedder ─▶ Bridge ─▶ the engine's client, in its event loop

What is stored stays; what ends early goes on there. Texts that the model refuses are remembered and passed over.
"""

import asyncio
import concurrent.futures
import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic

from codex.archive.archive import Archive
from codex.catalog.databases import Renewable
from codex.errors import CodexError
from codex.searching.search import Search
from codex.vectors.embedder import Embedder, EmbeddingFailed, UnembeddableText
from codex.vectors.filling import Filled, fill
from codex.vectors.index import VectorIndex
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.embedding import EmbeddingLost, EmbeddingRefused, Embeddings
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.embedding.port import HARMLESS
from orchestrator.engine.messages import Urgency
from orchestrator.errors import EngineFailed, NotFound
from orchestrator.model.embedding_model import EmbeddingChoice, EmbeddingFile
from orchestrator.service import Embedded
from orchestrator.settings.model import EmbeddingSettings
from orchestrator.wire.replies import EmbeddingProgress
from orchestrator.wire.status import EmbeddingModel

SCHEMA = (
    "CREATE TABLE refused (model TEXT NOT NULL, text TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (model, text));",
)
QUESTION_SECONDS = 10.0  # a model that is loaded for it included; a search by words does not wait longer
REFUSALS = "unembeddable.sqlite3"
INSERT = "INSERT OR IGNORE INTO refused VALUES (?, ?, ?)"
TURN_SECONDS = 60.0  # before a codex lets others have theirs
AGAIN_SECONDS = 30.0  # after a fault

log = logging.getLogger("lorekeep.embedding")


class Meaning:
    """Made in the event loop of `client`. `folder`: where the vectors lie."""

    def __init__(
        self, given: EmbeddingSettings, model: EmbeddingChoice, client: EngineClient, archive: Archive, folder: Path
    ) -> None:
        self.model = model
        self._client = client
        self._refusals = Refusals(folder.with_name(REFUSALS))
        self.embedders: tuple[Embedder, Embedder] | None = None
        """For questions and for what is searched; None without a model."""
        if model.file is not None:
            self.embedders = embedders(
                Bridge(client), model.file, self._refusals, given.query_prefix, given.text_prefix
            )
        question, texts = self.embedders or (None, None)
        vectors = VectorIndex(folder)
        self.search = Search(archive, question, vectors)
        self._paused = ""
        self.filling = Filling(archive, vectors, texts, resting=lambda: client.embedding.resting or self._paused)

    def rest(self, why: str) -> None:
        """With a reason the model leaves the memory, filling pauses and search goes by words; '' ends that."""
        self._client.embedding.rest(why)
        if not why:
            self.filling.rested()

    def pause(self, why: str) -> None:
        """With a reason no vectors are made but for questions; '' ends that."""
        self._paused = why
        if not why:
            self.filling.rested()

    def close(self) -> None:
        """The files of it; nobody may be asking any more."""
        self._refusals.close()
        self.filling.vectors.close()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """For who asks for vectors. Raises NotFound where there is no model, EngineFailed where it fails."""
        if self.model.file is None:
            raise NotFound(self.model.fault or "no embedding model is configured", "set embedding.model to a GGUF file")
        try:
            found = await self._client.embed(texts)
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
            resting=self._client.embedding.resting,
            loaded=self._client.embedding.holds > 0,
            gpu_layers=cost.layers if cost else None,
            weights=cost.weights if cost else None,
            buffers=cost.buffers if cost else None,
        )


# -- vectors in the background


@dataclass
class _Work:
    filled: Filled | None = None
    fault: str = ""


class Filling:
    """Made in the event loop that it works in. `wanted` and `forget` may be called from any thread. `again` in seconds.

    `resting` says in any thread why nothing may be embedded now, '' where it may: what runs ends with its batch, and what
    is wanted is counted.
    """

    def __init__(
        self,
        archive: Archive,
        vectors: VectorIndex,
        embedder: Embedder | None,
        again: float = AGAIN_SECONDS,
        resting: Callable[[], str] = lambda: "",
    ) -> None:
        self.archive = archive
        self.vectors = vectors
        self.embedder = embedder
        self.again = again
        self.resting = resting
        self._line: dict[str, None] = {}  # in order
        self._work: dict[str, _Work] = {}
        self._known: frozenset[str] | None = None
        self._stopping = Event()
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(embedder), name="embedding") if embedder is not None else None

    def keep_only(self, known: Collection[str]) -> None:
        """Deletes the vectors of all other codices, in the background. In the event loop."""
        self._known = frozenset(known)
        self._arrived.set()

    async def stop(self) -> None:
        """Returns when the batch that is being embedded is stored, or its model is gone: end the engine first."""
        self._stopping.set()
        if self._task is not None:
            self._arrived.set()
            await asyncio.gather(self._task, return_exceptions=True)

    def rested(self) -> None:
        """It may go on. In the event loop."""
        self._arrived.set()

    def wanted(self, name: str) -> None:
        """Something of this codex may have no vector."""
        if self._task is not None and not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._join, name)

    def forget(self, name: str) -> None:
        """For a codex that is dropped. Raises VectorError."""
        self._line.pop(name, None)
        self._work.pop(name, None)
        self.vectors.drop(name)

    def report(self, name: str) -> EmbeddingProgress | None:
        """How far it is. None without a model."""
        work = self._work.get(name)
        if self.embedder is None or work is None or work.filled is None:
            return None
        fault = ("" if work.filled.complete else self.resting()) or work.fault
        return EmbeddingProgress.of(work.filled, fault=fault)

    def unseen(self, name: str) -> str:
        """What a search by meaning does not see yet, in words; '' when it sees all, or is not made."""
        found = self.report(name)
        if found is None or found.embedded == found.texts:
            return ""
        why = f" ({found.fault})" if found.fault else ""
        return f"{found.embedded:,} of {found.texts:,} texts of {name} can be found by meaning yet{why}"

    # -- in the event loop

    def _join(self, name: str) -> None:
        self._line[name] = None
        self._arrived.set()

    async def _run(self, embedder: Embedder) -> None:
        while not self._stopping.is_set():
            self._arrived.clear()
            if self._known is not None:
                known, self._known = self._known, None
                await asyncio.to_thread(self._sweep, known)
            failed = [name for name in list(self._line) if not await self._turn(name, embedder)]
            if self._stopping.is_set():
                return
            for name in failed:
                self._line[name] = None
            await self._arrival(self.again if self._line and not self.resting() else None)

    async def _arrival(self, seconds: float | None) -> None:
        """Waits until a codex is wanted, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return

    async def _turn(self, name: str, embedder: Embedder) -> bool:
        """A turn of one codex; False after a fault that may pass."""
        self._line.pop(name, None)
        work = self._work.setdefault(name, _Work())
        try:
            filled = await asyncio.to_thread(self._fill, name, embedder, work)
        except CodexError as fault:
            if name not in self._work:
                return True  # it was dropped meanwhile
            if work.fault != str(fault) and not self._stopping.is_set():
                log.warning("%s", fault)
            work.fault = str(fault)
            return False
        if not filled.complete and not self._stopping.is_set() and name in self._work:
            self._line[name] = None
            if not self.resting():
                self._arrived.set()
        return True

    # -- in a thread

    def _sweep(self, known: frozenset[str]) -> None:
        """A codex that was dropped while it was being embedded may have left some."""
        try:
            for name in self.vectors.codices() - known - self._work.keys() - self._line.keys():
                self.vectors.drop(name)
        except CodexError as fault:
            log.warning("%s", fault)

    def _fill(self, name: str, embedder: Embedder, work: _Work) -> Filled:
        reports = 0  # the first says what there is; a turn has one batch at least, however long that took
        end = monotonic() + TURN_SECONDS

        def on_batch(filled: Filled) -> None:
            nonlocal reports
            reports += 1
            work.filled = filled
            if filled.complete or reports > 1:
                work.fault = ""

        def stopped() -> bool:
            over = reports > 1 and bool(self._line) and monotonic() > end
            return over or bool(self.resting()) or self._stopping.is_set() or name not in self._work

        return fill(self.archive, self.vectors, embedder, name, on_batch=on_batch, stopped=stopped)


# -- the embedder


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
