"""The built-in model that embeds: what llama.cpp computes of it is the mean that its recipe promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.builtin import ensure, words
from orchestrator.engine.builtin.shape import tokens
from orchestrator.engine.embedding.llama import LlamaEmbedding
from orchestrator.engine.embedding.port import normalised
from orchestrator.engine.model import EmbeddingSpec


class Room:
    def __init__(self, path):
        self.model = LlamaEmbedding(EmbeddingSpec(str(path), threads=1))
        self.context = self.model.open()

    def vector(self, text):
        return normalised(self.context.vectors([self.model.encode(text)]))[0]

    def near(self, one, other):
        return float(self.vector(one) @ self.vector(other))

    def close(self):
        self.context.close()
        self.model.close()


@pytest.fixture(scope="module")
def room(models):
    made = Room(ensure("builtin:words", models))
    yield made
    made.close()


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1, max_size=200))
def test_a_vector_is_the_mean_of_the_rows_of_its_tokens(room, text):
    rows = words.embeddings(tokens()).astype(np.float16).astype(np.float64)[:, : words.CONTENT]
    ids = room.model.encode(text)
    mean = rows[ids].mean(axis=0)
    found = room.context.vectors([ids])[0]
    assert np.allclose(found[: words.CONTENT], mean, atol=2e-3)
    assert (found[words.CONTENT :] == 0).all()


def test_rows_have_mean_zero_and_variance_one_so_that_norms_change_nothing():
    rows = words.embeddings(tokens())
    assert np.allclose(rows.mean(axis=1), 0, atol=1e-12)
    assert np.allclose((rows**2).mean(axis=1), 1)


def test_a_word_is_near_itself_in_other_spellings(room):
    assert room.near("close", " close") == pytest.approx(1, abs=1e-3)
    assert room.near("request", "Request") > 0.8
    assert room.near("request", "requests") > 0.4 > room.near("request", "module")


def test_an_uncommon_word_in_common_says_more_than_common_ones(room):
    text = "def handle(self, request): return self"
    assert room.near(text, "which request") > room.near(text, "def open(self, path): return self") + 0.1


def test_order_says_nothing(room):
    assert room.near("a socket error", "a error socket") == pytest.approx(1, abs=1e-3)
