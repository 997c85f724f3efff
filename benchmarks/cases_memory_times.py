"""How long memories take: writing one, the whole block of a question among many, and comparing it with their vectors.

Memories are made up, of words spread as in a language. Beside the clock stands the processor's time, which others on the
machine lengthen little.
"""

import gc
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import anyio
import numpy as np
from cases_engine import Bench
from numpy.typing import NDArray
from psutil import Process
from report import Row, at_most

from codex.vectors.embedder import space_of
from codex.vectors.index import VectorIndex
from codex.words import STOP_WORDS
from orchestrator.karma.meaning import MemoryMeaning
from orchestrator.karma.recall import Recall, RecallQuestion
from orchestrator.karma.records import Kind, NewMemory
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.prefetch import ContextUse, prefetch_for

UID = 1000
QUICK = 10_000  # memories
WORDS, LENGTH = 20_000, 25  # of the made-up language; of a memory
ASKED, RUNS = 600, 3  # questions of a run: six of them are slower than its p99
DIMENSIONS = 384  # of a vector, as all-MiniLM-L6-v2 has them
AT_ONCE, COMPARED = 10_000, 100  # vectors that are added together; questions that are compared with all


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"memory block": building}


def building(bench: Bench) -> Iterator[Row]:
    """Whole blocks, each for a conversation that begins: frame, plan, what stands always, search, ranking and filling.
    Questions of three to eight words, some frequent, some rare, over memories of words spread as in a language."""
    goals = {QUICK: (20, 50), 100_000: (None, 100)}
    sizes = [QUICK] if max(bench.depths) <= 2_048 else list(goals)
    with tempfile.TemporaryDirectory() as folder:
        path, language, stored = Path(folder) / "memories.sqlite3", Language(7), 0
        for size in sizes:
            case, (middle, late) = f"memory block of {size:,}", goals[size]
            wrote = filled(path, language, size - stored)
            stored = size
            questions = [language.said(3 + number % 6) for number in range(ASKED)]
            yield at_most(case, "a write, p50", 1_000 * wrote, 10, "ms")
            yield from asked_by_one_process(case, path, questions, middle, late)
            yield from near_by_vectors(size, Path(folder))


def asked_by_one_process(
    case: str, path: Path, questions: Sequence[str], middle: float | None, late: float
) -> Iterator[Row]:
    """A process that has just started asks all of them, three times. The worst p99 of the three counts. The file is in the
    system's cache: it was written before. The processor's time is that of all threads of the process: what others do on the
    machine lengthens it little."""
    with get_context("spawn").Pool(1) as pool:
        seen = [pool.apply(ask_all, (path, questions)) for _ in range(RUNS)]
    p50, p99 = median(one.wall.p50_ms for one in seen), max(one.wall.p99_ms for one in seen)
    yield at_most(case, "p50", p50, middle, "ms") if middle else Row(case, "p50", p50, unit="ms")
    yield at_most(case, "p99", p99, late, "ms")
    yield Row(case, "of the processor, p50", median(one.processor.p50_ms for one in seen), unit="ms")
    yield Row(case, "of the processor, p99", max(one.processor.p99_ms for one in seen), unit="ms")
    yield at_most(case, "first block of a process that just started", seen[0].cold_ms, 500, "ms")
    yield Row(case, f"growth of the process after {ASKED} blocks", seen[0].grown_mb, unit="MB")


