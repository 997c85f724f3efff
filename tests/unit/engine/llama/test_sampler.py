"""Choosing tokens: each setting against a naive model over numpy, and JSON that obeys its schema whatever the logits."""

import ctypes
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp as lib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.backend import BackendError, SchemaRefused
from orchestrator.engine.llama import native
from orchestrator.engine.llama.grammars import Constraint, Grammars
from orchestrator.engine.llama.sampler import PENALTY_WINDOW, LlamaSampler, make_chain, with_likeliest
from orchestrator.engine.llama.sampler import drawn as drawn_of_all
from orchestrator.engine.messages import Sampling

WORDS = 4096
LOGITS = (np.random.default_rng(5).standard_normal(WORDS) * 2).astype(np.float32)
RANKED = np.argsort(-LOGITS)
WIDE = {"temperature": 1.0, "top_k": WORDS, "top_p": 1.0}


@pytest.fixture(scope="module")
def model(quoter_model: Path) -> Iterator[Any]:
    native.start()
    parameters = lib.llama_model_default_params()
    parameters.vocab_only = True
    loaded = lib.llama_model_load_from_file(str(quoter_model).encode(), parameters)
    yield loaded
    lib.llama_model_free(loaded)


def drawn(model: Any, many: int, logits: np.ndarray = LOGITS, **settings: Any) -> list[int]:
    sampler = LlamaSampler(Sampling(**settings), model)
    try:
        return [sampler.choose(logits)[0] for _ in range(many)]
    finally:
        sampler.close()


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


# ---- settings --------------------------------------------------------------------------------------------------------


def test_temperature_zero_takes_the_best(model: Any) -> None:
    assert set(drawn(model, 5)) == {RANKED[0]}


def test_top_k_leaves_the_k_best(model: Any) -> None:
    found = set(drawn(model, 400, **WIDE | {"top_k": 3, "seed": 1, "temperature": 5.0}))
    assert found == set(RANKED[:3].tolist())


def test_top_p_leaves_the_fewest_that_reach_it(model: Any) -> None:
    probabilities = softmax(LOGITS)[RANKED]
    fewest = int(np.searchsorted(np.cumsum(probabilities), 0.1)) + 1
    found = set(drawn(model, 1500, **WIDE | {"top_p": 0.1, "seed": 1}))
    assert found <= set(RANKED[:fewest].tolist())
    assert len(found) > fewest // 2


def test_min_p_leaves_those_within_its_share_of_the_best(model: Any) -> None:
    allowed = set(np.flatnonzero(softmax(LOGITS) >= 0.5 * softmax(LOGITS).max()).tolist())
    assert set(drawn(model, 400, **WIDE | {"min_p": 0.5, "seed": 1})) <= allowed


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_are_as_frequent_as_the_softmax_says(model: Any, temperature: float) -> None:
    logits = np.full(WORDS, -30.0, np.float32)
    logits[:4] = (2.0, 1.0, 0.0, -1.0)
    seen = Counter(drawn(model, 4000, logits, **WIDE | {"temperature": temperature, "seed": 11}))
    expected = softmax(logits[:4] / temperature)
    assert all(abs(seen[token] / 4000 - expected[token]) < 0.04 for token in range(4))


def test_a_seed_reproduces_and_another_one_differs(model: Any) -> None:
    one, again, other = (drawn(model, 50, **WIDE | {"seed": seed}) for seed in (7, 7, 8))
    assert one == again != other


def test_seeds_that_differ_in_their_last_bit_differ_and_so_do_negative_ones(model: Any) -> None:
    draws = [tuple(drawn(model, 50, **WIDE | {"seed": seed})) for seed in (6, 7, -1, -2, 2**32 - 1, 2**32)]
    assert len(set(draws[:4])) == 4
    assert draws[4] == tuple(drawn(model, 50, **WIDE | {"seed": 0})), "seeds count modulo 2^32 - 1"


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-38, 1e-6, 0.000_9])
def test_a_temperature_next_to_zero_is_greedy_and_never_overflows(model: Any, temperature: float) -> None:
    assert set(drawn(model, 5, LOGITS * 50, temperature=temperature, seed=1)) == {RANKED[0]}


