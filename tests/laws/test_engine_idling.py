"""Tails that nobody uses leave the cells when keeping them has cost what their return will cost, and come back whole."""

from array import array

from hypothesis import example, given
from hypothesis import strategies as st
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.checkpoints import writer as writer_module
from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.store import Tiers
from orchestrator.engine.costs import Costs
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.scheduler.idling import outstayed, walk_ms

CODE = [n % 50 for n in range(600)]


# ---- the rule --------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.floats(0.001, 1.0), max_size=60), min_size=1, max_size=10), st.floats(0.01, 10.0))
def test_it_never_costs_more_than_twice_what_the_better_choice_would_have_cost(pauses, restore_ms):
    """`pauses`: between two uses of a tail, what each step of others takes for a cell of it."""
    for steps in pauses:
        paid, there = 0.0, True
        for step in steps:
            paid += step * there
            there = there and not outstayed(paid, restore_ms)
        cost = paid + restore_ms * (not there)
        best = min(sum(steps), restore_ms)
        assert cost <= 2 * best + max(steps, default=0.0)


@given(st.integers(1, 512), st.sampled_from([1, 64]))
def test_a_cell_s_share_of_a_step_is_what_the_step_takes_longer_with_one_more(rows, tile):
    costs = Costs(tile)
    longer = costs.milliseconds(rows, 50_001) - costs.milliseconds(rows, 50_000)
    assert abs(walk_ms(costs, rows) - longer) < 1e-6


# ---- the loop --------------------------------------------------------------------------------------------------------


def two_talks(folder, ranges=True) -> Machine:
    """Conversation 1 has paused and is on disk, from where a token takes 2 ms to come back; 2 is being answered."""
    machine = Machine(folder=folder, backend=FakeBackend(END_EVERY, ranges=ranges))
    machine.tiers.brought(100_000, 200.0)
    machine.floor("code", CODE)
    machine.ask(1, "code", [1] * 300, 4)
    machine.finish()
    while machine.loop.behind():
        machine.round()
    machine.tiers.flush()
    machine.backend.end_every = machine.loop.admission.pools["code"].memory.end_every = 1 << 30
    machine.ask(2, "code", [2, 2], 200)
    machine.round()
    machine.round()
    return machine


def tail_stands(machine: Machine) -> bool:
    nodes = machine.loop.admission.pools["code"].tree.nodes()
    return any(node.owner is not None and node.ids[:2].tolist() == [1, 1] for node in nodes)


def outstay(machine: Machine) -> None:
    """Steps have taken long for each cell."""
    machine.loop.admission.pools["code"].tree.walk(1000.0)
    machine.round()


def test_a_tail_that_outstayed_goes_and_comes_back_from_its_tier_when_it_is_talked_on(tmp_path):
    machine = two_talks(tmp_path)
    assert tail_stands(machine)
    outstay(machine)
    assert not tail_stands(machine)
    talk = [*[1] * 300, *machine.answer(1), 7, 7]
    machine.ask(3, "code", talk, 1)
    while 3 not in machine.ends:
        machine.round()
    assert machine.ends[3][0].computed <= 3
    assert machine.tiers.counters.restored_tokens >= 100_300


def test_who_is_answered_and_the_floor_stay_however_long_it_takes(tmp_path):
    machine = two_talks(tmp_path)
    for _ in range(5):
        outstay(machine)
    assert 2 not in machine.ends
    assert sum(node.filled for node in machine.loop.admission.pools["code"].tree.nodes()) > len(CODE)
    machine.backend.end_every = END_EVERY
    machine.ask(3, "code", [9], 1)
    while 3 not in machine.ends:
        machine.round()
    assert machine.ends[3][0].computed == 1


def test_while_nothing_is_computed_nothing_goes(tmp_path):
    machine = two_talks(tmp_path)
    machine.finish()
    stood = sum(node.filled for node in machine.loop.admission.pools["code"].tree.nodes())
    for _ in range(100):
        machine.round()
    assert sum(node.filled for node in machine.loop.admission.pools["code"].tree.nodes()) == stood


def test_what_did_not_arrive_in_a_tier_stays_in_the_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "write", no_space)
    machine = two_talks(tmp_path)
    outstay(machine)
    assert tail_stands(machine)
    machine.ask(3, "code", [*[1] * 300, *machine.answer(1), 7, 7], 1)
    while 3 not in machine.ends:
        machine.round()
    assert machine.ends[3][0].computed <= 3


def no_space(*_):
    raise OSError(28, "No space left on device")


def test_a_memory_without_ranges_keeps_its_tails(tmp_path):
    machine = two_talks(tmp_path, ranges=False)
    outstay(machine)
    assert tail_stands(machine)


@example([(1, 1), (1, 13), (1, 1), (1, 13)])  # equal siblings, and what is restored goes on from the second of them
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30)), min_size=2, max_size=8))
def test_tails_that_come_and_go_change_no_answer(tmp_path_factory, script):
    machine = Machine(folder=tmp_path_factory.mktemp("kv"))
    machine.floor("code", CODE)
    for ticket, (talk, length) in enumerate(script, 1):
        tail = [talk] * length * 20
        machine.ask(ticket, "code", tail, 5)
        machine.finish()
        machine.tiers.flush()
        machine.loop.admission.pools["code"].tree.walk(1000.0)
        assert machine.answer(ticket) == naive_answer([*CODE, *tail], 5)


def test_what_a_restore_takes_is_foretold_by_its_bytes_until_it_was_seen():
    tiers = Tiers("root", None, 1 << 30, 0)
    tiers.keep(SegmentHeader("root", "name", "root", 0, 2, array("I", [1, 2])), bytes(1_000_000), through=False)
    assert tiers.restore_ms() == 1.0
    tiers.brought(100_000, 200.0)
    assert 1.99 < tiers.restore_ms() < 2.0
    tiers.close()
