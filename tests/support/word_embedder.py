"""A small honest embedder: a text is the sum of its words' hashed directions. Nobody's model, and really comparable."""

import hashlib
import math
from collections.abc import Sequence

from codex.vectors.embedder import EmbeddingFailed
from codex.words import stem, words


class WordEmbedder:
    """An `Embedder`; `asked` are the texts it was given. Gone once it was asked for more than `lasts` texts."""

    def __init__(self, dimensions: int = 64, name: str = "words", lasts: int | None = None) -> None:
        self.name = name
        self.dimensions = dimensions
        self.lasts = lasts
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.lasts is not None and len(self.asked) + len(texts) > self.lasts:
            raise EmbeddingFailed("the model is gone")
        self.asked.extend(texts)
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        vector[0] = 0.01  # a text without words has a direction too
        for word in words(text):
            digest = hashlib.blake2b(f"{self.name} {stem(word)}".encode(), digest_size=8).digest()
            number = int.from_bytes(digest, "big")
            vector[number % self.dimensions] += 1 if number & (1 << 63) else -1
        length = math.hypot(*vector)
        return [number / length for number in vector]