def test_the_coldest_temperature_that_is_drawn_from_takes_the_best(model: Any) -> None:
    assert set(drawn(model, 20, LOGITS * 50, temperature=0.001, seed=1)) == {RANKED[0]}


def test_without_a_seed_two_tickets_differ(model: Any) -> None:
    assert drawn(model, 50, **WIDE) != drawn(model, 50, **WIDE)


def test_a_repetition_penalty_takes_what_was_said_from_its_place(model: Any) -> None:
    sampler = LlamaSampler(Sampling(repeat_penalty=4.0), model)
    said = []
    for _ in range(5):
        token, _ = sampler.choose(LOGITS)
        sampler.accept(token)
        said.append(token)
    sampler.close()
    assert len(set(said)) == 5


def test_a_repetition_penalty_sees_the_end_of_the_prompt(model: Any) -> None:
    sampler = LlamaSampler(Sampling(repeat_penalty=4.0), model)
    sampler.accept_prompt([int(RANKED[0])])
    assert sampler.choose(LOGITS)[0] != RANKED[0]
    sampler.close()


@given(
    st.sampled_from([50, WORDS, 3 * WORDS - 5, 40_000]),
    st.sampled_from([0, 1, 5, 40, 3_000]),
    st.sampled_from([0.5, 1.0, 1.3, 4.0]),
    st.sampled_from([0.0, 0.9]),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_what_is_drawn_from_the_likeliest_is_what_would_be_drawn_from_all(
    model: Any, words: int, top_k: int, penalty: float, left_out: float, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    logits = (chance.standard_normal(words) * 3).astype(np.float32)
    logits[chance.random(words) < left_out] = -np.inf
    logits[0] = 0.0  # one is possible in any case
    sampling = Sampling(temperature=0.8, top_k=top_k, repeat_penalty=penalty, seed=seed)
    one, other = LlamaSampler(sampling, model), make_chain(sampling, model)
    said = [int(token) for token in np.argsort(-logits)[:70]]
    one.accept_prompt(said)
    for token in said[-PENALTY_WINDOW:] if penalty != 1.0 else ():
        lib.llama_sampler_accept(other, token)
    assert [one.choose(logits)[0] for _ in range(5)] == [drawn_of_all(other, logits) for _ in range(5)]
    one.close()
    lib.llama_sampler_free(other)


@pytest.mark.parametrize("settings", [{}, WIDE | {"seed": 1}, {"repeat_penalty": 2.0}])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_numbers_are_the_engine_s_fault_and_no_token(
    model: Any, settings: dict[str, Any], broken: float
) -> None:
    with pytest.raises(BackendError, match="finite"):
        drawn(model, 1, np.full(WORDS, broken, np.float32), **settings)


@pytest.mark.parametrize("settings", [{}, WIDE | {"seed": 1}, {"repeat_penalty": 2.0}, {"temperature": 0.8, "seed": 1}])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_nor_is_any_other_token_drawn_beside_one(model: Any, settings: dict[str, Any], broken: float) -> None:
    logits = LOGITS.copy()
    logits[7] = broken
    with pytest.raises(BackendError, match="finite"):
        drawn(model, 1, logits, **settings)


# ---- log-probabilities -----------------------------------------------------------------------------------------------


def test_the_probabilities_of_all_tokens_sum_to_one() -> None:
    _, *every = with_likeliest(LOGITS, 0, WORDS)
    assert abs(sum(np.exp(value) for _, value in every) - 1) < 1e-4
    assert sorted(token for token, _ in every) == list(range(WORDS))


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_the_likeliest_come_first_with_the_softmax_s_logarithm(most: int, seed: int) -> None:
    logits = (np.random.default_rng(seed).standard_normal(WORDS) * 3).astype(np.float32)
    _, *found = with_likeliest(logits, 0, most)
    expected = np.log(softmax(logits.astype(np.float64)))
    assert [token for token, _ in found] == np.argsort(-expected, kind="stable")[:most].tolist()
    assert all(abs(value - expected[token]) < 1e-4 for token, value in found)


def test_the_chosen_token_comes_first_though_it_is_not_among_the_likeliest() -> None:
    worst = int(RANKED[-1])
    own, *likeliest = with_likeliest(LOGITS, worst, 2)
    assert own[0] == worst
    assert abs(own[1] - float(np.log(softmax(LOGITS.astype(np.float64))[worst]))) < 1e-4
    assert [token for token, _ in likeliest] == RANKED[:2].tolist()
    assert with_likeliest(LOGITS, worst, 0) == (own,)


def test_fewer_come_where_fewer_are_possible() -> None:
    logits = np.full(WORDS, -np.inf, np.float32)
    logits[[3, 9]] = (1.0, 2.0)
    assert [token for token, _ in with_likeliest(logits, 3, 5)] == [3, 9, 3]


def test_nobody_who_asks_for_none_pays_for_any() -> None:
    assert with_likeliest(LOGITS, 1, None) == ()


# ---- schemas ---------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "count": {"type": "integer"},
        "kind": {"enum": ["file", "folder"]},
        "parts": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "count", "kind", "parts"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def schemas(model: Any) -> Grammars:
    return Grammars(lib.llama_model_get_vocab(model))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 3.0]))
