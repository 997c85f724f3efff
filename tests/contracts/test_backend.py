"""What the loop relies on, held by the fake and by llama.cpp alike: sequences share cells and nobody sees it."""

from itertools import accumulate

import pytest
from support.backends import CHUNK, TEXT, Subject, feed

from orchestrator.engine.backend import BackendError, Run
from orchestrator.engine.messages import Sampling

MOST_SEQUENCES = 256  # that llama.cpp has in a context

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
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    for sequence in (1, 2, 3):
        memory.copy(0, sequence, 0, at)
    runs = [Run(n, at, on.other if n == 2 else on.tail, output=True) for n in (1, 2, 3)]
    memory.decode(runs)
    views = [on.view(memory, row - 1) for row in accumulate(len(run.tokens) for run in runs)]
    wanted, another = on.fresh(on.floor + on.tail), on.fresh(on.floor + on.other)
    assert [on.same(view, other) for view, other in zip(views, (wanted, another, wanted), strict=True)] == [True] * 3
    memory.close()


def test_a_memory_may_have_256_sequences_less_those_of_its_own(on: Subject) -> None:
    memory, at = on.open(1024, MOST_SEQUENCES), len(on.floor)
    last = memory.sequences - 1
    feed(memory, 0, on.floor)
    memory.copy(0, last, 0, at)
    assert on.same(on.view(memory, feed(memory, last, on.tail, at)), on.fresh(on.floor + on.tail))
    assert MOST_SEQUENCES - 2 <= memory.sequences <= MOST_SEQUENCES
    memory.close()


def test_every_id_is_below_the_number_of_tokens_that_is_told(on: Subject) -> None:
    assert max(on.floor + on.tail + on.other) < on.backend.tokens
    memory = on.open()
    feed(memory, 0, [on.backend.tokens - 1])
    memory.close()


def test_a_removed_tail_leaves_room_for_another(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor + on.tail)
    memory.remove(0, at, -1)
    assert on.same(on.view(memory, feed(memory, 0, on.other, at)), on.fresh(on.floor + on.other))
    memory.close()


def test_a_hole_is_told_by_the_number_of_cells_and_is_nobody_elses(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    memory.copy(0, 1, 0, at)
    memory.remove(1, 3, 5)
    assert [memory.count(n) for n in (0, 1, 2)] == [at, at - 2, 0]
    assert [memory.length(n) for n in (0, 1, 2)] == [at, at, 0]
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