@dataclass(frozen=True)
class Times:
    """Milliseconds."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Asking:
    """What a process saw, and the megabytes by which it grew from the opened database on."""

    wall: Times
    processor: Times
    cold_ms: float
    grown_mb: float


def ask_all(path: Path, questions: Sequence[str]) -> Asking:
    """In a process of its own: opening and the first block, then the block of each question."""
    before = Process().memory_info().rss
    begun = time.perf_counter()
    store = MemoryStore(path)
    recall = Recall(store, Staleness(store, lambda *_: None))
    anyio.run(blocks, recall, questions[:1])
    cold = time.perf_counter() - begun
    gc.freeze()  # as the daemon does
    wall, processor = anyio.run(blocks, recall, questions)
    grown = Process().memory_info().rss - before
    store.close()
    return Asking(wall, processor, 1_000 * cold, grown / 1e6)


async def blocks(recall: Recall, questions: Sequence[str]) -> tuple[Times, Times]:
    """By the clock, and of the processor."""
    took = []
    for question in questions:
        asked = RecallQuestion(UID, None, question, (), 4_000, prefetch_for(question, ContextUse(300, 16_384)))
        begun = time.perf_counter(), time.process_time()
        await recall.recall(asked, None)
        took.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    wall, processor = (times([one[which] for one in took]) for which in (0, 1))
    return wall, processor


def times(seconds: Iterable[float]) -> Times:
    ordered = sorted(seconds)
    return Times(1_000 * ordered[len(ordered) // 2], 1_000 * ordered[len(ordered) * 99 // 100])


def filled(path: Path, language: "Language", number: int) -> float:
    """Adds so many memories; the median of seconds that one took."""
    took, store = list[float](), MemoryStore(path)
    for _ in range(number):
        new = NewMemory(UID, language.kind(), language.said(LENGTH))
        begun = time.perf_counter()
        store.add(new)
        took.append(time.perf_counter() - begun)
    store.close()
    return median(took)


# -- vectors


class MadeUpVectors:
    """An `Embedder` whose vectors say nothing of a text: what a comparison costs does not depend on them."""

    name, dimensions = "made-up", DIMENSIONS

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [list(map(float, _drawn(text))) for text in texts]


def _drawn(text: str) -> NDArray[np.float64]:
    drawn = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSIONS)
    return drawn / np.linalg.norm(drawn)


def near_by_vectors(size: int, folder: Path) -> Iterator[Row]:
    """What comparing a question with the vectors of so many memories costs, without the model that makes them."""
    root, case = folder / f"vectors{size}", f"memory vectors of {size:,}"
    with get_context("spawn").Pool(1) as pool:
        pool.apply(vectors_made, (root, size))
    with get_context("spawn").Pool(1) as pool:
        took, grown = pool.apply(compare_all, (root, folder / "none.sqlite3"))
    yield Row(case, "p50", took.p50_ms, unit="ms")
    yield Row(case, "p99", took.p99_ms, unit="ms")
    yield Row(case, f"growth of the process after {COMPARED} questions", grown, unit="MB")


def vectors_made(root: Path, size: int) -> None:
    """In a process of its own, which the growth is not measured in."""
    index, embedder = VectorIndex(root), MadeUpVectors()
    for first in range(0, size, AT_ONCE):
        names = [str(number) for number in range(first, min(size, first + AT_ONCE))]
        index.add(f"memories of {UID}", space_of(embedder), dict(zip(names, embedder.embed(names), strict=True)))
    index.close()


def compare_all(root: Path, memories: Path) -> tuple[Times, float]:
    before = Process().memory_info().rss
    store, index, embedder = MemoryStore(memories), VectorIndex(root), MadeUpVectors()
    meaning, took = MemoryMeaning(store, index, embedder, embedder), list[float]()
    for number in range(COMPARED):
        begun = time.perf_counter()
        meaning.near(UID, f"question {number}")
        took.append(time.perf_counter() - begun)
    grown = Process().memory_info().rss - before
    index.close()
    store.close()
    return times(took), grown / 1e6


class Language:
    """Words whose n-th is said 1/n as often as the first: Zipf's law, which real texts follow closely. As in those the
    most frequent words are stop words, of which no question is searched by."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        frequent = sorted(STOP_WORDS)
        self._words = [*frequent, *(self._word() for _ in range(WORDS - len(frequent)))]
        self._weights = [1 / place for place in range(1, WORDS + 1)]

    def said(self, length: int) -> str:
        return " ".join(self._random.choices(self._words, self._weights, k=length))

    def kind(self) -> Kind:
        return self._random.choice([Kind.DECISION, Kind.FACT, Kind.PROCEDURE, Kind.EPISODE])

    def _word(self) -> str:
        return "".join(self._random.choices("bdfgklmnprstvz", k=1) + self._random.choices("aeioubdklmnrst", k=7))
