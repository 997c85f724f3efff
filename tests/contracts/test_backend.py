"""What the loop relies on, held by the fake and by llama.cpp alike: sequences share cells and nobody sees it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.engine.backend import Backend, BackendError, Batch, Memory, Sampled
from orchestrator.engine.builtin import ensure
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.llama import LlamaBackend
from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import EngineSpec

CHUNK = 64
KEYS = ("return", "import", "class", "print", "while", "assert", "yield", "with", "from", "lambda", "raise", "for")
TEXT = "\n".join(f"door {n} is opened by {KEYS[n % 12]} and key {7919 * n % 99991}" for n in range(60))
QUESTION, OTHER = "\ndoor 3 is opened by", "\nSo, what was in the cellar? It was door 9 is opened by"


@dataclass
class Subject:
    """A backend and how near two of its views must be to count as the same: `tolerance` in nats, None for exactly."""

    backend: Backend
    tolerance: float | None
    floor: list[int]
    tail: list[int]
    other: list[int]

    def open(self, cells: int = 1024, sequences: int = 8) -> Memory:
        return self.backend.open(cells, sequences)

    def view(self, memory: Memory, row: int) -> Sampled:
        sampler = self.backend.sampler(Sampling(logprobs=16))
        try:
            return memory.sample(row, sampler)
        finally:
            sampler.close()

    def fresh(self, ids: list[int]) -> Sampled:
        memory = self.open()
        try:
            return self.view(memory, feed(memory, 0, ids))
        finally:
            memory.close()

    def same(self, one: Sampled, other: Sampled) -> bool:
        if self.tolerance is None:
            return one == other
        mine, yours = dict(one.logprobs), dict(other.logprobs)
        both = mine.keys() & yours.keys()
        return len(both) >= 12 and all(abs(mine[token] - yours[token]) <= self.tolerance for token in both)

    def answer(self, memory: Memory, sequence: int, at: int, row: int, sampling: Sampling, most: int = 12) -> list[int]:
        sampler, ids = self.backend.sampler(sampling), list[int]()
        try:
            while len(ids) < most and not (sampled := memory.sample(row, sampler)).end:
                ids.append(sampled.token)
                row = feed(memory, sequence, [sampled.token], at + len(ids) - 1)
            return ids
        finally:
            sampler.close()


def feed(memory: Memory, sequence: int, ids: list[int], start: int = 0, chunk: int = CHUNK) -> int:
    """Computes a run of a sequence; returns the row of its last token."""
    row = 0
    for at in range(0, len(ids), chunk):
        batch = Batch()
        row = batch.add(sequence, start + at, ids[at : at + chunk], output=at + chunk >= len(ids))
        memory.decode(batch)
    return row


def subject(backend: Backend, tolerance: float | None, length: int) -> Subject:
    floor, tail, other = backend.encode([TEXT, QUESTION, OTHER], control=False)
    return Subject(backend, tolerance, floor[:length], tail, other)


@pytest.fixture(scope="module", params=["fake", "quoter", "noise"])
def on(request: pytest.FixtureRequest, models: Path) -> Iterator[Subject]:
    if request.param == "fake":
        yield subject(FakeBackend(end_every=10**6), None, 500)
        return
    name, length = {"quoter": ("builtin:quoter", 500), "noise": ("builtin:noise-s", 200)}[request.param]
    backend = LlamaBackend(EngineSpec(str(ensure(name, models)), threads=1, batch=256, gpu_layers=0))
    yield subject(backend, 0.05, length)  # at most 0.0075 was seen
    backend.close()


# ---- what stands -----------------------------------------------------------------------------------------------------


def test_the_same_tokens_give_the_same_view_however_they_are_cut(on: Subject) -> None:
    memory = on.open(2048)
    ids = on.floor + on.tail
    whole = on.view(memory, feed(memory, 0, ids, chunk=256))
    assert on.same(on.view(memory, feed(memory, 1, ids, chunk=CHUNK)), whole)
    memory.close()


def test_different_tokens_give_different_views(on: Subject) -> None:
    assert not on.same(on.fresh(on.floor + on.tail), on.fresh(on.floor + on.other))


def test_two_tails_behind_a_shared_prefix_are_as_if_each_were_alone(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    memory.copy(0, 1, 0, at)
    assert on.same(on.view(memory, feed(memory, 0, on.tail, at)), on.fresh(on.floor + on.tail))
    assert on.same(on.view(memory, feed(memory, 1, on.other, at)), on.fresh(on.floor + on.other))
    memory.close()


def test_sequences_in_one_batch_get_each_their_own_view(on: Subject) -> None:
    memory, at, batch = on.open(), len(on.floor), Batch()
    feed(memory, 0, on.floor)
    for sequence in (1, 2, 3):
        memory.copy(0, sequence, 0, at)
    rows = [batch.add(n, at, on.other if n == 2 else on.tail, output=True) for n in (1, 2, 3)]
    memory.decode(batch)
    views = [on.view(memory, row) for row in rows]
    wanted, another = on.fresh(on.floor + on.tail), on.fresh(on.floor + on.other)
    assert [on.same(view, other) for view, other in zip(views, (wanted, another, wanted), strict=True)] == [True] * 3
    memory.close()


def test_a_removed_tail_leaves_room_for_another(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor + on.tail)
    memory.remove(0, at, -1)
    assert on.same(on.view(memory, feed(memory, 0, on.other, at)), on.fresh(on.floor + on.other))
    memory.close()


def test_a_sequence_that_leaves_takes_nothing_from_its_siblings(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    memory.copy(0, 1, 0, at)
    memory.remove(0, 0, -1)
    assert on.same(on.view(memory, feed(memory, 1, on.tail, at)), on.fresh(on.floor + on.tail))
    memory.close()


def test_a_copied_prefix_is_shorter_than_its_source_where_it_was_cut(on: Subject) -> None:
    memory, at = on.open(), 100
    feed(memory, 0, on.floor)
    memory.copy(0, 1, 0, at)
    assert on.same(on.view(memory, feed(memory, 1, on.tail, at)), on.fresh(on.floor[:at] + on.tail))
    memory.close()


def test_padding_by_a_scratch_sequence_is_not_seen(on: Subject) -> None:
    memory, at, batch = on.open(), len(on.floor), Batch()
    feed(memory, 0, on.floor)
    row = batch.add(0, at, on.tail, output=True)
    batch.add(7, 0, [0] * (CHUNK - len(batch)), output=False)
    memory.decode(batch)
    view = on.view(memory, row)
    memory.remove(7, 0, -1)
    assert on.same(view, on.fresh(on.floor + on.tail))
    memory.close()


# ---- capacity --------------------------------------------------------------------------------------------------------


def test_sharing_takes_no_cells_and_as_many_tokens_fit_as_there_are_cells(on: Subject) -> None:
    memory = on.open(256, 8)
    ids = (on.floor * 2)[:200]
    feed(memory, 0, ids)
    for sequence in range(1, 8):
        memory.copy(0, sequence, 0, 200)
    for sequence in range(memory.cells - 200):
        feed(memory, sequence % 8, [ids[0]], 200 + sequence // 8)
    with pytest.raises(BackendError):
        feed(memory, 0, [ids[0]], 200 + (memory.cells - 200) // 8)
    memory.close()


def test_there_are_at_least_as_many_cells_and_sequences_as_were_asked_for(on: Subject) -> None:
    memory = on.open(300, 5)
    assert memory.cells >= 300
    assert memory.sequences == 5
    feed(memory, 4, on.tail)
    memory.close()


def test_a_gap_between_positions_is_refused(on: Subject) -> None:
    memory = on.open()
    feed(memory, 0, on.tail)
    with pytest.raises(BackendError):
        feed(memory, 0, on.tail, len(on.tail) + 1)
    memory.close()


def test_twice_the_cells_take_twice_the_bytes(on: Subject) -> None:
    small, large = on.open(1024), on.open(2048)
    assert large.footprint == 2 * small.footprint > 0
    small.close()
    large.close()


# ---- states ----------------------------------------------------------------------------------------------------------


def test_a_saved_sequence_goes_on_in_another_memory(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    state = memory.save(0)
    memory.close()
    memory = on.open(2048, 3)
    assert memory.restore(2, state) == at
    assert on.same(on.view(memory, feed(memory, 2, on.tail, at)), on.fresh(on.floor + on.tail))
    memory.close()


def test_saving_changes_nothing_and_gives_the_same_twice(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    assert memory.save(0) == memory.save(0)
    assert on.same(on.view(memory, feed(memory, 0, on.tail, at)), on.fresh(on.floor + on.tail))
    memory.close()


def test_ranges_saved_alone_join_in_any_order_to_the_whole(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    ranges = [(0, 64), (64, 150), (150, at)]
    states = []
    for start, end in ranges:
        memory.copy(0, 7, start, end)
        states.append((start, end, memory.save(7)))
        memory.remove(7, 0, -1)
    memory.close()
    memory = on.open(2048, 8)
    for start, end, state in (states[2], states[0], states[1]):
        assert memory.restore(7, state) == end - start
        memory.copy(7, 3, start, end)
        memory.remove(7, 0, -1)
    assert on.same(on.view(memory, feed(memory, 3, on.tail, at)), on.fresh(on.floor + on.tail))
    memory.close()


def test_a_range_alone_is_much_smaller_than_the_whole(on: Subject) -> None:
    memory = on.open()
    feed(memory, 0, on.floor)
    memory.copy(0, 7, 100, 120)
    assert len(memory.save(7)) < len(memory.save(0)) / 4
    memory.close()


def test_a_state_that_does_not_fit_restores_nothing_and_disturbs_nobody(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    state = memory.save(0)
    memory.close()
    memory = on.open(256, 4)
    feed(memory, 0, on.floor[: 256 - at // 2])
    assert memory.restore(1, state) == 0
    memory.remove(1, 0, -1)
    view = on.view(memory, feed(memory, 0, on.tail[:3], 256 - at // 2))
    assert on.same(view, on.fresh(on.floor[: 256 - at // 2] + on.tail[:3]))
    memory.close()


# ---- choosing --------------------------------------------------------------------------------------------------------


def test_a_seed_reproduces_an_answer_and_another_seed_gives_another(on: Subject) -> None:
    memory, at, answers = on.open(), len(on.floor + on.tail), []
    feed(memory, 0, on.floor + on.tail[:-1])
    for sequence, seed in ((1, 7), (2, 7), (3, 8)):
        memory.copy(0, sequence, 0, at - 1)
        row = feed(memory, sequence, on.tail[-1:], at - 1)
        warm = Sampling(temperature=40.0 if on.backend.info.name != "fake" else 1.0, seed=seed, top_p=1.0)
        answers.append(on.answer(memory, sequence, at, row, warm))
    assert answers[0] == answers[1] != answers[2]
    memory.close()


def test_the_greedy_answer_behind_a_shared_prefix_is_that_of_a_full_recompute(on: Subject) -> None:
    if "noise" in on.backend.info.name:
        pytest.skip("random weights have ties; views are compared instead")
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    memory.copy(0, 1, 0, at)
    for sequence, tail in ((0, on.tail), (1, on.other)):
        shared = on.answer(memory, sequence, at + len(tail), feed(memory, sequence, tail, at), Sampling())
        fresh = on.open()
        row = feed(fresh, 0, on.floor + tail)
        assert shared == on.answer(fresh, 0, at + len(tail), row, Sampling())
        fresh.close()
    memory.close()


# ---- texts -----------------------------------------------------------------------------------------------------------


def test_pieces_of_encoded_texts_are_the_texts(on: Subject) -> None:
    texts = ["", "a", TEXT[:300], "Grüße 🦉\n\ttab", "\x00nul"]
    for text, ids in zip(texts, on.backend.encode(texts, control=False), strict=True):
        assert on.backend.pieces(ids) == text.encode()
