"""Windows kept alone: whatever is shared and goes on, a step finds its cells and each sequence goes on as if alone."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from support import odd_models
from support.backends import Subject, feed, subject

from orchestrator.engine.backend import BackendError
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.memory import LlamaMemory
from orchestrator.engine.llama.model_files import fingerprint
from orchestrator.engine.llama.windows import SmallWindowMemory
from orchestrator.engine.model import EngineSpec

WINDOW = odd_models.WINDOW
SEQUENCES, CELLS, BATCH = 6, 4096, 64


@pytest.fixture(scope="module", params=["flash attention", "plain attention"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    path = odd_models.sliding(tmp_path_factory.mktemp("small") / "model.gguf")
    flash = request.param == "flash attention"
    spec = EngineSpec(str(path), threads=1, batch=BATCH, gpu_layers=0, flash_attention=flash, small_windows=True)
    backend = LlamaBackend(spec)
    yield subject(backend, 0.05, 700)
    backend.close()


def sharing(memory: LlamaMemory, floor: list[int]) -> None:
    """A floor that stands, and conversations that come, go on beyond the window, and leave."""
    feed(memory, 0, floor)
    memory.copy(0, 1, 0, len(floor))
    for number in range(2, 3 * SEQUENCES):
        feed(memory, 1 + number % 4, floor[: 2 * WINDOW], memory.length(1 + number % 4))
        memory.remove(1 + (number + 1) % 4, 0, -1)
        memory.copy(0, 1 + (number + 1) % 4, 0, len(floor))


def test_a_cache_whose_shared_cells_are_not_trimmed_stops_up(small: Subject) -> None:
    backend = small.backend
    assert isinstance(backend, LlamaBackend)
    for kind in (SmallWindowMemory, LlamaMemory):
        memory = kind(backend.loaded, CELLS, SEQUENCES)
        if kind is LlamaMemory:
            with pytest.raises(BackendError):
                sharing(memory, small.floor)
        else:
            sharing(memory, small.floor)
        memory.close()


@dataclass
class Life:
    """Random work as a tree of anchors does it: what others go on from stands still. `held`: what each must hold."""

    on: Subject
    chance: random.Random
    held: dict[int, list[int]] = field(default_factory=dict)
    anchors: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.memory = self.on.open(CELLS, SEQUENCES)

    def step(self) -> None:
        sequence, other = self.chance.sample(range(SEQUENCES), 2)
        mine, theirs = self.held.get(sequence, []), self.held.get(other, [])
        match self.chance.choice(["feed", "feed", "feed", "copy", "copy", "drop", "carry"]):
            case "feed" if sequence not in self.anchors and len(mine) + 250 < CELLS // SEQUENCES:
                most = self.chance.choice([10, 3 * WINDOW])
                new = [self.chance.randrange(300, 3800) for _ in range(self.chance.randint(1, most))]
                feed(self.memory, sequence, new, len(mine), chunk=BATCH)
                self.held[sequence] = mine + new
            case "copy" if theirs and not mine:
                self.memory.copy(other, sequence, 0, len(theirs))
                self.held[sequence] = theirs
                self.anchors.add(other)
            case "drop" if mine:
                self.memory.remove(sequence, 0, -1)
                self.held[sequence] = []
                self.anchors.discard(sequence)
            case "carry" if mine:
                state = self.memory.save(sequence)
                self.memory.remove(sequence, 0, -1)
                assert self.memory.restore(sequence, state) == len(mine)


@pytest.mark.parametrize("seed", range(6))
def test_after_any_work_of_anchors_each_sequence_goes_on_as_if_alone(small: Subject, seed: int) -> None:
    life = Life(small, random.Random(seed))
    for _ in range(100):
        life.step()
    for sequence, ids in life.held.items():
        if ids:
            assert life.memory.length(sequence) == len(ids)
            seen = small.view(life.memory, feed(life.memory, sequence, small.tail, len(ids)))
            assert small.same(seen, small.fresh(ids + small.tail))
    life.memory.close()


def test_a_trimmed_anchor_keeps_what_was_saved_of_it(small: Subject) -> None:
    memory, at = small.open(CELLS, SEQUENCES), len(small.floor)
    feed(memory, 0, small.floor)
    for _ in range(2):  # the second copy finds nothing to trim
        memory.copy(0, 1, 0, at)
        memory.remove(1, 0, -1)
    state = memory.save(0)
    memory.remove(0, 0, -1)
    assert memory.restore(3, state) == at
    seen = small.view(memory, feed(memory, 3, small.tail, at))
    assert small.same(seen, small.fresh(small.floor + small.tail))
    memory.close()


def test_states_of_small_windows_have_names_of_their_own(small: Subject) -> None:
    backend = small.backend
    assert isinstance(backend, LlamaBackend)
    path, flash = backend._spec.model, backend._spec.flash_attention
    assert fingerprint(backend._spec) != fingerprint(EngineSpec(path, flash_attention=flash))


def test_a_pool_tells_what_its_windows_cost(small: Subject) -> None:
    """Half of the layers slide, all of one width: windows of n sequences and a batch cost as many tokens."""
    backend = small.backend
    assert isinstance(backend, LlamaBackend)
    padded = -(-(WINDOW * backend._spec.sequences + BATCH) // 256) * 256
    assert backend.info.pool_tokens == padded
    memory = small.open(CELLS, SEQUENCES)
    windows = -(-(WINDOW * SEQUENCES + BATCH) // 256) * 256
    assert memory.footprint == (CELLS + windows) * backend.info.kv_bytes_per_token
    memory.close()
