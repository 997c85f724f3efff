"""A pool that is not what its tree says is noticed in the idle moment, told, and thrown away; nobody is answered wrong."""

import logging
import socket
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.fake_engine import FakeBackend
from support.machine import Machine, naive_answer

from orchestrator.engine.cache.conservation import LawBroken, broken, check, turn
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.child.worker import Watchdog, Worker, core_times, overrun
from orchestrator.engine.messages import Completion, Grant, InferenceJob, PutFloor, Shutdown, ids_to_bytes
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.engine.transport import Wire

FLOOR = list(range(50)) * 6


def cells_without_tokens(pool: Pool) -> None:
    pool.tree.root.children[0].computed += 1


def a_gap(pool: Pool) -> None:
    pool.tree.root.children[0].start += 1


def a_lost_sequence(pool: Pool) -> None:
    pool.tree.spare_sequences().pop()


def a_sequence_held_twice(pool: Pool) -> None:
    floor = pool.tree.root.children[0]
    floor.sequence = next(node.sequence for node in pool.tree.nodes() if node.sequence is not None)


def a_lease_nobody_gives_back(pool: Pool) -> None:
    pool.tree.lease(array("I", FLOOR), len(FLOOR), 1, len(FLOOR))


def a_sequence_that_was_cut(pool: Pool) -> None:
    pool.memory.remove(next(node.sequence for node in pool.tree.nodes() if node.sequence is not None), 290, -1)


def a_hole(pool: Pool) -> None:
    pool.memory.remove(next(node.sequence for node in pool.tree.nodes() if node.sequence is not None), 100, 110)


def cells_of_a_spare_sequence(pool: Pool) -> None:
    pool.memory.copy(next(iter(pool.tree.members(pool.tree.root))), pool.tree.spare_sequences()[0], 0, 10)


def padding_that_was_left(pool: Pool) -> None:
    pool.memory.copy(next(iter(pool.tree.members(pool.tree.root))), pool.scratch, 0, 10)


FAULTS = [
    cells_without_tokens, a_gap, a_lost_sequence, a_sequence_held_twice, a_lease_nobody_gives_back,
    a_sequence_that_was_cut, a_hole, cells_of_a_spare_sequence, padding_that_was_left,
]  # fmt: skip


@pytest.fixture
def machine() -> Machine:
    """One floor and two tails stand, and nobody runs."""
    machine = Machine()
    machine.floor("code", FLOOR)
    for ticket in (1, 2):
        machine.ask(ticket, "code", [ticket] * 5, 3)
        machine.finish()
    return machine


def pool_of(machine: Machine) -> Pool:
    return machine.loop.pools.by_name["code"]


def test_a_sound_pool_breaks_no_law(machine: Machine) -> None:
    assert broken(pool_of(machine)) == ""
    assert machine.loop.audit() is False


@pytest.mark.parametrize("spoil", FAULTS)
def test_each_broken_law_is_noticed_told_and_counted_and_the_next_answer_is_right(
    machine: Machine, spoil: Callable[[Pool], None], caplog: pytest.LogCaptureFixture
) -> None:
    spoil(pool_of(machine))
    assert machine.loop.audit() is True
    assert "is discarded, because its cells break a law" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    assert machine.loop.snapshot().counters["broken_pools"] == 1
    assert machine.loop.pools.by_name == {}
    machine.ask(3, "code", [1] * 5, 6)
    machine.finish()
    assert machine.answer(3) == naive_answer([*FLOOR, *[1] * 5], 6)


@pytest.mark.parametrize("sequences", [0, 1, 3, 7])
@pytest.mark.parametrize("most", [1, 2, 64])
def test_in_a_pool_too_large_for_one_idle_moment_each_sequence_is_counted_in_its_turn(
    sequences: int, most: int
) -> None:
    held = list(range(sequences))
    turns = [turn(held, most, moment) for moment in range(2, 2 + -(-sequences // most))]
    assert {one for some in turns for one in some} == set(held)
    assert all(len(some) <= most for some in turns)


def test_a_broken_law_stops_a_test_at_once(machine: Machine) -> None:
    cells_without_tokens(pool_of(machine))
    with pytest.raises(LawBroken, match="more cells than tokens"):
        check(pool_of(machine))


@contextmanager
def running(wire: Wire) -> Iterator[Worker]:
    """The child's own loop and frontend, in threads of this process."""
    worker = Worker(FakeBackend(), EngineSpec("fake", threads=1), wire, Watchdog(time.monotonic, overrun), core_times())
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker._forward(Shutdown())
        thread.join(timeout=60)


def test_the_running_child_looks_for_broken_laws_whenever_it_has_nothing_to_do() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    heard = wire.receive()
    with ours, running(Wire(theirs)) as worker:
        wire.send([Grant(1, 4096, 2048), PutFloor("code", ids_to_bytes(FLOOR))])
        wire.send([InferenceJob(1, "code", ids_to_bytes([1, 2]), 1, 3)])
        assert any(isinstance(message, Completion) for message in heard)
        next(message for message in heard if isinstance(message, EngineSnapshot) and message.running == 0)
        padding_that_was_left(worker._loop.pools.by_name["code"])
        wire.send([Grant(1, 4096, 2048)])
        told = next(m for m in heard if isinstance(m, EngineSnapshot) and m.counters["broken_pools"])
        assert told.pools == ()
