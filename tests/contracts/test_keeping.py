"""What every kind of memory's keeper does for the loop, on the exact fake: ranges, states that join, states of one size."""

from array import array

import pytest
from support.fake_engine import FakeBackend
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.messages import Cancel, DropFloor

CODE = [n % 50 for n in range(600)]
KINDS = {"ranges": {}, "joined": {"ranges": False}, "constant": {"ranges": False, "constant": True}}


@pytest.fixture(params=KINDS)
def machine(request, tmp_path) -> Machine:
    made = Machine(folder=tmp_path, backend=FakeBackend(END_EVERY, **KINDS[request.param]))
    made.floor("code", CODE)
    return made


def computed(machine: Machine, ticket: int, tail: list[int]) -> int:
    """Tokens that a question computes, whose answer is right."""
    machine.ask(ticket, "code", tail, 5)
    machine.finish()
    assert machine.answer(ticket) == naive_answer([*CODE, *tail], 5)
    return machine.ends[ticket][0].computed


def test_what_was_computed_is_there_for_the_next_process(machine):
    assert computed(machine, 1, [1, 2, 3]) == len(CODE) + 3
    machine.restart()
    assert computed(machine, 2, [4, 5]) == 2


def test_what_waits_to_be_saved_is_saved_slice_by_slice_and_then_nothing_waits(machine):
    computed(machine, 1, [1, 2, 3])
    keeper = machine.loop.checkpoints
    while before := keeper.pending():
        keeper.work(deadline=0.0)
        assert keeper.pending() < before


def answering(machine: Machine, tail: list[int], tokens: int) -> None:
    """Ticket 1 has said so many tokens and is not at its end."""
    machine.backend.end_every = 1 << 30
    machine.ask(1, "code", tail, 500)
    while len(machine.answer(1)) < tokens:
        machine.round()
    assert not machine.ends


def killed(machine: Machine) -> None:
    """A process that ends without a word; what its writer had in hand is written."""
    machine.store.flush()
    machine.backend.end_every = END_EVERY
    machine.start()


def test_a_floor_outlives_a_kill_in_the_midst_of_the_answer_that_it_was_computed_for(machine):
    answering(machine, [1, 2, 3], 40)
    killed(machine)
    assert computed(machine, 2, [4, 5]) == 2


def test_a_floor_and_the_question_outlive_a_kill_after_the_answer_was_called_off(machine):
    answering(machine, [1, 2, 3], 1)
    machine.loop.handle(Cancel(1))
    while machine.loop.has_idle_work():
        machine.round()
    killed(machine)
    assert computed(machine, 2, [1, 2, 3, 4, 5]) == 2


def test_half_a_floor_outlives_a_kill_after_its_prefill_was_called_off(machine):
    machine.ask(1, "code", [1, 2, 3], 5)
    for _ in range(5):
        machine.round()
    machine.loop.handle(Cancel(1))
    while machine.loop.has_idle_work():
        machine.round()
    killed(machine)
    assert computed(machine, 2, [4, 5]) == len(CODE) + 2 - machine.ends[1][0].computed < len(CODE)


def test_a_floor_that_is_forgotten_is_computed_again(machine):
    computed(machine, 1, [1, 2, 3])
    machine.loop.handle(DropFloor("code"))
    machine.round()
    machine.restart()
    assert computed(machine, 2, [4, 5]) == len(CODE) + 2


def test_a_floor_that_is_dropped_in_the_midst_of_its_answer_leaves_nothing_to_be_saved(machine, tmp_path):
    answering(machine, [1, 2, 3], 1)
    machine.loop.handle(DropFloor("code"))
    while machine.loop.has_idle_work():
        machine.round()
    machine.store.flush()
    assert list(tmp_path.glob("*.kv")) == []


BASE = CODE[:512]  # a floor that the other one goes on from; its end is a cut


def both_kept(machine: Machine, tail: list[int], tokens: int) -> None:
    """The shorter floor first, with a question about it or none, then the longer one."""
    machine.floor("base", BASE)
    machine.ask(1, "base", tail, tokens)
    machine.finish()
    computed(machine, 2, [1, 2, 3])
    written(machine)


def written(machine: Machine) -> None:
    while machine.loop.has_idle_work():
        machine.round()
    machine.store.flush()


def dropped(machine: Machine, name: str) -> None:
    """By a process that then is killed: what stands in its cells is not written again."""
    machine.loop.handle(DropFloor(name))
    del machine.floors[name]
    killed(machine)


def test_a_floor_that_is_dropped_takes_its_conversations_with_it_and_leaves_a_longer_floor(machine):
    both_kept(machine, [7] * 40, 5)
    dropped(machine, "base")
    assert computed(machine, 3, [4, 5]) == 2
    machine.floor("base", BASE)
    machine.ask(4, "base", [7] * 40, 5)
    machine.finish()
    assert machine.ends[4][0].computed == 40


def test_a_longer_floor_that_is_dropped_leaves_the_shorter_one_of_which_nobody_asked(machine):
    both_kept(machine, [], 0)
    dropped(machine, "code")
    machine.ask(3, "base", [4, 5], 5)
    machine.finish()
    assert machine.answer(3) == naive_answer([*BASE, 4, 5], 5)
    assert machine.ends[3][0].computed == 2


def test_of_two_equal_floors_one_is_dropped_and_nothing_goes(machine):
    computed(machine, 1, [1] * 30)
    machine.floor("twin", CODE)
    written(machine)
    dropped(machine, "twin")
    assert computed(machine, 2, [*[1] * 30, *machine.answer(1), 9]) <= 2


def test_of_no_floor_at_all_nothing_is_forgotten(machine):
    computed(machine, 1, [1, 2, 3])
    machine.floor("nothing", [])
    written(machine)
    dropped(machine, "nothing")
    assert computed(machine, 2, [4, 5]) == 2


def test_what_of_a_pool_counts_as_kept_comes_back_and_nothing_else(machine):
    talk = []
    for ticket in range(1, 5):
        talk += [ticket] * 20
        computed(machine, ticket, talk)
        talk += machine.answer(ticket)
    written(machine)
    pool, prompt = machine.loop.pools.by_name["code"], [*CODE, *talk, 9]
    kept = machine.loop.checkpoints.saved(pool)
    assert any(kept.values())
    tip, _ = pool.tree.match(array("I", prompt), 1)
    machine.loop.pools.discard("code")
    end = max(node.start + kept.get(node, 0) for node in tip.path())
    assert computed(machine, 5, [*talk, 9]) == len(prompt) - end


def test_damaged_files_are_misses(machine, tmp_path):
    computed(machine, 1, [1, 2, 3])
    machine.loop.close()
    for file in tmp_path.glob("*.kv"):
        file.write_bytes(file.read_bytes()[:-9] + b"unreadable")
    machine.start()
    assert computed(machine, 2, [4, 5]) == len(CODE) + 2
