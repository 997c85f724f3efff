"""What a model that embeds text has to do, and an index of its vectors. Ports only: the codex has no model.

Without one, search is lexical and symbolic, and nothing is made up in its place.

Contract of a `VectorIndex`, which `tests/contracts/test_vectors.py` holds every implementation to:

* What a vector belongs to. The text of a chunk, by its digest, and the space that it was made in. Not to a place: a
  branch that is checked out again, a moved file, a second codex of the same tree find their vectors made.
* Who keeps it in step. Whoever fills it (`codex.vectors.filling`). A chunk without a vector is only not found by it.
* Who writes. Any thread may call; writes wait for each other. What a call wrote is found by what begins afterwards.
* Errors. `VectorsDamaged` when what is stored cannot be read: it was then removed and `held` is empty. `VectorError`
  for everything else the world does. An unknown codex or space is empty, not an error.
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
        """Forgets what nobody uses, once it is more than what is used: a branch may be checked out again.

        Also forgets the codex's vectors of all other spaces. Returns the number of vectors forgotten in this one.
        """

    def drop(self, codex: str) -> None:
        """Forgets the codex in every space, and frees its room; no error when it is not known."""

    def codices(self) -> frozenset[str]:
        """Names of those that have vectors: who drops those that are no longer loaded needs them."""

    def close(self) -> None:
        """Lets go of all files; the next call opens them again. Nobody may be asking."""
