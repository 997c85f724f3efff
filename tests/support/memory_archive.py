"""The Archive in memory: plain BM25 over the same words, for tests and for what is too small for a database.

Keeps nothing when the process ends. Its stemmer is cruder than LanceDB's, so scores differ and the order mostly not.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codex.archive.prepare import PreparedChunk, PreparedDocument, batches, prepare
from codex.archive.queries import ChunkMatch, ChunkPlace, Definitions, FileMatch
from codex.documents import Document
from codex.words import in_a_row, stem

_K1, _B = 1.2, 0.75  # the usual ones, and LanceDB's


@dataclass(frozen=True)
class Bm25:
    """BM25 over texts given as lists of stems. Source: Robertson and Zaragoza, 2009."""

    counts: Sequence[Mapping[str, int]]
    frequency: Mapping[str, int]
    mean_length: float

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Bm25":
        """Over texts whose words are parted by spaces."""
        counts = [Counter(map(stem, text.split())) for text in texts]
        frequency = Counter(word for count in counts for word in count)
        return cls(counts, frequency, sum(count.total() for count in counts) / max(1, len(counts)))

    def score(self, index: int, query: Sequence[str]) -> float:
        """How well one text answers; 0 when it holds none of the words."""
        count = self.counts[index]
        length = sum(count.values())
        total = 0.0
        for word in dict.fromkeys(map(stem, query)):
            times = count.get(word, 0)
            if times:
                seen = self.frequency[word]
                rarity = math.log(1 + (len(self.counts) - seen + 0.5) / (seen + 0.5))
                total += rarity * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * length / self.mean_length))
        return total


@dataclass(frozen=True)
class _Files:
    """One codex, never changed: a write makes a new one, so a search reads what was there when it began."""

    files: Mapping[str, PreparedDocument] = field(default_factory=dict)

    def chunks(self) -> list[PreparedChunk]:
        return [one for path in sorted(self.files) for one in self.files[path].chunks]


class MemoryArchive:
    """An `Archive` that lives as long as the process."""

    remote = None

    def __init__(self) -> None:
        self._stored: dict[str, _Files] = {}
        self._revisions: Counter[str] = Counter()
        self._writing = threading.Lock()

    def held(self, codex: str) -> Mapping[str, str]:
        return {path: one.digest for path, one in self._files(codex).files.items()}

    def replace(self, codex: str, documents: Sequence[Document], removed: Sequence[str] = ()) -> int:
        prepared = prepare(list({document.path: document for document in documents}.values()))
        with self._writing:
            gone = {*removed, *(one.path for one in prepared)}
            kept = {path: one for path, one in self._files(codex).files.items() if path not in gone}
            self._stored[codex] = _Files({**kept, **{one.path: one for one in prepared}})
            self._revisions[codex] += 1
        return sum(len(one.chunks) for one in prepared)

    def index(
        self,
        codex: str,
        documents: Iterable[Document],
        removed: Sequence[str] = (),
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        self.replace(codex, (), removed)
        for batch in batches(documents):
            self.replace(codex, batch)
            progress(len(batch))

    def warm(self, codex: str) -> None:
        """Everything is in memory."""

    def drop(self, codex: str) -> None:
        with self._writing:
            self._revisions[codex] += 1
            self._stored.pop(codex, None)

    def matches(
        self, codex: str, query: Sequence[str], n: int, paths: Sequence[str] | None = None
    ) -> tuple[ChunkMatch, ...]:
        chunks = self._files(codex).chunks()
        ranked = Bm25.of([one.words for one in chunks])
        scores = [ranked.score(index, query) for index in range(len(chunks))]
        among = None if paths is None else set(paths)
        found = [
            _match(one, score)
            for one, score in zip(chunks, scores, strict=True)
            if score > 0 and (among is None or one.chunk.path in among)
        ]
        return tuple(sorted(found, key=lambda match: (-match.score, match.place))[: max(0, n)])

    def exact(self, codex: str, text: str, n: int) -> tuple[ChunkMatch, ...]:
        chunks = self._files(codex).chunks() if text else []
        return tuple(_match(one) for one in chunks if text in one.chunk.text)[: max(0, n)]

    def phrase(self, codex: str, words: Sequence[str], n: int) -> tuple[ChunkMatch, ...]:
        chunks = self._files(codex).chunks() if words else []
        return tuple(_match(one) for one in chunks if in_a_row(words, one.chunk.text))[: max(0, n)]

    def both(
        self, codex: str, query: Sequence[str], chunks: int, files: int
    ) -> tuple[Sequence[ChunkMatch], Sequence[FileMatch]]:
        every = list(self._files(codex).files.values())
        ranked = Bm25.of([one.words for one in every])
        found = [FileMatch(one.path, ranked.score(index, query)) for index, one in enumerate(every)]
        best = sorted((one for one in found if one.score > 0), key=lambda one: (-one.score, one.path))
        return self.matches(codex, query, chunks), tuple(best[:files])

    def definitions(self, codex: str, names: Iterable[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        defined = Definitions()
        defined.replace((), ((_place(one), one.chunk.names) for one in self._files(codex).chunks()))
        return defined.defining(names)

    def at(self, codex: str, places: Sequence[ChunkPlace]) -> Mapping[ChunkPlace, tuple[ChunkMatch, str]]:
        asked = set(places)
        stored = self._files(codex)
        return {
            _place(one): (_match(one)._replace(digest=stored.files[one.chunk.path].digest), one.chunk.text)
            for one in stored.chunks()
            if _place(one) in asked
        }

    def chunks(self, codex: str) -> Iterator[ChunkMatch]:
        yield from map(_match, self._files(codex).chunks())

    def digests(self, codex: str) -> Mapping[str, tuple[ChunkPlace, ...]]:
        found: dict[str, list[ChunkPlace]] = {}
        for one in self._files(codex).chunks():
            found.setdefault(one.chunk.digest, []).append(_place(one))
        return {digest: tuple(sorted(places)) for digest, places in found.items()}

    def generated(self, codex: str) -> frozenset[str]:
        return frozenset(match.place.path for match in self.chunks(codex) if match.generated)

    def holding(self, codex: str, digests: Sequence[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        wanted = set(digests)
        return {digest: places for digest, places in self.digests(codex).items() if digest in wanted}

    def count(self, codex: str) -> int:
        return len(self._files(codex).chunks())

    def revision(self, codex: str) -> int:
        return self._revisions[codex]

    def optimize(self, codex: str) -> None:
        """There is nothing to fold."""

    def _files(self, codex: str) -> _Files:
        return self._stored.get(codex, _Files())


def _place(one: PreparedChunk) -> ChunkPlace:
    return ChunkPlace(one.chunk.path, one.chunk.start, one.chunk.end)


def _match(one: PreparedChunk, score: float = 0.0) -> ChunkMatch:
    chunk = one.chunk
    return ChunkMatch(_place(one), chunk.symbol, chunk.kind, chunk.signature, chunk.names, one.references, score)
