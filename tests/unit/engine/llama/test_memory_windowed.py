"""Sliding windows in ranges: whatever was copied, cut, saved and put back, a sequence goes on as if it were alone."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from shaped_models import GEMMA, shaped
from support import odd_models
from support.backends import Subject, feed, subject

from orchestrator.engine.backend import BackendError, Memory
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.model import EngineSpec

WINDOW = odd_models.WINDOW
SEQUENCES, CELLS = 6, 1024


@pytest.fixture(scope="module")
def sliding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    backend = loaded(tmp_path_factory.mktemp("sliding"), flash=True)
    yield subject(backend, 0.05, 700)
    backend.close()


def loaded(folder: Path, *, flash: bool) -> LlamaBackend:
    path = odd_models.sliding(folder / "model.gguf")
    return LlamaBackend(EngineSpec(str(path), threads=1, batch=256, gpu_layers=0, flash_attention=flash))


def goes_on(on: Subject, memory: Memory, sequence: int, ids: list[int]) -> bool:
    """As a sequence of these ids alone does."""
    at = memory.length(sequence)
    assert at == len(ids)
    seen = on.view(memory, feed(memory, sequence, on.tail, at))
    memory.remove(sequence, at, -1)
    return on.same(seen, on.fresh(ids + on.tail))


def test_it_has_ranges_with_flash_attention_and_none_without(sliding: Subject, tmp_path: Path) -> None:
    plain = loaded(tmp_path, flash=False)
    assert (sliding.backend.info.ranges, plain.info.ranges) == (True, False)
    plain.close()


@pytest.mark.parametrize("cut", [5, WINDOW - 1, WINDOW, WINDOW + 1, 300, 699])
def test_a_beginning_of_any_length_goes_on_though_others_filled_the_memory_since(sliding: Subject, cut: int) -> None:
    memory = sliding.open(CELLS, SEQUENCES)
    feed(memory, 3, sliding.floor[:100])
    feed(memory, 0, sliding.floor)
    memory.remove(3, 0, -1)  # a hole in front: what comes next begins there, and goes on over the oldest cells
    feed(memory, 4, (sliding.other * 20)[:300])
    memory.copy(0, 1, 0, cut)
    assert goes_on(sliding, memory, 1, sliding.floor[:cut])
    memory.close()


def test_a_step_longer_than_the_window_loses_nothing(sliding: Subject) -> None:
    memory = sliding.open(CELLS, SEQUENCES)
    feed(memory, 0, sliding.floor, chunk=4 * WINDOW)
    feed(memory, 4, (sliding.other * 20)[:300], chunk=4 * WINDOW)
    memory.copy(0, 1, 0, 2 * WINDOW)
    assert goes_on(sliding, memory, 1, sliding.floor[: 2 * WINDOW])
    memory.close()


def test_cells_that_nobody_holds_any_more_are_free(sliding: Subject) -> None:
    memory = sliding.open(512, SEQUENCES)
    for _ in range(3):
        feed(memory, 0, sliding.floor[:400])
        memory.copy(0, 1, 0, 300)
        memory.remove(0, 0, -1)
        feed(memory, 1, sliding.other, 300)
        memory.remove(1, 0, -1)
    feed(memory, 2, (sliding.floor * 2)[: memory.cells])
    with pytest.raises(BackendError):
        feed(memory, 2, [1], memory.cells)
    memory.close()


def test_a_damaged_piece_restores_nothing_and_leaves_no_cell(sliding: Subject) -> None:
    memory = sliding.open(CELLS, SEQUENCES)
    feed(memory, 0, sliding.floor)
    state = memory.save(0)
    memory.close()
    memory = sliding.open(512, SEQUENCES)  # the last pieces find no room
    assert memory.restore(1, state) == 0
    assert memory.length(1) == memory.count(1) == 0
    feed(memory, 2, sliding.floor[: memory.cells])
    memory.close()


@pytest.mark.parametrize("cut", [4, 1000, -200, -1])
def test_a_state_that_is_cut_off_is_never_taken_for_whole_and_leaves_no_cell(sliding: Subject, cut: int) -> None:
    memory = sliding.open(CELLS, SEQUENCES)
    feed(memory, 0, sliding.floor)
    state = memory.save(0)
    memory.remove(0, 0, -1)
    assert memory.restore(1, state[:cut]) < len(sliding.floor)
    memory.remove(1, 0, -1)
    feed(memory, 2, (sliding.floor * 2)[: memory.cells])
    memory.close()


@dataclass
class Life:
    """Random work on one memory; `held` is what each sequence must hold."""

    on: Subject
    chance: random.Random
    cells: int = CELLS
    longest: int = 150  # tokens that are computed at once
    held: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = self.on.open(self.cells, SEQUENCES)

    def step(self) -> None:
        sequence, other = self.chance.sample(range(SEQUENCES), 2)
        mine, theirs = self.held.get(sequence, []), self.held.get(other, [])
        match self.chance.choice(["feed", "feed", "fork", "cut", "drop", "carry"]):
            case "feed" if sum(map(len, self.held.values())) + self.longest < self.cells:
                new = [self.chance.randrange(300, 3800) for _ in range(self.chance.randint(1, self.longest))]
                feed(self.memory, sequence, new, len(mine), chunk=self.chance.choice([64, 256]))
                self.held[sequence] = mine + new
            case "fork" if theirs and not mine:
                end = self.chance.randint(1, len(theirs))
                self.memory.copy(other, sequence, 0, end)
                self.held[sequence] = theirs[:end]
            case "cut" if len(mine) > 1:
                end = self.chance.randint(1, len(mine) - 1)
                self.memory.remove(sequence, end, -1)
                self.held[sequence] = mine[:end]
            case "drop" if mine:
                self.memory.remove(sequence, 0, -1)
                self.held[sequence] = []
            case "carry" if mine:
                state = self.memory.save(sequence)
                self.memory.remove(sequence, 0, -1)
                assert self.memory.restore(sequence, state) == len(mine)


@pytest.mark.parametrize("seed", range(12))
def test_after_any_work_each_sequence_holds_all_of_its_own(sliding: Subject, seed: int) -> None:
    check(Life(sliding, random.Random(seed)), steps=60)


@pytest.mark.parametrize("window", [128, 512, 1024])
def test_it_does_so_with_the_windows_that_models_have(models: Path, window: int) -> None:
    """In the shape of Gemma 3: one layer of six sees everything, four heads of 256 a KV head, 262,144 words."""
    path = shaped(replace(GEMMA, width=64, window=window), models)
    backend = LlamaBackend(EngineSpec(str(path), threads=1, batch=256, gpu_layers=0, flash_attention=True))
    check(Life(subject(backend, 0.05, 700), random.Random(window), 3 * window, 5 * window // 4), steps=8)
    backend.close()


def check(life: Life, steps: int) -> None:
    for _ in range(steps):
        life.step()
    for sequence, ids in life.held.items():
        assert life.memory.count(sequence) == life.memory.length(sequence) == len(ids)
        assert not ids or goes_on(life.on, life.memory, sequence, ids)
    for sequence in life.held:
        life.memory.remove(sequence, 0, -1)
    feed(life.memory, 0, [300 + n % 3000 for n in range(life.cells)])
    life.memory.close()


def test_a_hole_in_a_long_sequence_is_found_though_each_count_looks_at_two_pieces(
    sliding: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = sliding.open(CELLS, SEQUENCES)
    feed(memory, 0, sliding.floor)
    monkeypatch.setattr("orchestrator.engine.llama.windows.COUNTED", 2 * CELLS)
    rounds = range(-(-len(sliding.floor) // WINDOW // 2))
    assert {memory.count(0) for _ in rounds} == {len(sliding.floor)}
    memory.remove(0, 300, 310)
    assert {memory.count(0) for _ in rounds} == {len(sliding.floor), len(sliding.floor) - 10}
    memory.close()
