"""Long random lives of the engine, ending level: conservation intact, nothing leaked, every answer right."""

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path

import psutil
from support.machine import Machine, naive_answer

from orchestrator.engine.llama import LlamaBackend
from orchestrator.engine.loop import Loop
from orchestrator.engine.messages import (
    Cancel,
    Completion,
    Delta,
    DropFloor,
    Grant,
    Job,
    Outcome,
    PutFloor,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.plan import Limits
from orchestrator.engine.tiers import Tiers

CODICES = {f"code{n}": [(n * 7 + at) % 50 for at in range(260 + 40 * n)] for n in range(6)}
OPERATIONS, WARM_UP = 2000, 700


class Life:
    """One machine, and what is asked of it by chance; `jobs` remembers what each answer must be."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.machine = Machine(folder=folder, cells=3000, window=1500, ram_budget=60_000, disk_budget=400_000)
        self.jobs: dict[int, tuple[list[int], int]] = {}
        self.number = 0

    def ask(self) -> None:
        name = self.chance.choice(sorted(CODICES))
        tail = [self.chance.randint(1, 2) for _ in range(self.chance.randint(1, 60))]
        self.machine.floor(name, CODICES[name])
        self.number += 1
        self.jobs[self.number] = ([*CODICES[name], *tail], self.chance.randint(0, 20))
        self.machine.ask(self.number, name, tail, self.jobs[self.number][1], owner=self.chance.randint(1, 3))

    def follow(self) -> None:
        done = [number for number, ends in self.machine.ends.items() if ends[0].outcome is Outcome.DONE]
        if not done:
            return
        before = self.chance.choice(done[-20:])
        ids, _ = self.jobs[before]
        name = next(name for name, floor in CODICES.items() if ids[: len(floor)] == floor and len(ids) > len(floor))
        tail = [*ids[len(CODICES[name]) :], *self.machine.answer(before), 9][:600]
        self.machine.floor(name, CODICES[name])
        self.number += 1
        self.jobs[self.number] = ([*CODICES[name], *tail], 5)
        self.machine.ask(self.number, name, tail, 5, owner=self.chance.randint(1, 3))

    def rounds(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            self.machine.round()

    def cancel(self) -> None:
        self.machine.loop.handle(Cancel(self.chance.randint(1, max(1, self.number))))

    def drop(self) -> None:
        name = self.chance.choice(sorted(CODICES))
        self.machine.loop.handle(DropFloor(name))
        self.machine.floors.pop(name, None)

    def grant(self) -> None:
        self.machine.loop.handle(Grant(2, self.chance.choice([700, 1500, 3000]), 1500))

    def restart(self) -> None:
        self.machine.restart()

    def kill(self) -> None:
        """The process is gone without a word; its writer's thread ends when nobody holds it."""
        tiers = self.machine.tiers
        self.machine.start()
        if tiers is not None:
            tiers.close()

    def corrupt(self) -> None:
        files = sorted(self.folder.glob("*.kv"))
        if files:
            path = self.chance.choice(files)
            data = bytearray(path.read_bytes())
            data[self.chance.randrange(len(data))] ^= 1 + self.chance.randrange(255)
            path.write_bytes(data[: self.chance.choice([len(data), len(data) // 2])])

    def step(self) -> None:
        weights: dict[Callable[[], None], int] = {
            self.ask: 30, self.follow: 12, self.rounds: 40, self.cancel: 6, self.drop: 2, self.grant: 4,
            self.restart: 1, self.kill: 1, self.corrupt: 4,
        }  # fmt: skip
        self.chance.choices(list(weights), list(weights.values()))[0]()
        self.machine.loop.check()

    def still(self) -> None:
        """Nothing is being written."""
        if self.machine.tiers is not None:
            self.machine.tiers.flush()

    def check_answers(self) -> None:
        """Every ticket ended once, with what the naive model says."""
        for number, ends in self.machine.ends.items():
            assert len(ends) == 1
            ids, most = self.jobs[number]
            expected, got = naive_answer(ids, most), self.machine.answer(number)
            assert got == (expected if ends[0].outcome is Outcome.DONE else expected[: len(got)])


def measures() -> tuple[int, int, int]:
    """Descriptors, threads, and Python objects of this process."""
    gc.collect()
    process = psutil.Process()
    return process.num_fds(), process.num_threads(), len(gc.get_objects())


def test_two_thousand_random_operations_leave_everything_as_it_should_be(tmp_path: Path) -> None:
    life = Life(tmp_path / "kv", seed=int(os.environ.get("LORE_SOAK_SEED", "1")))
    before = (0, 0, 0)
    for number in range(OPERATIONS):
        life.step()
        if number == WARM_UP:
            life.still()
            before = measures()
    life.machine.loop.handle(Grant(3, 3000, 1500))
    life.machine.finish()
    life.check_answers()
    assert any(end.outcome is Outcome.DONE and end.cached for (end,) in life.machine.ends.values())
    for pool in life.machine.loop.admission.pools.values():
        state = pool.state()
        assert state.free + state.reserved + state.evictable + state.leased == state.size
        assert state.leased == 0
        assert len(pool.memory.tokens) == state.evictable
    assert sum(file.stat().st_size for file in life.folder.glob("*.kv")) <= 400_000
    life.still()
    assert measures()[:2] == before[:2]


def test_dropping_everything_at_the_end_of_a_long_life_leaves_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path / "kv", seed=2)
    for _ in range(300):
        life.step()
    life.machine.loop.handle(Grant(3, 3000, 1500))
    life.machine.finish()
    for name in CODICES:
        life.machine.loop.handle(DropFloor(name))
    assert life.machine.loop.admission.pools == {}
    life.machine.loop.close()


def test_many_lives_of_the_same_conversations_take_no_more_memory_than_one(tmp_path: Path) -> None:
    """Objects after 40 turns of opening, asking and dropping are as many as after 10."""
    machine, counts = Machine(folder=tmp_path, ram_budget=50_000), []
    for turn in range(40):
        machine.floor("code", CODICES["code1"])
        for ticket in range(5):
            machine.ask(turn * 5 + ticket, "code", [ticket, 1, 2], 4)
        machine.finish()
        machine.loop.handle(DropFloor("code"))
        machine.round()
        machine.answers.clear()
        machine.ends.clear()
        counts.append(measures()[2])
    assert counts[-1] - counts[9] < 300


def test_a_life_on_the_real_model_answers_right_and_gives_its_memory_back(quoter_model: Path, tmp_path: Path) -> None:
    backend = LlamaBackend(EngineSpec(str(quoter_model), threads=1, batch=256, gpu_layers=0))
    chance, texts = random.Random(3), dict[int, str]()
    ends: dict[int, Completion] = {}

    def hear(messages: list[object]) -> None:
        for message in messages:
            if isinstance(message, Delta):
                texts[message.ticket] = texts.get(message.ticket, "") + message.text
            elif isinstance(message, Completion):
                ends[message.ticket] = message

    def code(vault: int) -> str:
        return f" {random.Random(vault).randrange(10**6, 10**7)}."

    def new_loop() -> Loop:
        clock = iter(range(10**9))
        tiers = Tiers("root", tmp_path / "kv", 1 << 20, 1 << 26)
        loop = Loop(backend, 6, Limits(256), hear, lambda: next(clock) / 1000, tiers)
        loop.handle(Grant(1, 6000, 3000))
        for number, floor in enumerate(floors):
            loop.handle(PutFloor(f"code{number}", ids_to_bytes(floor)))
        return loop

    def finish(loop: Loop) -> None:
        while loop.busy():
            loop.round()
            loop.check()

    parts = [range(10, 30), range(40, 60)]
    line = "The access code of vault {} north is"
    floors = backend.encode(["".join(f"{line.format(n)}{code(n)}\n" for n in part) for part in parts], control=False)
    loop, asked = new_loop(), dict[int, int]()
    footprint = 0
    for ticket in range(1, 61):
        number = chance.randrange(2)
        asked[ticket] = chance.choice(parts[number])
        (tail,) = backend.encode([line.format(asked[ticket])], control=False)
        loop.handle(Job(ticket, f"code{number}", ids_to_bytes(tail), 1, 12))
        for _ in range(chance.randrange(4)):
            loop.round()
            loop.check()
        if chance.random() < 0.1:
            loop.handle(Cancel(ticket))
        if chance.random() < 0.1:
            finish(loop)
            loop.handle(Grant(1, chance.choice([2000, 6000]), 3000))
        if chance.random() < 0.05:
            finish(loop)
            loop.close()
            for name in list(loop.admission.pools):
                loop.admission.close(name)
            loop = new_loop()
        if ticket == 20:
            footprint = psutil.Process().memory_info().rss
    finish(loop)
    loop.close()
    done = [ticket for ticket, end in ends.items() if end.outcome is Outcome.DONE]
    assert set(ends) == set(asked)
    assert len(done) > 40
    assert all(texts[ticket] == code(asked[ticket]) for ticket in done)
    assert psutil.Process().memory_info().rss - footprint < 64 << 20
    for name in list(loop.admission.pools):
        loop.admission.close(name)
    backend.close()
