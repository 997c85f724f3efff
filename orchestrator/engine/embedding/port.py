"""Embeddings: the messages about them, the port to a model, and what all models have in common (cutting, batching).

Vectors cross as the bytes of float32 in native order, one text after the other. A model may be read from several threads;
each thread that computes opens a context of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from orchestrator.engine.backend import BackendError

if TYPE_CHECKING:  # the daemon sends these messages, and starts without numpy
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Embed:
    """Texts to vectors. `background` work is done beside everything else, at its own pace.

    `whole`: a text beyond the model's window is read in pieces; else only its beginning is, and what was cut is reported.
    """

    call: int
    texts: tuple[str, ...]
    background: bool = False
    whole: bool = False


@dataclass(frozen=True)
class CallOff:
    """Nobody waits for this call any more."""

    call: int


@dataclass(frozen=True)
class Unload:
    """The embedding model is to leave the memory; the next text loads it again."""


ToEmbedder = Embed | CallOff | Unload


@dataclass(frozen=True)
class EmbeddedTexts:
    """`tokens` that were read of each text, and how many at its end did not fit the window and were `cut`."""

    call: int
    vectors: bytes
    dimensions: int
    tokens: tuple[int, ...]
    cut: tuple[int, ...]


@dataclass(frozen=True)
class EmbedFailed:
    """There is no embedding; asking again will not help unless the model's file changes.

    `text`: the model works, and one of the texts is what it can make nothing of.
    """

    call: int
    reason: str
    text: bool = False


@dataclass(frozen=True)
class Holds:
    """What the embedding model's weights take from now on, in bytes; 0 when it has left the memory."""

    weights: int


FromEmbedder = EmbeddedTexts | EmbedFailed | Holds


# -- a model that embeds, in the child


class TextNotEmbeddable(BackendError):
    """The model works, and can make nothing of one of these texts."""


Vectors: TypeAlias = "npt.NDArray[np.float32]"

BATCH_TOKENS = 512  # attention walks the whole batch, also for texts that do not see each other
BATCH_TEXTS = 64  # at most 256: a sequence for each
MOST_WINDOW = 2048  # unless the settings say more: a batch is computed in one piece, and its scores are window × window
HARMLESS = "a"  # a model that fails also at this is broken, and no text is to blame


class EmbeddingContext(Protocol):
    """Room to compute in, of one thread."""

    def vectors(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Shape (texts, dimensions), of any length. Texts fit the window and one batch. Raises BackendError."""
        ...

    def close(self) -> None: ...


class EmbeddingBackend(Protocol):
    """A loaded model. `window` in tokens; `starting`, `ending`: how many of a text's first and last ids are the model's
    own, which every piece of a text keeps. `bytes` of its weights."""

    dimensions: int
    bytes: int
    window: int
    starting: int
    ending: int

    def encode(self, text: str) -> list[int]:
        """The text's ids with what the model wants around them, uncut."""
        ...

    def open(self) -> EmbeddingContext:
        """Raises BackendError."""
        ...

    def close(self) -> None:
        """Contexts must be closed before."""
        ...


def cut(ids: list[int], window: int, ending: int) -> list[int]:
    """The beginning of a text, with its ending, in the window."""
    return ids if len(ids) <= window else ids[: window - ending] + ids[len(ids) - ending :]


def pieces(ids: list[int], window: int, starting: int, ending: int) -> list[list[int]]:
    """The whole text, in as few pieces as the window allows and about equally long ones, each with the model's own ids.

    ids  [S a b c d e f g E]  window 5  ->  [S a b E] [S c d E] [S e f g E]
    """
    first, last = ids[:starting], ids[len(ids) - ending :]
    own = ids[starting : len(ids) - ending]
    room = max(1, window - starting - ending)
    count = max(1, -(-len(own) // room))
    cuts = [len(own) * at // count for at in range(count + 1)]
    return [[*first, *own[start:end], *last] for start, end in pairwise(cuts)]


def window_of(trained: int, asked: int) -> int:
    """Tokens of the longest text that is read in one piece. `asked`: the setting, 0 where there is none."""
    return min(trained, asked or MOST_WINDOW)


def batch_tokens(trained: int, asked: int) -> int:
    """Tokens that are computed together at most: a whole window, and as many short texts as are worth it."""
    return max(BATCH_TOKENS, window_of(trained, asked))


def batches(lengths: Sequence[int], tokens: int = BATCH_TOKENS, texts: int = BATCH_TEXTS) -> Iterator[range]:
    """Neighbours that are computed together: at most so many texts, and tokens unless one text alone has more."""
    start, held = 0, 0
    for at, length in enumerate(lengths):
        if at > start and (held + length > tokens or at - start == texts):
            yield range(start, at)
            start, held = at, 0
        held += length
    if start < len(lengths):
        yield range(start, len(lengths))


def joined(vectors: Vectors, lengths: Sequence[int], counts: Sequence[int]) -> Vectors:
    """One row for each text: the mean of its pieces' rows, weighted by their tokens. `counts`: pieces of each text.

    A long text is then found by any of its parts, and no part of it is left out.
    """
    import numpy as np

    weighted = vectors * np.asarray(lengths, np.float32)[:, None]
    starts = [0, *accumulate(counts)][:-1]
    rows: Vectors = np.add.reduceat(weighted, starts, axis=0)
    return normalised(rows)


def normalised(vectors: Vectors) -> Vectors:
    """Rows of length 1. Raises TextNotEmbeddable for a row without a direction."""
    import numpy as np

    lengths: npt.NDArray[Any] = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        raise TextNotEmbeddable("the embedding model gave a vector without a direction")
    rows: Vectors = (vectors / lengths).astype(np.float32)
    return rows