def test_an_answer_obeys_its_schema_whatever_the_model_would_rather_say(
    model: Any, schemas: Grammars, seed: int, temperature: float
) -> None:
    random = np.random.default_rng(seed)
    sampling = Sampling(temperature=temperature, top_k=WORDS, top_p=1.0, seed=seed)
    said = json.loads(written(model, sampling, schemas.constraint(json.dumps(SCHEMA)), random))
    assert set(said) == set(SCHEMA["properties"])
    assert isinstance(said["name"], str)
    assert len(said["name"]) <= 12
    assert isinstance(said["count"], int)
    assert said["kind"] in ("file", "folder")
    assert 1 <= len(said["parts"]) <= 3
    assert all(isinstance(part, bool) for part in said["parts"])


def written(model: Any, sampling: Sampling, constraint: Constraint, random: np.random.Generator) -> bytes:
    vocabulary, buffer, text = lib.llama_model_get_vocab(model), ctypes.create_string_buffer(256), b""
    sampler = LlamaSampler(sampling, model, constraint)
    try:
        for _ in range(400):
            token, _ = sampler.choose((random.standard_normal(WORDS) * 4).astype(np.float32))
            if lib.llama_vocab_is_eog(vocabulary, token):
                return text
            sampler.accept(token)
            size = lib.llama_token_to_piece(vocabulary, token, buffer, 256, 0, False)
            text += buffer.raw[:size]
        raise AssertionError(f"no end after 400 tokens: {text!r}")
    finally:
        sampler.close()


def test_the_likeliest_token_that_the_schema_allows_is_chosen(model: Any, schemas: Grammars) -> None:
    constraint = schemas.constraint('{"enum": ["one", "two"]}')
    sampler = LlamaSampler(Sampling(), model, constraint)
    allowed = np.flatnonzero(constraint.mask()[:WORDS])
    assert RANKED[0] not in allowed
    assert sampler.choose(LOGITS)[0] == allowed[LOGITS[allowed].argmax()]
    sampler.close()


def test_two_answers_to_one_schema_know_nothing_of_each_other(model: Any, schemas: Grammars) -> None:
    one, other = (LlamaSampler(Sampling(), model, schemas.constraint('{"const": 12}')) for _ in range(2))
    token, _ = one.choose(LOGITS)
    one.accept(token)
    assert other.choose(LOGITS)[0] == token
    one.close()
    other.close()


def test_a_schema_that_becomes_too_ambiguous_while_it_is_followed_is_refused_then(
    model: Any, schemas: Grammars
) -> None:
    ambiguous = json.dumps({"type": "string", "pattern": "^(.{0,70}){70}$"})
    with pytest.raises(SchemaRefused, match="too ambiguous"):
        written(model, Sampling(), schemas.constraint(ambiguous), np.random.default_rng(0))
