"""What the engine tells of its work to whoever looks on: every ticket once, every cell once."""

from hypothesis import given
from hypothesis import strategies as st
from support.machine import Machine

from orchestrator.engine.messages import Inspect
from orchestrator.engine.snapshot import CacheBranch, Inspected

FLOOR = list(range(100))


def seen(machine: Machine) -> Inspected:
    machine.loop.handle(Inspect(7))
    found = machine.told[-1]
    assert isinstance(found, Inspected)
    assert found.call == 7
    return found


def talked() -> Machine:
    """A floor, and behind it one conversation of two turns and another of one."""
    machine = Machine()
    machine.floor("demo", FLOOR)
    machine.ask(1, "demo", [1, 2, 3], 1, owner=1)
    machine.finish()
    (first,) = machine.answers[1]
    machine.ask(2, "demo", [1, 2, 3, first, 5], 1, owner=1)
    machine.ask(3, "demo", [9, 9], 1, owner=2)
    machine.finish()
    return machine


def test_turns_of_one_conversation_are_one_branch_below_their_floor():
    (cache,) = seen(talked()).caches
    floor, *talks = cache.branches
    assert floor == CacheBranch(depth=0, start=0, tokens=100, computed=100, private=False, used=False)
    assert [(one.depth, one.start, one.private) for one in talks] == [(1, 100, True), (1, 100, True)]
    assert sorted(one.computed for one in talks) == [2, 5]
    assert (cache.floors, cache.conversations, cache.left_out) == (100, 7, 0)


def test_what_runs_comes_before_what_waits_and_each_that_waits_has_its_place():
    machine = Machine(sequences=3)
    machine.floor("demo", FLOOR)
    for ticket in range(1, 6):
        machine.ask(ticket, "demo", [ticket], 40, owner=ticket)
    machine.round()
    found = seen(machine).tickets
    assert sorted(one.ticket for one in found) == [1, 2, 3, 4, 5]
    running = [one for one in found if not one.place]
    assert found[: len(running)] == tuple(running)
    assert [(one.place, one.phase, one.done) for one in found[len(running) :]] == [
        (place, "waiting", 0) for place in range(1, 6 - len(running))
    ]
    assert running
    assert all(one.running_s > 0 and one.prompt == 101 for one in running)
    machine.finish()
    assert seen(machine).tickets == ()


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 6)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 6),
    st.booleans(),
)
def test_branches_hold_every_token_of_a_cache_once_and_none_is_deeper_than_the_one_above(
    asked: list[tuple[int, list[int], int]], rounds: int, ranges: bool
) -> None:
    machine = Machine(ranges=ranges)
    machine.floor("demo", FLOOR)
    for ticket, (owner, tail, most) in enumerate(asked, start=1):
        machine.ask(ticket, "demo", tail, most, owner=owner)
    for _ in range(rounds):
        machine.round()
    for cache in seen(machine).caches:
        pool = machine.loop.pools.by_name[cache.name]
        assert sum(one.computed for one in cache.branches) == cache.floors + cache.conversations == pool.cells_used()
        ends: list[int] = []
        for one in cache.branches:
            assert one.depth <= len(ends)
            ends = [*ends[: one.depth], one.start + one.tokens]
            assert one.start == (ends[one.depth - 1] if one.depth else 0)
            assert 0 <= one.computed <= one.tokens
