"""Long random lives of the engine, ending level: conservation intact, nothing leaked, every answer right."""

import random
from collections import Counter
from pathlib import Path

import psutil
import pytest
from support.lives import EVERY, OPERATIONS, SEED, begin, corrupt, held, leaked, objects, step, tell
from support.machine import Machine, naive_answer

from orchestrator.engine.messages import Cancel, DropFloor, Grant, Outcome

CODICES = {f"code{n}": [(n * 7 + at) % 50 for at in range(260 + 40 * n)] for n in range(6)}
WARM_UP = OPERATIONS * 35 // 100

ON_THE_FAKE = {
    "ask": 30, "follow": 12, "rounds": 40, "cancel": 6, "drop": 2, "grant": 3, "evict": 1, "restart": 1, "kill": 1,
    "corrupt": 4,
}  # fmt: skip


class Life:
    """One machine, and what is asked of it by chance; `jobs` remembers what each answer must be."""

    def __init__(self, folder: Path, seed: int, *, ranges: bool = True) -> None:
        self.chance, self.done = random.Random(seed), Counter[str]()
        self.folder = folder
        self.machine = Machine(folder=folder, cells=3000, window=1500, disk_budget=400_000, ranges=ranges)
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
        self.machine.loop.handle(Grant(2, self.chance.choice([768, 1536, 3072]), 1500))

    def evict(self) -> None:
        for pool in self.machine.loop.pools.by_name.values():
            while (tip := pool.tree.stalest()) is not None and self.chance.random() < 0.8:
                pool.tree.evict(tip)

    def restart(self) -> None:
        self.machine.restart()

    def kill(self) -> None:
        """The process is gone without a word; its writer's thread ends when nobody holds it."""
        store = self.machine.store
        self.machine.start()
        if store is not None:
            store.close()

    def corrupt(self) -> None:
        corrupt(self.chance, self.folder)

    def step(self) -> None:
        step(self, self.chance, ON_THE_FAKE, self.done)
        self.machine.loop.check()

    def still(self) -> None:
        """Nothing is being written."""
        if self.machine.store is not None:
            self.machine.store.flush()

    def check_answers(self) -> None:
        """Every ticket ended once, with what the naive model says."""
        for number, ends in self.machine.ends.items():
            assert len(ends) == 1
            ids, most = self.jobs[number]
            expected, got = naive_answer(ids, most), self.machine.answer(number)
            assert got == (expected if ends[0].outcome is Outcome.DONE else expected[: len(got)])


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "anchors"])
def test_random_operations_leave_everything_as_it_should_be(tmp_path: Path, ranges: bool) -> None:
    begin()
    life = Life(tmp_path / "kv", SEED, ranges=ranges)
    before, footprint = held(), 0
    for number in range(OPERATIONS):
        life.step()
        if number == WARM_UP:
            life.still()
            before, footprint = held(), psutil.Process().memory_info().rss
    life.machine.loop.handle(Grant(3, 3072, 1500))
    life.machine.finish()
    tell("on the fake", life.done)
    assert set(life.done) == EVERY
    life.check_answers()
    assert any(end.outcome is Outcome.DONE and end.cached for (end,) in life.machine.ends.values())
    assert life.machine.loop.audit() is False
    for pool in life.machine.loop.pools.by_name.values():
        state = pool.state()
        assert state.free + state.reserved + state.evictable + state.leased == state.size
        assert len(pool.memory.tokens) == state.evictable
    life.still()
    assert sum(file.stat().st_size for file in life.folder.glob("*.kv")) <= 400_000
    assert not leaked(before)
    assert psutil.Process().memory_info().rss - footprint < 64 << 20


def test_dropping_everything_at_the_end_of_a_long_life_leaves_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path / "kv", seed=2)
    for _ in range(300):
        life.step()
    life.machine.loop.handle(Grant(3, 3072, 1500))
    life.machine.finish()
    for name in CODICES:
        life.machine.loop.handle(DropFloor(name))
    assert life.machine.loop.pools.by_name == {}
    life.machine.loop.close()


def test_many_lives_of_the_same_conversations_take_no_more_memory_than_one(tmp_path: Path) -> None:
    """Objects after 40 turns of opening, asking and dropping are as many as after 10."""
    machine, counts = Machine(folder=tmp_path), {}
    for turn in range(1, 41):
        machine.floor("code", CODICES["code1"])
        for ticket in range(5):
            machine.ask(turn * 5 + ticket, "code", [ticket, 1, 2], 4)
        machine.finish()
        machine.loop.handle(DropFloor("code"))
        machine.round()
        machine.answers.clear()
        machine.ends.clear()
        machine.told.clear()
        if turn in (10, 40):
            machine.store.flush()  # what still waits for the disk is no leak
            machine.store.note_written()
            counts[turn] = objects()
    assert counts[40] - counts[10] < 300
