"""Embeds the texts of a codex that have no vector: a background job that can end at any time and continues where it ended.

Every batch is stored when it is made. Vectors of another codex are reused, so the model gets only new texts. Knows an
archive, an embedder and an index of vectors. The caller decides when it runs.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from codex.archive.archive import Archive
from codex.archive.queries import ChunkPlace
from codex.errors import CodexError
from codex.trees.roles import share_of
from codex.vectors.embedder import Embedder, EmbeddingFailed, UnembeddableText, checked, space_of
from codex.vectors.index import VectorIndex

_BATCH = 16  # texts: about three seconds of a small model on one core, so long a stop may wait


@dataclass(frozen=True, slots=True)
class Filled:
    """How far the vectors of a codex are: distinct texts of its chunks, and how many of them are done.

    A text that the model refuses counts as embedded, without a vector: it cannot be found by its meaning. `refused`: how
    many of `embedded` these are, in this run.
    """

    codex: str
    texts: int
    embedded: int
    refused: int = 0

    @property
    def complete(self) -> bool:
        """Whether search by meaning sees everything."""
        return self.embedded == self.texts


OnBatch = Callable[[Filled], None]


def fill(
    archive: Archive,
    vectors: VectorIndex,
    embedder: Embedder,
    codex: str,
    *,
    on_batch: OnBatch = lambda filled: None,  # noqa: ARG005
    stopped: Callable[[], bool] = lambda: False,
    batch: int = _BATCH,
) -> Filled:
    """Embeds every text of the codex's chunks that has no vector, sources first, and calls `on_batch` after each batch.

    Returns early, not `complete`, when `stopped()`, which is read before each batch. After the last batch unused vectors
    are deleted. A text that the model refuses is skipped, and tried again by the next fill. Raises EmbeddingFailed when
    the model is gone or returns vectors of another form, VectorError when they cannot be stored, and what the archive
    raises; vectors of earlier batches stay.
    """
    space = space_of(embedder)
    texts = {digest: places[0] for digest, places in archive.digests(codex).items()}
    missing = texts.keys() - vectors.held(codex, space)
    missing -= vectors.adopt(codex, space, missing) if missing else frozenset()
    filled = Filled(codex, len(texts), len(texts) - len(missing))
    on_batch(filled)
    order = _in_order(missing, texts, archive.generated(codex) if missing else frozenset())
    for at in range(0, len(order), batch):
        if stopped():
            return filled
        digests = order[at : at + batch]
        current = _current(archive, codex, {texts[digest]: digest for digest in digests})
        made = _embedded(embedder, current, filled)
        if made:
            vectors.add(codex, space, made)
        refused = filled.refused + len(current) - len(made)
        filled = Filled(codex, filled.texts, filled.embedded + len(current), refused)
        on_batch(filled)
    vectors.sweep(codex, space, texts.keys())
    return filled


def _in_order(missing: set[str], texts: dict[str, ChunkPlace], generated: Collection[str]) -> list[str]:
    """What search puts first is embedded first."""

    def order(digest: str) -> tuple[float, ChunkPlace]:
        place = texts[digest]
        return -share_of(place.path, generated=place.path in generated), place

    return sorted(missing, key=order)


def _current(archive: Archive, codex: str, wanted: dict[ChunkPlace, str]) -> dict[str, str]:
    """Texts by digest; without those that an edit has changed meanwhile: the fill that follows it embeds them."""
    read = {wanted[place]: text for place, (_, text) in archive.at(codex, list(wanted)).items()}
    return {digest: text for digest, text in read.items() if _digest(text) == digest}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


def _embedded(embedder: Embedder, texts: dict[str, str], filled: Filled) -> dict[str, Sequence[float]]:
    """By digest; without those of texts that the model refuses, which are looked for one by one."""
    try:
        vectors = embedder.embed(list(texts.values())) if texts else []
    except UnembeddableText:
        alone = [{digest: text} for digest, text in texts.items()] if len(texts) > 1 else []
        return {digest: made for one in alone for digest, made in _embedded(embedder, one, filled).items()}
    except CodexError as error:
        raise EmbeddingFailed(
            f"embedding {filled.codex!r} stopped after {filled.embedded} of {filled.texts} texts: {error}; "
            f"its vectors are kept, and embedding continues there"
        ) from error
    return dict(zip(texts, checked(embedder, vectors, len(texts)), strict=True))
