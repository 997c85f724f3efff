"""What a model that embeds text would have to do, and an index of its vectors. Ports only: the codex has no model.

Without one, search is lexical and symbolic, and nothing is made up in its place.
"""

from collections.abc import Sequence
from typing import Protocol

from codex.definitions import Place


class Embedder(Protocol):
    """Texts to vectors. `name` changes whenever vectors would: other names' vectors are never compared."""

    @property
    def name(self) -> str:
        """Model and settings, as one word."""

    @property
    def dimensions(self) -> int:
        """Length of every vector."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector of length 1 for each text, in order. Blocks; may raise CodexError when the model is gone."""


class VectorIndex(Protocol):
    """Vectors of chunks. Kept in step with the archive by whoever embeds; what is missing is only not found by it."""

    def nearest(self, codex: str, vector: Sequence[float], n: int) -> Sequence[tuple[Place, float]]:
        """The `n` chunks nearest to a vector with their cosine, best first; empty when nothing is embedded."""
