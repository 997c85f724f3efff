"""Chunks by what they mean: a question's vector, the nearest texts, the places where these stand now."""

from codex.archive.archive import Archive
from codex.archive.definitions import ChunkPlace
from codex.vectors.filling import fault
from codex.vectors.port import Embedder, EmbeddingFailed, VectorIndex, space_of

_SPARE = 1.5  # vectors of texts that an edit has removed stay a while, and take places among the nearest


def nearest_chunks(
    archive: Archive, embedder: Embedder, vectors: VectorIndex, query: str, codex: str, n: int
) -> tuple[tuple[ChunkPlace, float], ...]:
    """At most `n` chunks with the cosine of their text and the question, best first; equal texts stand together.

    Empty, and the model is not asked, when nothing of the codex is embedded. Raises EmbeddingFailed, VectorError, and
    what the embedder and the archive raise.
    """
    space = space_of(embedder)
    held = vectors.count(codex, space)
    if not held:
        return ()
    asked = embedder.embed([query])
    wrong = fault(asked, 1, space.dimensions)
    if wrong:
        raise EmbeddingFailed(f"the embedding model {embedder.name!r} {wrong}; it cannot be used")
    ask = int(n * _SPARE)
    while True:
        near = vectors.nearest(codex, space, asked[0], ask)
        places = archive.holding(codex, [digest for digest, _ in near])
        found = [(place, cosine) for digest, cosine in near for place in places.get(digest, ())]
        if len(found) >= n or ask >= held:
            return tuple(found[:n])
        ask *= 4
