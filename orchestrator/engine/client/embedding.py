"""Embeddings as the daemon asks for them, and what is known of the model without loading it."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.embedding.port import CallOff, Embed, EmbeddedTexts, EmbedFailed, Unload, Vectors
from orchestrator.engine.messages import Urgency
from orchestrator.engine.model import EmbeddingSpec, sample_file, shards

MOST_LOSSES = 2  # of the child in a row while it embedded: more would have the engine counted as broken
LOST_SECONDS = 600.0  # for so long after them it is not tried again


class EmbeddingRefused(Exception):
    """There is no embedding of these texts, and asking again will not help; the message says why.

    `text`: one of the texts is the reason; others can be embedded.
    """

    def __init__(self, reason: str, *, text: bool = False) -> None:
        super().__init__(reason)
        self.text = text


@dataclass(frozen=True)
class Embeddings:
    """`vectors`: shape (texts, dimensions), rows of length 1, of the model `name`: others' are not comparable.

    `tokens` that were read of each text; `cut`: how many of its last ones did not fit the model's window.
    """

    vectors: Vectors
    dimensions: int
    name: str
    tokens: tuple[int, ...]
    cut: tuple[int, ...]


class EmbeddingLost(EngineUnavailable):
    """The child ended while it embedded these texts, which may be why."""


Call = Callable[[Callable[[int], object]], Awaitable[object]]


class EmbeddingCalls:
    """`call` sends what it makes of a number and waits for the answer; `send` only sends.

    `holds`: bytes of its weights in memory now. `resting` says why the model has to be out of it, '' where it need not.
    """

    def __init__(self, spec: EmbeddingSpec | None, call: Call, send: Callable[[Sequence[object]], bool]) -> None:
        self._spec = spec
        self._name = ""
        self._call = call
        self._send = send
        self._losses = 0
        self._lost_at = 0.0
        self.holds = 0
        self.resting = ""

    async def embed(self, texts: Sequence[str], urgency: Urgency, *, whole: bool) -> Embeddings:
        """Raises EngineUnavailable where asking again may help (EmbeddingLost: the child ended over these texts),
        EmbeddingRefused where not. Cancelling stops the work."""
        import numpy as np  # the daemon starts without it

        if self._spec is None:
            raise EmbeddingRefused("no embedding model is configured")
        if self._losses >= MOST_LOSSES and asyncio.get_running_loop().time() < self._lost_at + LOST_SECONDS:
            raise EmbeddingRefused(
                f"the engine ended {self._losses} times while it embedded with {self._spec.model}; "
                f"it is tried again after {LOST_SECONDS / 60:.0f} minutes"
            )
        answer = await self._asked(tuple(texts), urgency is Urgency.BACKGROUND, whole)
        if isinstance(answer, EmbedFailed):
            raise EmbeddingRefused(answer.reason, text=answer.text)
        assert isinstance(answer, EmbeddedTexts)
        self._losses = 0
        vectors = np.frombuffer(answer.vectors, np.float32).reshape(len(texts), answer.dimensions)
        return Embeddings(vectors, answer.dimensions, self._named(self._spec), answer.tokens, answer.cut)

    def rest(self, why: str) -> None:
        """With a reason the model leaves the memory, and whoever asks is told it; without one the next text loads it."""
        self.resting = why
        if why:
            self._send([Unload()])

    async def _asked(self, texts: tuple[str, ...], background: bool, whole: bool) -> object:
        number = 0

        def make(call: int) -> Embed:
            nonlocal number
            if self.resting:  # asked here, where it is sent: behind the order to leave nothing may bring it back
                raise EngineUnavailable(self.resting)
            number = call
            return Embed(call, texts, background, whole)

        try:
            return await self._call(make)
        except asyncio.CancelledError:
            self._send([CallOff(number)])
            raise
        except EngineUnavailable as error:
            if not number:
                raise
            self._losses += 1  # it was sent, and the child that had it is gone
            self._lost_at = asyncio.get_running_loop().time()
            raise EmbeddingLost(str(error), broken=error.broken) from error

    def _named(self, spec: EmbeddingSpec) -> str:
        self._name = self._name or embedding_name(spec)
        return self._name


def embedding_name(spec: EmbeddingSpec) -> str:
    """One word that changes when vectors would: the file's name and a digest of its content and of the window.

    Reads at most 8 MiB of each shard. A new llama.cpp may round otherwise, which is no reason to embed an archive anew.
    """
    digest = hashlib.sha256(f"{spec.window}, in pieces\n".encode())
    path = Path(spec.model)
    for shard in shards(path):
        sample_file(shard, digest)
    return f"{path.stem}-{digest.hexdigest()[:12]}".replace(" ", "-")
