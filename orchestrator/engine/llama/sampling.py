"""Choosing the next token, through llama.cpp's samplers.

Only tokens with finite logits are chosen, and none that the ticket's grammar forbids: llama.cpp aborts the process when
a sampler is made to accept what its grammar does not allow. A grammar is tried on the one token that was sampled; the
whole vocabulary goes through it only when that one is rejected, because that takes milliseconds.
"""

import ctypes
import time
from collections.abc import Sequence

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.backend import BackendError, SchemaRefused
from orchestrator.engine.llama.schema import grammar
from orchestrator.engine.messages import Sampling

PENALTY_WINDOW = 64
LITTLE_SECONDS = 0.01  # for a slice of the vocabulary: one token first, twice as many after each that took less
MOST_SECONDS = (
    0.5  # for the whole vocabulary; llama.cpp takes milliseconds, and longer the more ways there are to go on
)
RANDOM_SEED = 0xFFFFFFFF  # llama.cpp's word for "pick one"
Logits = NDArray[np.float32]


class LlamaSampler:
    """One ticket's chain: penalties, top-k, top-p, min-p, temperature, draw. Owns its llama.cpp samplers until `close`."""

    def __init__(self, sampling: Sampling, model: object) -> None:
        self._sampling = sampling
        self._grammar = make_grammar(sampling.schema, model) if sampling.schema else None
        plain = sampling.greedy and sampling.repeat_penalty == 1.0
        self._chain = None if plain else make_chain(sampling, model)

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        if self._chain is not None and self._sampling.repeat_penalty != 1.0:
            for token in tokens[-PENALTY_WINDOW:]:
                lib.llama_sampler_accept(self._chain, token)

    def choose(self, logits: Logits) -> tuple[int, tuple[tuple[int, float], ...]]:
        """The next token, and if wanted its log-probability followed by those of the likeliest. Accepts nothing."""
        token = self._draw(logits)
        if self._grammar is not None and not self._allowed(token):
            token = self._draw(self._mask(logits))
        if not np.isfinite(logits[token]):
            raise BackendError("the model gave no finite logits: its weights or its KV are damaged")
        return token, with_likeliest(logits, token, self._sampling.logprobs)

    def accept(self, token: int) -> None:
        if self._chain is not None:
            lib.llama_sampler_accept(self._chain, token)
        if self._grammar is not None:
            lib.llama_sampler_accept(self._grammar, token)

    def close(self) -> None:
        for sampler in (self._chain, self._grammar):
            if sampler is not None:
                lib.llama_sampler_free(sampler)
        self._chain = self._grammar = None

    def _draw(self, logits: Logits) -> int:
        if self._chain is None:
            return int(logits.argmax())
        candidates = Candidates(np.arange(len(logits), dtype=np.int32), logits)
        lib.llama_sampler_apply(self._chain, ctypes.byref(candidates.array))
        return candidates.selected()

    def _allowed(self, token: int) -> bool:
        one = Candidates(np.array([token], np.int32), np.zeros(1, np.float32))
        lib.llama_sampler_apply(self._grammar, ctypes.byref(one.array))
        return bool(np.isfinite(one.logits()[0]))

    def _mask(self, logits: Logits) -> Logits:
        """Raises SchemaRefused when going on would hold up everybody else."""
        whole = Candidates(np.arange(len(logits), dtype=np.int32), logits)
        start, size, spent = 0, 1, 0.0
        while start < len(logits):
            began = time.thread_time()  # of this thread alone: beside busy processes nobody is refused
            lib.llama_sampler_apply(self._grammar, ctypes.byref(whole.part(start, start + size)))
            took = time.thread_time() - began
            spent += took
            if spent > MOST_SECONDS:
                raise SchemaRefused(f"the JSON schema takes more than {MOST_SECONDS} s a token: it is ambiguous")
            start, size = start + size, 2 * size if took < LITTLE_SECONDS else max(1, size // 2)
        masked = whole.logits().copy()
        if not np.isfinite(masked).any():
            raise BackendError("the JSON schema allows no token here")
        return masked


class Candidates:
    """A llama_token_data_array over numpy's memory."""

    _kind = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

    def __init__(self, ids: NDArray[np.int32], logits: Logits) -> None:
        self._data = np.zeros(len(ids), self._kind)
        self._data["id"], self._data["logit"] = ids, logits
        self.array = array_of(self._data)

    def part(self, start: int, end: int) -> "lib.llama_token_data_array":
        """Some of them, in the same memory: what is done to them is done to the whole."""
        return array_of(self._data[start:end])

    def logits(self) -> Logits:
        found: Logits = self._data["logit"]
        return found

    def selected(self) -> int:
        at = int(self.array.selected)
        return int(self._data["id"][at if at >= 0 else 0])


def array_of(data: NDArray[np.void]) -> "lib.llama_token_data_array":
    """llama.cpp's view of it. The memory stays numpy's."""
    pointer = data.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
    return lib.llama_token_data_array(data=pointer, size=len(data), selected=-1, sorted=False)


def make_chain(sampling: Sampling, model: object) -> object:
    words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    if sampling.repeat_penalty != 1.0:
        lib.llama_sampler_chain_add(
            chain, lib.llama_sampler_init_penalties(words, PENALTY_WINDOW, sampling.repeat_penalty, 0.0, 0.0)
        )
    if sampling.greedy:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())
        return chain
    # top-k first: top-p alone would sort the whole vocabulary, 2.7 ms a token.
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_k(sampling.top_k))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_min_p(sampling.min_p, 1))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(sampling.temperature))
    seed = RANDOM_SEED if sampling.seed is None else sampling.seed % RANDOM_SEED
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(seed))
    return chain


def make_grammar(schema: str, model: object) -> object:
    sampler = lib.llama_sampler_init_grammar(lib.llama_model_get_vocab(model), grammar(schema).encode(), b"root")
    if not sampler:
        raise SchemaRefused("llama.cpp makes no grammar of this JSON schema")
    return sampler


def with_likeliest(logits: Logits, token: int, most: int | None) -> tuple[tuple[int, float], ...]:
    """The token with its log-probability, then the `most` likeliest; nothing where None are wanted."""
    if most is None:
        return ()
    total = log_of_sum(logits)  # over the whole vocabulary: once a token
    return tuple((one, float(logits[one]) - total) for one in (token, *likeliest(logits, most)))


def log_of_sum(logits: Logits) -> float:
    """The natural logarithm of the sum of their exponentials: what a logit lies below is its log-probability."""
    highest = logits.max()
    return float(highest) + float(np.log(np.exp(logits - highest).sum()))


def likeliest(logits: Logits, most: int) -> list[int]:
    """The `most` likeliest tokens, likeliest first."""
    if most <= 0:
        return []
    best = np.argpartition(-logits, min(most, len(logits) - 1))[:most]
    return sorted(best.tolist(), key=lambda token: (-float(logits[token]), token))
