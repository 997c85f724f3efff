"""Models whose memory cannot be cut in ranges: what is true of them in llama.cpp, and the one path that is correct.

Each carries a sequence that stands at the end of a node (an anchor); it is copied and saved there and nowhere else.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support import odd_models

from orchestrator.engine.backend import BackendError, Memory, Run, Sampled
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import EngineSpec, StateSizes

IDS = [int(token) for token in np.random.default_rng(1).integers(0, 4000, 2100)]
FLOOR, TAIL, OTHER = IDS[:1500], IDS[1500:1520], IDS[2000:2015]
NEAR = 0.05  # nats; chunk shapes cause 0.009, another prompt is nats away


@pytest.fixture(scope="module", params=["recurrent", "hybrid", "sliding", "sliding small"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaBackend]:
    name, _, windows = request.param.partition(" ")
    path = getattr(odd_models, name)(tmp_path_factory.mktemp("odd") / "model.gguf")
    loaded = load(path, **odd_models.WINDOWS[windows])
    yield loaded
    loaded.close()


def load(path: Path, **settings: object) -> LlamaBackend:
    return LlamaBackend(EngineSpec(str(path), threads=1, batch=64, gpu_layers=0, **settings))  # type: ignore[arg-type]


def feed(memory: Memory, sequence: int, ids: list[int], start: int = 0) -> int:
    for at in range(0, len(ids), 64):
        memory.decode([Run(sequence, start + at, ids[at : at + 64], output=at + 64 >= len(ids))])
    return (len(ids) - 1) % 64


def view(backend: LlamaBackend, memory: Memory, row: int) -> Sampled:
    sampler = backend.sampler(Sampling(logprobs=16))
    try:
        return memory.sample(row, sampler)
    finally:
        sampler.close()


def fresh(backend: LlamaBackend, ids: list[int]) -> Sampled:
    memory = backend.open(2048, 1)
    try:
        return view(backend, memory, feed(memory, 0, ids))
    finally:
        memory.close()


def same(one: Sampled, other: Sampled) -> bool:
    mine, yours = dict(one.logprobs), dict(other.logprobs)
    both = mine.keys() & yours.keys()
    return len(both) >= 14 and all(abs(mine[token] - yours[token]) < NEAR for token in both)


# ---- what works ------------------------------------------------------------------------------------------------------


def test_a_memory_without_ranges_is_recognised_from_the_model(backend: LlamaBackend) -> None:
    assert backend.info.ranges is False
    assert backend.info.kv_bytes_per_token >= 0
    memory = backend.open(512, 4)
    assert memory.footprint > 0
    assert memory.buffers > 0, "llama.cpp says in its log what it allocates"
    memory.close()


def test_what_an_engine_before_found_of_the_same_model_is_not_measured_again(backend: LlamaBackend) -> None:
    found = replace(backend.info, states=StateSizes(1, 2, 3))
    for known, states in ((found, found.states), (replace(found, fingerprint="another"), backend.info.states)):
        again = LlamaBackend(replace(backend.loaded.spec, known=known))
        assert again.info.states == states
        again.close()


def test_an_anchor_is_copied_at_its_end_and_all_go_on_each_their_own_way(backend: LlamaBackend) -> None:
    memory = backend.open(2048, 6)
    feed(memory, 0, FLOOR)
    for sequence in (1, 2):
        memory.copy(0, sequence, 0, len(FLOOR))
    assert same(view(backend, memory, feed(memory, 1, TAIL, 1500)), fresh(backend, FLOOR + TAIL))
    assert same(view(backend, memory, feed(memory, 2, OTHER, 1500)), fresh(backend, FLOOR + OTHER))
    memory.remove(1, 0, -1)
    memory.copy(0, 1, 0, len(FLOOR))
    assert same(view(backend, memory, feed(memory, 1, OTHER, 1500)), fresh(backend, FLOOR + OTHER))
    memory.close()


def test_a_whole_state_goes_on_where_it_was_saved(backend: LlamaBackend) -> None:
    memory = backend.open(2048, 3)
    feed(memory, 0, FLOOR)
    state = memory.save(0)
    memory.close()
    memory = backend.open(4096, 6)
    assert memory.restore(5, state) == len(FLOOR)
    memory.copy(5, 1, 0, len(FLOOR))
    memory.remove(5, 0, -1)
    assert same(view(backend, memory, feed(memory, 1, TAIL, 1500)), fresh(backend, FLOOR + TAIL))
    memory.close()


def test_ranges_saved_where_their_sequence_stands_join_in_order_to_the_whole(backend: LlamaBackend) -> None:
    memory, saved, cuts = backend.open(2048, 4), [], [0, 256, 700, 1490, 1500]
    for start, end in pairwise(cuts):
        feed(memory, 0, FLOOR[start:end], start)
        memory.copy(0, 3, start, end)
        saved.append((start, end, memory.save(3)))
        memory.remove(3, 0, -1)
    memory.close()
    memory = backend.open(2048, 4)
    for start, end, state in saved:
        assert memory.restore(3, state) == end
        memory.copy(3, 0, start, end)
        memory.remove(3, 0, -1)
    assert same(view(backend, memory, feed(memory, 0, TAIL, 1500)), fresh(backend, FLOOR + TAIL))
    memory.close()


def test_a_shared_beginning_never_fills_a_window_s_cache_while_cells_are_free(backend: LlamaBackend) -> None:
    """With a small cache that is not trimmed this ends in "failed to find a memory slot"."""
    memory = backend.open(2048, 4)
    feed(memory, 0, FLOOR)
    memory.copy(0, 1, 0, 1500)
    for number in range(20):
        feed(memory, 2, IDS[:100])
        memory.remove(2, 0, -1)
        feed(memory, 1, [5] * 10, 1500 + 10 * number)
    assert same(view(backend, memory, feed(memory, 0, OTHER, 1500)), fresh(backend, FLOOR + OTHER))
    memory.close()


# ---- what does not ---------------------------------------------------------------------------------------------------


def test_a_recurrent_sequence_cannot_be_cut(tmp_path: Path) -> None:
    backend = load(odd_models.recurrent(tmp_path / "m.gguf"))
    memory = backend.open(2048, 4)
    feed(memory, 0, FLOOR)
    with pytest.raises(BackendError, match="no ranges"):
        memory.remove(0, 1499, -1)
    memory.copy(0, 1, 0, 700)  # copies the state at 1,500 all the same
    with pytest.raises(BackendError):
        feed(memory, 1, OTHER, 700)
    memory.close()
    backend.close()


def test_a_sliding_window_forgets_old_cells_though_free_ones_are_there(tmp_path: Path) -> None:
    """Why a cut is only sure at an anchor: others' work took the oldest cells, and nothing said so."""
    backend = load(odd_models.sliding(tmp_path / "m.gguf"))
    memory = backend.open(2048, 5)
    feed(memory, 2, IDS[:100])
    feed(memory, 0, FLOOR)
    memory.remove(2, 0, -1)  # the first hole
    feed(memory, 3, IDS[:300])  # goes into the hole, and on over the floor's oldest cells
    memory.copy(0, 1, 0, 200)
    assert not same(view(backend, memory, feed(memory, 1, OTHER, 200)), fresh(backend, FLOOR[:200] + OTHER))
    memory.close()
    backend.close()


def test_a_memory_takes_what_llama_cpp_says_of_cells_and_states(
    backend: LlamaBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """Recurrent states are there for each sequence, whatever the number of cells."""
    with caplog.at_level(logging.DEBUG, "llama.cpp"):
        memory = backend.open(2048, 6)
    sizes = [re.search(r"(?:KV|RS) buffer size = +([\d.]+) MiB", record.getMessage()) for record in caplog.records]
    logged = sum(float(size[1]) for size in sizes if size)
    assert memory.footprint / 2**20 == pytest.approx(logged, abs=0.02)
    memory.close()
