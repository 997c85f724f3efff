"""The port of an embedding model, and its answers checked. The codex has no model.

Without a model, search is lexical and symbolic, with no substitute for meaning.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codex.errors import CodexError

_UNIT = 0.01  # how far from 1 a vector's length may be


class EmbeddingFailed(CodexError):
    """The model that embeds is gone, or does not give what it promised."""


class UnembeddableText(EmbeddingFailed):
    """The model works, and can make nothing of one of these texts; others can be embedded."""


@dataclass(frozen=True, slots=True)
class Space:
    """Where vectors may be compared: one embedder's name, one length."""

    embedder: str
    dimensions: int


class Embedder(Protocol):
    """Texts to vectors. `name` changes whenever vectors would: other names' vectors are never compared."""

    @property
    def name(self) -> str:
        """Model and settings, as one word."""

    @property
    def dimensions(self) -> int:
        """Length of every vector."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector of length 1 for each text, in order. Blocks; raises CodexError when the model is gone.

        Raises UnembeddableText when one of the texts has nothing to embed.
        """


def space_of(embedder: Embedder) -> Space:
    """The space of an embedder's vectors."""
    return Space(embedder.name, embedder.dimensions)


def checked(embedder: Embedder, vectors: list[list[float]], number: int) -> list[list[float]]:
    """The vectors that an embedder gave for so many texts. Raises EmbeddingFailed for another number or form."""
    wrong = _fault(vectors, number, embedder.dimensions)
    if wrong:
        raise EmbeddingFailed(f"the embedding model {embedder.name!r} {wrong}; it cannot be used")
    return vectors


def _fault(vectors: Sequence[Sequence[float]], number: int, dimensions: int) -> str:
    """What is wrong with an embedder's answer, '' when nothing is."""
    if len(vectors) != number:
        return f"gave {len(vectors)} vectors for {number} texts"
    for vector in vectors:
        if len(vector) != dimensions:
            return f"gave a vector of {len(vector)} numbers instead of {dimensions}"
        length = math.hypot(*vector)
        if not abs(length - 1) <= _UNIT:  # also false for what is not a number
            return f"gave a vector of length {length:.3g} instead of 1"
    return ""
