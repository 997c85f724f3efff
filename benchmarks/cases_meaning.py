"""Search by meaning with a real model: the 141 code questions by words alone, by vectors alone, and by both.

The model is the GGUF file that LORE_BENCH_EMBEDDING names; without one a row says so and nothing is measured. Archives and
vectors are kept beside the corpora: a second run asks the model for the questions alone, and for a sample of the texts.
"""

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

from cases_engine import Bench
from cases_search import QUESTIONS
from code_questions.corpora import documents
from code_questions.scoring import Scores, mean, score
from llama_sources import build_cache
from report import Row

from codex.archive.archive import Archive
from codex.searching.search import Search
from codex.vectors.embedder import Embedder
from codex.vectors.filling import fill
from codex.vectors.index import VectorIndex
from codex.vectors.search import nearest_chunks
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import Urgency
from orchestrator.engine.model import EngineSpec
from orchestrator.model.embedding_model import EmbeddingFile, find_embedding
from orchestrator.model.meaning import Bridge, Refusals, embedders
from orchestrator.settings.model import EmbeddingSettings

VARIABLE = "LORE_BENCH_EMBEDDING"
SAMPLE = 128  # texts that the speed is measured on
DEPTH = 30  # hits: what is found behind them is in nobody's sight
Ranked = Callable[[str, str], list[str]]  # of a question and a package, paths best first; one may come twice


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"search by meaning": by_meaning}


def by_meaning(bench: Bench) -> Iterator[Row]:
    """On one thread, as beside a model that answers."""
    named = os.environ.get(VARIABLE, "")
    found = find_embedding(EmbeddingSettings(model=named, threads=1), build_cache() / "models")
    if found.file is None:
        yield Row("search by meaning", "not measured", None, note=found.fault or f"set {VARIABLE} to a GGUF file")
        return
    with Running(bench.model, found.file) as running:
        yield from rows(running, found.file)


class Running:
    """The engine's child with this embedding model, and its client's loop in a thread of its own."""

    def __init__(self, model: Path, file: EmbeddingFile) -> None:
        self.client = EngineClient(EngineSpec(str(model), threads=1, embedding=file.spec))
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Running":
        self._thread.start()
        self.wait(self._start())
        return self

    def __exit__(self, *error: object) -> None:
        self.wait(self.client.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def wait(self, work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()  # type: ignore[arg-type]

    async def _start(self) -> None:
        self.client.start()
        self.bridge = Bridge(self.client)
        await self.client.ensure_ready()


def rows(running: Running, file: EmbeddingFile) -> Iterator[Row]:
    folder = build_cache() / "meaning"
    archive, vectors = Archive(folder / "archive"), VectorIndex(folder / "vectors")
    question, texts = embedders(running.bridge, file, Refusals(folder / "unembeddable.sqlite3"), "", "")
    asked = questions()
    for package, version in sorted({(one["package"], one["version"]) for one in asked}):
        if not archive.held(package):
            archive.index(package, documents(package, version))
        begun = time.perf_counter()
        filled = fill(archive, vectors, texts, package)
        yield Row(f"vectors of {package}", "texts", filled.texts, note=f"{time.perf_counter() - begun:.0f} s this time")
    yield from speed(running, archive, asked[0]["package"])
    for way, ranked in ways(archive, vectors, question).items():
        yield from scored(way, ranked, asked)


def ways(archive: Archive, vectors: VectorIndex, question: Embedder) -> dict[str, Ranked]:
    words, both = Search(archive), Search(archive, question, vectors)
    return {
        "by words": lambda text, package: [hit.path for hit in words.search(text, package, DEPTH).hits],
        "by vectors alone": lambda text, package: [
            place.path for place, _ in nearest_chunks(archive, question, vectors, text, package, DEPTH)
        ],
        "by both": lambda text, package: [hit.path for hit in both.search(text, package, DEPTH).hits],
    }


def scored(way: str, ranked: Ranked, asked: Sequence[dict[str, Any]]) -> Iterator[Row]:
    found: dict[str, list[Scores]] = defaultdict(list)
    took = []
    for one in asked:
        begun = time.perf_counter()
        paths = dict.fromkeys(ranked(one["question"], one["package"]))
        took.append(time.perf_counter() - begun)
        for name in (one["package"], "all"):
            found[name].append(score(list(paths), one["files"]))
    for name in sorted(found, key=lambda name: (name == "all", name)):
        means = mean(found[name])
        note = f"Hit@1 {means.hit_1:.3f}, MRR {means.mrr:.3f}, {len(found[name])} questions"
        yield Row(way, f"Recall@10, {name}", means.recall_10, note=note)
    yield Row(way, "a question, p50", 1_000 * median(took), unit="ms")


def speed(running: Running, archive: Archive, package: str) -> Iterator[Row]:
    """Of texts as they come, in the batches that filling makes; and of one question."""
    places = [places[0] for places in archive.digests(package).values()]
    sample = [text for _, text in archive.at(package, places[:SAMPLE]).values()]
    tokens, seconds = 0, 0.0
    for at in range(0, len(sample), 16):
        begun = time.perf_counter()
        tokens += sum(running.bridge.embed(sample[at : at + 16], Urgency.INTERACTIVE, None).tokens)
        seconds += time.perf_counter() - begun
    yield Row("embedding, one thread", "texts", tokens / seconds, unit="tokens/s", note=f"{tokens:,} tokens")
    took = []
    for one in questions()[:20]:
        begun = time.perf_counter()
        running.bridge.embed([one["question"]], Urgency.INTERACTIVE, None)
        took.append(time.perf_counter() - begun)
    yield Row("embedding, one thread", "a question, p50", 1_000 * median(took), unit="ms")


def questions() -> list[dict[str, Any]]:
    return [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
