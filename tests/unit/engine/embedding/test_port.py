"""Cutting, batching and normalising, for every model alike."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.backend import BackendError
from orchestrator.engine.embedding.port import BATCH_TEXTS, batches, cut, joined, normalised, pieces

LENGTHS = st.lists(st.integers(1, 900), max_size=200)


@given(LENGTHS, st.integers(1, 800), st.integers(1, 70))
def test_batches_hold_every_text_once_in_order(lengths, tokens, texts):
    parts = list(batches(lengths, tokens, texts))
    assert [at for part in parts for at in part] == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 800), st.integers(1, 70))
def test_a_batch_is_within_both_limits_unless_it_is_one_long_text(lengths, tokens, texts):
    for part in batches(lengths, tokens, texts):
        assert 0 < len(part) <= texts
        assert len(part) == 1 or sum(lengths[at] for at in part) <= tokens


@given(LENGTHS)
def test_no_two_neighbouring_batches_fit_into_one(lengths):
    parts = list(batches(lengths))
    for one, other in itertools.pairwise(parts):
        together = [*one, other[0]]
        assert len(together) > BATCH_TEXTS or sum(lengths[at] for at in together) > 512


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50), st.integers(4, 60), st.integers(0, 3))
def test_a_text_is_cut_to_the_window_and_keeps_its_ending(ids, window, ending):
    ending = min(ending, len(ids))
    read = cut(ids, window, ending)
    assert len(read) == min(len(ids), window)
    assert read[len(read) - ending :] == ids[len(ids) - ending :]
    assert read[: len(read) - ending] == ids[: len(read) - ending]


def test_vectors_have_length_one_and_keep_their_direction():
    vectors = np.array([[3.0, 4.0], [0.0, -2.0]], np.float32)
    assert np.allclose(normalised(vectors), [[0.6, 0.8], [0.0, -1.0]])


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_a_vector_without_a_direction_is_a_fault_of_the_model(row):
    with pytest.raises(BackendError, match="without a direction"):
        normalised(np.array([[1.0, 0.0], row], np.float32))


@given(st.integers(0, 400), st.integers(4, 60), st.integers(0, 1), st.integers(0, 2))
def test_pieces_hold_the_whole_text_once_and_each_the_models_own_ids(own, window, starting, ending):
    first, last = [-1] * starting, [-2] * ending
    found = pieces([*first, *range(own), *last], window, starting, ending)
    assert all(len(piece) <= window for piece in found)
    assert all(piece[:starting] == first and piece[len(piece) - ending :] == last for piece in found)
    inner = [piece[starting : len(piece) - ending] for piece in found]
    assert list(itertools.chain(*inner)) == list(range(own))
    assert len(found) == max(1, -(-own // (window - starting - ending)))
    assert max(map(len, inner)) - min(map(len, inner)) <= 1


def test_pieces_of_a_text_become_one_vector_that_each_moves_by_its_length():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], np.float32)
    found = joined(vectors, [5, 3, 1], [1, 2])
    assert np.allclose(found, [[1.0, 0.0], np.array([1.0, 3.0]) / np.sqrt(10)])
