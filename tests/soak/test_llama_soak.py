"""Long random lives of the engine on llama.cpp: every answer right, laws kept, memory and handles given back."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import odd_models
from support.driven import Driven
from support.lives import EVERY, OPERATIONS, SEED, begin, corrupt, held, leaked, step, tell
from support.vaults import code

from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import Cancel, Grant, Outcome
from orchestrator.engine.model import EngineSpec

LINE = "The access code of vault {} north is"
PARTS = [range(10, 22), range(40, 52), range(70, 82)]
ODD_LENGTH = max(150, OPERATIONS * 3 // 40)


ON_LLAMA = {
    "ask": 30, "follow": 10, "rounds": 30, "cancel": 4, "drop": 2, "grant": 4, "evict": 2, "restart": 2, "kill": 2,
    "corrupt": 4,
}  # fmt: skip


class Life:
    """The same on llama.cpp and the quoting model, where each right answer is known from the codex."""

    def __init__(self, backend: LlamaBackend, folder: Path, seed: int) -> None:
        self.chance, self.done, self.folder, self.number = random.Random(seed), Counter[str](), folder, 0
        self.driven = Driven(backend, cells=3072, window=1024, sequences=6, folder=folder, batch=256)
        texts = ["".join(f"{LINE.format(n)}{code(n)}\n" for n in part) for part in PARTS]
        self.floors = {f"code{n}": list(ids) for n, ids in enumerate(backend.encode(texts, control=False))}
        self.asked: dict[int, tuple[str, str, int]] = {}  # floor, the whole tail, the vault

    def ask(self) -> None:
        self._ask(self.chance.randrange(len(PARTS)), "")

    def follow(self) -> None:
        over = [n for n, end in self.driven.ends.items() if end.outcome is Outcome.DONE and len(self.asked[n][1]) < 400]
        if over:
            before = self.chance.choice(over[-5:])
            floor, tail, _ = self.asked[before]
            self._ask(int(floor[-1]), f"{tail}{self.driven.text(before)}\n")

    def _ask(self, part: int, begun: str) -> None:
        self.number += 1
        name, vault = f"code{part}", self.chance.choice(PARTS[part])
        self.asked[self.number] = name, begun + LINE.format(vault), vault
        if name not in self.driven.floors:
            self.driven.floor(name, self.floors[name])
        (tail,) = self.driven.backend.encode([self.asked[self.number][1]], control=False)
        self.driven.ask(self.number, name, tail, 12, owner=1 + self.number % 2)

    def rounds(self) -> None:
        for _ in range(self.chance.randint(1, 10)):
            self.driven.round()

    def cancel(self) -> None:
        self.driven.loop.handle(Cancel(max(1, self.number - self.chance.randrange(3))))

    def drop(self) -> None:
        self.driven.drop(f"code{self.chance.randrange(len(PARTS))}")

    def grant(self) -> None:
        self.driven.loop.handle(Grant(2, self.chance.choice([1280, 3072]), 1024))

    def evict(self) -> None:
        for pool in self.driven.loop.pools.by_name.values():
            while (tip := pool.tree.stalest()) is not None and self.chance.random() < 0.8:
                pool.tree.evict(tip)

    def restart(self) -> None:
        self.driven.finish()
        self.driven.restart()

    def kill(self) -> None:
        self.driven.finish()
        self.driven.kill()

    def corrupt(self) -> None:
        corrupt(self.chance, self.folder)

    def step(self) -> None:
        step(self, self.chance, ON_LLAMA, self.done)
        self.driven.loop.check()


@pytest.fixture(scope="module")
def quoter(quoter_model: Path) -> Iterator[LlamaBackend]:
    backend = LlamaBackend(EngineSpec(str(quoter_model), threads=1, batch=256, gpu_layers=0))
    yield backend
    backend.close()


def test_a_life_on_the_real_model_answers_right_and_gives_its_memory_back(quoter: LlamaBackend, tmp_path: Path) -> None:
    begin()
    before, footprint = held(), 0
    life = Life(quoter, tmp_path / "kv", SEED)
    for number in range(OPERATIONS):
        life.step()
        if number == OPERATIONS // 3:
            footprint = psutil.Process().memory_info().rss
    life.driven.loop.handle(Grant(3, 3072, 1024))
    life.driven.finish()
    tell("on llama.cpp", life.done)
    assert set(life.done) == EVERY
    assert set(life.driven.ends) == set(life.asked)
    done = [ticket for ticket, end in life.driven.ends.items() if end.outcome is Outcome.DONE]
    assert len(done) > len(life.asked) / 2
    assert {ticket: life.driven.text(ticket) for ticket in done} == {
        ticket: code(life.asked[ticket][2]) for ticket in done
    }
    assert life.driven.loop.audit() is False
    assert psutil.Process().memory_info().rss - footprint < 64 << 20
    life.driven.close()
    assert not leaked(before)


@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "sliding", "sliding in ranges", "sliding small"])
def test_a_life_on_a_memory_of_another_kind_keeps_its_laws(kind: str, tmp_path: Path) -> None:
    """Random weights say nothing that is known beforehand; laws, ends and what is held are."""
    name, _, windows = kind.partition(" ")
    path = getattr(odd_models, name)(tmp_path / "model.gguf")
    backend = LlamaBackend(EngineSpec(str(path), threads=1, batch=256, gpu_layers=0, **odd_models.WINDOWS[windows]))
    begin()
    life = Life(backend, tmp_path / "kv", SEED)
    for _ in range(ODD_LENGTH):
        life.step()
    life.driven.loop.handle(Grant(3, 3072, 1024))
    life.driven.finish()
    tell(f"on a {kind} model", life.done)
    assert set(life.driven.ends) == set(life.asked)
    assert life.driven.loop.audit() is False
    assert any(end.outcome is Outcome.DONE and end.cached for end in life.driven.ends.values())
    life.driven.close()
    backend.close()
