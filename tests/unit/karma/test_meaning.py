"""Memories found by what they mean: beside words, never in their place, and told where the model is gone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from support.word_embedder import WordEmbedder

from codex.vectors.embedder import EmbeddingFailed, space_of
from codex.vectors.index import VectorIndex
from codex.words import STOP_WORDS, words
from orchestrator.karma.meaning import WORDS_ALONE, MemoryMeaning
from orchestrator.karma.recall import Recall, RecallQuestion
from orchestrator.karma.records import Kind, MemoryRecord, NewMemory
from orchestrator.karma.search import FLOOR, MemorySearch
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.prefetch import ContextUse, prefetch_for

ME, OTHER = 1000, 1001
ALL = dict.fromkeys(Kind, 10)
SYNONYMS = {"automobile": "car", "purchased": "bought", "dog": "hound"}


class SynonymEmbedder(WordEmbedder):
    """For which two words mean the same, and those of any text mean nothing."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        said = ([SYNONYMS.get(word, word) for word in words(text) if word not in STOP_WORDS] for text in texts)
        return super().embed([" ".join(some) for some in said])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    opened = MemoryStore(tmp_path / "memories.sqlite3")
    yield opened
    opened.close()


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[VectorIndex]:
    opened = VectorIndex(tmp_path / "vectors")
    yield opened
    opened.close()


def meaning_of(store: MemoryStore, vectors: VectorIndex, **more: object) -> MemoryMeaning:
    embedder = SynonymEmbedder(256, **more)  # type: ignore[arg-type]
    return MemoryMeaning(store, vectors, embedder, embedder)


def remember(store: MemoryStore, text: str, uid: int = ME) -> MemoryRecord:
    return store.add(NewMemory(uid, Kind.FACT, text))


def furnish(store: MemoryStore) -> MemoryRecord:
    for text in (
        "The garden has a pond.",
        "Bread is baked at six.",
        "The violin hangs on the wall.",
        "Tea is in the tin.",
    ):
        remember(store, text)
    return remember(store, "The red car was bought in May.")


def found(store: MemoryStore, meaning: MemoryMeaning, question: str, uid: int = ME) -> list[str]:
    search = MemorySearch(store, meaning)
    return [one.record.text for one in search.find(uid, None, question, ALL) if one.similarity >= FLOOR]


def test_a_memory_in_other_words_is_found_by_its_meaning_and_by_words_it_is_not(
    store: MemoryStore, vectors: VectorIndex
) -> None:
    car, meaning = furnish(store), meaning_of(store, vectors)
    assert meaning.fill(ME) == 5
    assert found(store, meaning, "which automobile was purchased") == [car.text]
    assert found(store, WORDS_ALONE, "which automobile was purchased") == []


def test_what_means_nothing_of_it_stays_out(store: MemoryStore, vectors: VectorIndex) -> None:
    furnish(store)
    meaning = meaning_of(store, vectors)
    meaning.fill(ME)
    assert found(store, meaning, "who repairs the church organ") == []


def test_another_users_memories_are_not_near(store: MemoryStore, vectors: VectorIndex) -> None:
    furnish(store)
    meaning = meaning_of(store, vectors)
    meaning.fill(ME)
    assert meaning.near(OTHER, "which automobile was purchased") == {}
    assert found(store, meaning, "which automobile was purchased", OTHER) == []


def test_vectors_are_made_once_and_those_of_forgotten_memories_go(store: MemoryStore, vectors: VectorIndex) -> None:
    car, meaning = furnish(store), meaning_of(store, vectors)
    meaning.fill(ME)
    assert meaning.fill(ME) == 0
    store.forget(ME, car.id)
    meaning.fill(ME)
    assert car.id not in vectors.held(f"memories of {ME}", space_of(SynonymEmbedder(256)))


def test_a_model_that_is_gone_leaves_the_words_and_the_answer_is_told(store: MemoryStore, vectors: VectorIndex) -> None:
    car, meaning = furnish(store), meaning_of(store, vectors)
    meaning.fill(ME)
    gone = MemoryMeaning(store, vectors, SynonymEmbedder(256, lasts=0), SynonymEmbedder(256))
    assert found(store, gone, "when was the red car bought") == [car.text]
    question = RecallQuestion(
        ME, None, "when was the red car bought", (), 4_000, prefetch_for("", ContextUse(0, 8_000))
    )
    recall = Recall(store, Staleness(store, lambda codex, path: None), meaning=gone)
    told = anyio.run(recall.recall, question, None)
    assert told.notice == "memories were searched by words alone: the model is gone"
    assert anyio.run(replace(recall, meaning=meaning).recall, question, None).notice == ""


def test_a_fill_that_fails_keeps_what_it_made(store: MemoryStore, vectors: VectorIndex) -> None:
    for number in range(40):
        remember(store, f"Box {number} holds item {number * 7}.")
    failing = MemoryMeaning(store, vectors, SynonymEmbedder(256), SynonymEmbedder(256, lasts=20))
    with pytest.raises(EmbeddingFailed):
        failing.fill(ME)
    assert vectors.count(f"memories of {ME}", space_of(SynonymEmbedder(256))) == 16
    assert meaning_of(store, vectors).fill(ME) == 24
