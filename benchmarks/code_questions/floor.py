"""The floor: plain BM25 on windows of 60 lines. Nothing of the product but its word splitting and stop words."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from codex.documents import Document
from codex.words import query_words, words

_LINES, _K1, _B, _PATH_WEIGHT = 60, 1.2, 0.75, 2


class Floor:
    """BM25 over the windows of a corpus."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._paths: list[str] = []
        self._starts: list[int] = []
        self._counts: list[Counter[str]] = []
        for document in documents:
            lines = document.text.splitlines()
            path = words(" ".join(PurePosixPath(document.path).with_suffix("").parts)) * _PATH_WEIGHT
            for at in range(0, len(lines), _LINES):
                self._paths.append(document.path)
                self._starts.append(at + 1)
                self._counts.append(Counter(words("\n".join(lines[at : at + _LINES])) + path))
        self._lengths = [count.total() for count in self._counts]
        self._mean = sum(self._lengths) / len(self._lengths)
        self._frequency = Counter(word for count in self._counts for word in count)

    def files(self, question: str) -> list[str]:
        """Paths, best first; a file's rank is that of its best window."""
        return list(dict.fromkeys(path for path, _ in self.windows(question)))

    def windows(self, question: str) -> list[tuple[str, range]]:
        """Paths with line numbers, best first."""
        query = query_words(question)
        scores = [self._score(at, query) for at in range(len(self._paths))]
        ranked = sorted((at for at, score in enumerate(scores) if score > 0), key=lambda at: -scores[at])
        return [(self._paths[at], range(self._starts[at], self._starts[at] + _LINES)) for at in ranked]

    def _score(self, at: int, query: Sequence[str]) -> float:
        count = self._counts[at]
        norm = _K1 * (1 - _B + _B * self._lengths[at] / self._mean)
        return sum(
            self._rarity(word) * count[word] * (_K1 + 1) / (count[word] + norm) for word in query if word in count
        )

    def _rarity(self, word: str) -> float:
        seen = self._frequency[word]
        return math.log(1 + (len(self._counts) - seen + 0.5) / (seen + 0.5))
