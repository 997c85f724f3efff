"""The ports of an embedding model and of an index of its vectors. The codex has no model.

Without a model, search is lexical and symbolic, with no substitute for meaning.

Contract of a `VectorIndex`, which `tests/contracts/test_vectors.py` holds every implementation to:

* Keys. A vector belongs to the text of a chunk, by its digest, and to the space that it was made in. It does not belong
  to a place: a branch that is checked out again, a moved file and a second codex of the same tree reuse vectors.
* Updates. `codex.vectors.filling` fills it. A chunk without a vector is not found by meaning.
* Threads. Any thread may call; writes wait for each other. A call that begins after a write sees it.
* Errors. `VectorsDamaged`: the stored data cannot be read; it has been removed, and `held` is empty. `VectorError`:
  every other fault of the machine. An unknown codex or space is empty, not an error.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from codex.errors import CodexError


class EmbeddingFailed(CodexError):
    """The model that embeds is gone, or does not give what it promised."""


class UnembeddableText(EmbeddingFailed):
    """The model works, and can make nothing of one of these texts; others can be embedded."""


class VectorError(CodexError):
    """Vectors cannot be stored because of the world."""


class VectorsDamaged(VectorError):
    """The vectors of a codex cannot be read; they were removed and will be embedded again."""

    def __init__(self, codex: str, why: str) -> None:
        super().__init__(f"the vectors of {codex!r} are damaged ({why}); they were removed and will be embedded again")
        self.codex = codex


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

        Raises TextRefused when one of the texts has nothing to embed.
        """


def space_of(embedder: Embedder) -> Space:
    """The space of an embedder's vectors."""
    return Space(embedder.name, embedder.dimensions)


class VectorIndex(Protocol):
    """Vectors by digest of the embedded text, for each codex and space. See the module's contract."""

    def held(self, codex: str, space: Space) -> frozenset[str]:
        """Digests of the texts that have a vector."""

    def count(self, codex: str, space: Space) -> int:
        """How many vectors there are, without reading them."""

    def add(self, codex: str, space: Space, vectors: Mapping[str, Sequence[float]]) -> None:
        """Stores vectors by digest, as one step; what was held under a digest stays as it is."""

    def adopt(self, codex: str, space: Space, digests: Collection[str]) -> frozenset[str]:
        """Takes over the vectors that other codices hold of these texts; returns whose it found."""

    def nearest(self, codex: str, space: Space, vector: Sequence[float], n: int) -> tuple[tuple[str, float], ...]:
        """Digests of the `n` texts nearest to a vector with their cosine, best first."""

    def sweep(self, codex: str, space: Space, used: Collection[str]) -> int:
        """Deletes unused vectors once they outnumber those in use: a branch may be checked out again.

        Also forgets the codex's vectors of all other spaces. Returns the number of vectors forgotten in this one.
        """

    def drop(self, codex: str) -> None:
        """Forgets the codex in every space, and frees its room; no error when it is not known."""

    def codices(self) -> frozenset[str]:
        """Names of those that have vectors: who drops those that are no longer loaded needs them."""

    def close(self) -> None:
        """Lets go of all files; the next call opens them again. Nobody may be asking."""
