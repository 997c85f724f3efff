"""Search by meaning: a question's vector, the nearest texts, their places, and whether the nearest text is near.

Every question has a nearest text. Which cosine is near differs between models, and between codices of one model. So it is
measured: the cosines between the same codex, in the same model, and questions that have nothing to do with code. A
question whose nearest text is clearly above these has a match. Tried and not used: how far the nearest text is above the
codex's other texts, which is no different for related and unrelated questions (docs/meaning.md).
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from codex.archive.archive import Archive
from codex.archive.queries import ChunkPlace
from codex.vectors.embedder import Embedder, Space, checked, space_of
from codex.vectors.index import VectorIndex

_SPARE = 1.5  # vectors of texts that an edit has removed stay a while, and take places among the nearest
FAR = 3.0  # deviations: the usual bound of an outlier
_NORMAL = 1.4826  # of a median deviation: the standard deviation of what is normally distributed
# Each about something else, so that a codex about one of these things moves one of them and not their median; in several
# languages, because a model that does not know a language puts all texts in it near each other.
UNRELATED = (
    "How long does bread dough have to rise?",
    "Which trees keep their leaves in winter?",
    "When was the old bridge over the river built?",
    "Why is the sea salty?",
    "Who sang at the opera last night?",
    "How is wool spun into yarn?",
    "What do hedgehogs eat in spring?",
    "How far is the moon from the earth?",
    "Which shoes are good for walking in snow?",
    "How do I get red wine out of a carpet?",
    "When are the strawberries ripe?",
    "What was the weather like in Lisbon yesterday?",
    "Why did the Roman empire fall?",
    "How do you teach a puppy to sit?",
    "Which muscles does swimming train?",
    "How many strings does a harp have?",
    "How do I grow tomatoes on a balcony?",
    "What does a visit to the dentist cost?",
    "Where can I buy fresh flowers on a Sunday?",
    "Who wrote the poem about the raven?",
    "Warum ist der Himmel blau?",
    "Quand part le dernier train pour Lyon ?",
    "¿Cuánto cuesta un billete de avión?",
    "Come si fa il pesto alla genovese?",
)


def nearest_chunks(
    archive: Archive, embedder: Embedder, vectors: VectorIndex, query: str, codex: str, n: int
) -> tuple[tuple[ChunkPlace, float], ...]:
    """At most `n` chunks with the cosine of their text and the question, best first; equal texts are adjacent.

    Empty, and the model is not asked, when nothing of the codex is embedded. Raises EmbeddingFailed, VectorError, and
    what the embedder and the archive raise.
    """
    space = space_of(embedder)
    held = vectors.count(codex, space)
    if not held:
        return ()
    asked = checked(embedder, embedder.embed([query]), 1)
    ask = int(n * _SPARE)
    while True:
        near = vectors.nearest(codex, space, asked[0], ask)
        places = archive.holding(codex, [digest for digest, _ in near])
        found = [(place, cosine) for digest, cosine in near for place in places.get(digest, ())]
        if len(found) >= n or ask >= held:
            return tuple(found[:n])
        ask *= 4


def stands_out(cosine: float, background: Sequence[float]) -> bool:
    """Whether a question's nearest text is nearer than those of unrelated questions are to them: more than FAR robust
    standard deviations above their median (median absolute deviation; Leys et al., 2013). False without a background.

    Only differences of cosines of one model are compared: stretching and moving all of them changes nothing.
    """
    bound = bound_of(background)
    return bound is not None and cosine > bound


def bound_of(background: Sequence[float], far: float = FAR) -> float | None:
    """The cosine above which a text stands out, `far` deviations above the middle; None without a background."""
    if not background:
        return None
    middle = median(background)
    return middle + far * _NORMAL * median(abs(one - middle) for one in background)


class Background:
    """How near codices come to unrelated questions; remembered until their vectors are more or fewer. Thread-safe."""

    def __init__(self) -> None:
        self._asked: dict[str, list[list[float]]] = {}  # vectors of the unrelated questions, by embedder
        self._nearest: dict[str, _Measured] = {}  # by codex
        self._lock = threading.Lock()

    def of(self, codex: str, embedder: Embedder, vectors: VectorIndex) -> tuple[float, ...]:
        """The cosine of each unrelated question and the text of the codex that is nearest to it.

        Asks the model once in its life. Raises EmbeddingFailed, VectorError.
        """
        space = space_of(embedder)
        held = vectors.count(codex, space)
        with self._lock:
            cached = self._nearest.get(codex)
        if cached is None or (cached.space, cached.held) != (space, held):
            near = [vectors.nearest(codex, space, asked, 1) for asked in self._vectors(embedder)]
            cached = _Measured(space, held, tuple(cosine for one in near for _, cosine in one))
            with self._lock:
                self._nearest[codex] = cached
        return cached.cosines

    def _vectors(self, embedder: Embedder) -> list[list[float]]:
        with self._lock:
            cached = self._asked.get(embedder.name)
        if cached is not None:
            return cached
        made = checked(embedder, embedder.embed(UNRELATED), len(UNRELATED))
        with self._lock:
            self._asked = {embedder.name: made}
        return made


@dataclass(frozen=True, slots=True)
class _Measured:
    space: Space
    held: int  # vectors
    cosines: tuple[float, ...]
