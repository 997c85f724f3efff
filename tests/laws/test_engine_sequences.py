"""More running answers than sequences: the pool gets more where the grant bears it, and no answer is another for it."""

from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.charging import ChargedMachine, Prices
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.cache.sizes import MOST_SEQUENCES, ROUND, Growth, Scale, Size
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.messages import Admitted, Grant, Outcome
from orchestrator.engine.scheduler.planner import Limits

FLOOR = [at % 50 for at in range(300)]
BYTES = 8  # of KV, a token of the fake

# ---- the arithmetic --------------------------------------------------------------------------------------------------

sizes = st.builds(Size, st.integers(1, 40).map(lambda rounds: rounds * ROUND), st.integers(2, 300))
wishes = st.builds(Size, st.integers(0, 20_000), st.integers(0, 400))


@st.composite
def scales(draw: st.DrawFn) -> Scale:
    base = draw(st.integers(2, 64))
    return Scale(base, draw(st.integers(base, MOST_SEQUENCES)), draw(st.sampled_from([0.0, 0.3, 1.0, 7.5, 49.0])))


@given(scales(), sizes, wishes, st.integers(0, 5000))
def test_what_a_pool_grows_to_is_enough_for_all_that_stands_and_within_the_bound(
    scale: Scale, now: Size, wanted: Size, idle: int
) -> None:
    growth = scale.grown(now, wanted, idle)
    enough = wanted.cells <= now.cells and wanted.sequences <= now.sequences
    if enough or wanted.sequences > max(scale.most, now.sequences):
        assert growth is None
        return
    assert growth is not None
    for size in (growth.least, growth.most):
        assert size.cells >= min(now.cells, wanted.cells + idle)
        assert size.cells >= wanted.cells and size.cells % ROUND == 0
        assert max(now.sequences, wanted.sequences) <= size.sequences <= max(scale.most, now.sequences)
    assert growth.most.cells >= now.cells
    assert scale.weight(growth.least) <= scale.weight(growth.most)


@given(scales(), sizes)
def test_a_context_weighs_its_cells_and_what_further_sequences_take(scale: Scale, size: Size) -> None:
    further = max(0, size.sequences - scale.sequences)
    assert size.cells + further * scale.each <= scale.weight(size) <= size.cells + further * scale.each + 1
    assert scale.weight(Size(size.cells, scale.sequences)) == size.cells


def test_a_pool_that_lacks_nothing_but_a_sequence_keeps_what_stands_and_gives_up_free_cells_where_it_must() -> None:
    growth = Scale(32, 256).grown(Size(2048, 32), Size(700, 33), 300)
    assert growth == Growth(Size(1024, 64), Size(2048, 64))


# ---- the loop --------------------------------------------------------------------------------------------------------


@dataclass
class Crowd:
    """A machine that opens pools with three sequences, of which each further one takes so many cells of the grant."""

    machine: Machine
    each: int

    def check(self) -> None:
        admission = self.machine.loop.admission
        held = sum(
            pool.memory.cells + max(0, pool.memory.sequences - 3) * self.each for pool in admission.pools.values()
        )
        assert admission.held() == held <= admission.grant.cells
        for pool in admission.pools.values():
            assert len(pool.tree.spare_sequences()) <= pool.memory.sequences - 1

    def finish(self) -> None:
        rounds = 0
        while self.machine.loop.busy():
            self.machine.round()
            self.check()
            rounds += 1
            assert rounds < 5000, "the line does not come to its end"


def crowd(cells: int, each: int, folder: Path | None = None, *, ranges: bool = True) -> Crowd:
    backend = FakeBackend(END_EVERY, ranges=ranges)
    backend.sequence_bytes = each * BYTES
    machine = Machine(cells=cells, window=2048, sequences=3, folder=folder, backend=backend)
    machine.floor("code", FLOOR)
    machine.floor("other", FLOOR[::-1])
    return Crowd(machine, each)


jobs = st.lists(
    st.tuples(
        st.sampled_from(["code", "other"]), st.lists(st.integers(1, 3), min_size=1, max_size=40), st.integers(0, 20),
        st.integers(0, 6),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=60)
@given(jobs, st.sampled_from([1024, 2048, 12_000]), st.sampled_from([0, 1, 10, 400]), st.booleans())
def test_however_many_run_every_answer_is_right_and_the_line_is_kept(
    asked: list[tuple[str, list[int], int, int]], cells: int, each: int, ranges: bool
) -> None:
    one = crowd(cells, each, ranges=ranges)
    for ticket, (floor, tail, most, rounds) in enumerate(asked, 1):
        one.machine.ask(ticket, floor, tail, most, owner=1 + ticket % 2)
        for _ in range(rounds):
            one.machine.round()
            one.check()
    one.finish()
    for ticket, (floor, tail, most, _) in enumerate(asked, 1):
        (end,) = one.machine.ends[ticket]
        assert end.outcome is Outcome.DONE
        assert one.machine.answer(ticket) == naive_answer([*one.machine.floors[floor], *tail], most)
    entered = [message.ticket for message in one.machine.told if isinstance(message, Admitted)]
    assert entered == sorted(entered), "somebody was overtaken"


@given(st.integers(1, 31))
def test_as_many_run_at_once_as_the_grant_bears_and_the_batch_has_rows_for(tickets: int) -> None:
    one = crowd(20_000, 1)
    one.machine.backend.end_every = 10**9
    for ticket in range(1, tickets + 1):
        one.machine.ask(ticket, "code", [ticket], 200)
    one.machine.round()
    one.check()
    assert one.machine.loop.snapshot().waiting == 0
    assert one.machine.loop.admission.pools["code"].memory.sequences <= one.machine.batch // 2


def test_where_half_of_the_batch_is_full_of_answers_the_next_one_waits() -> None:
    one = crowd(40_000, 0)
    one.machine.backend.end_every = 10**9
    for ticket in range(1, 41):
        one.machine.ask(ticket, "code", [ticket], 200)
    one.machine.round()
    assert one.machine.loop.snapshot().waiting == 40 - (one.machine.batch // 2 - 1)


def test_where_the_grant_does_not_bear_the_buffers_answers_wait_for_a_sequence_as_before() -> None:
    one = crowd(1024, 400)
    for ticket in range(1, 8):
        one.machine.ask(ticket, "code", [ticket], 30)
    one.machine.round()
    assert one.machine.loop.snapshot().waiting == 5
    one.finish()
    assert one.machine.loop.admission.pools["code"].memory.sequences == 3


def test_buffers_of_further_sequences_give_way_to_a_prompt_that_needs_their_room() -> None:
    one = crowd(2048, 100)
    for ticket in range(1, 6):
        one.machine.ask(ticket, "code", [ticket], 30)
    one.finish()
    assert one.machine.loop.admission.pools["code"].memory.sequences > 3
    tail = [1] * (2048 - len(FLOOR) - 5)
    one.machine.ask(9, "code", tail, 5)
    one.finish()
    assert one.machine.answer(9) == naive_answer([*FLOOR, *tail], 5)
    assert one.machine.loop.admission.pools["code"].memory.sequences == 3


def test_a_memory_without_ranges_keeps_the_sequences_that_it_has() -> None:
    one = crowd(20_000, 1, ranges=False)
    for ticket in range(1, 8):
        one.machine.ask(ticket, "code", [ticket], 30)
    one.machine.round()
    assert one.machine.loop.snapshot().waiting == 6
    one.finish()
    assert one.machine.loop.admission.pools["code"].memory.sequences == 3


def test_a_pool_gets_sequences_beside_an_answer_that_does_not_stand_still() -> None:
    price = Prices(save=0.01, restore=0.02, open=0.1)
    machine = ChargedMachine(price, cells=8192, window=4096, sequences=3)
    machine.floor("code", FLOOR * 4)
    machine.ask(1, "code", [3], 500)
    for _ in range(30):
        machine.round()
    machine.loop.handle(Grant(2, 32_768, 4096))
    for ticket in range(2, 8):
        machine.ask(ticket, "code", [ticket], 400)
    assert max(machine.gaps(1, 40)) <= Limits(64).budget_ms / 1000 + price.piece + 0.02
    assert machine.loop.snapshot().waiting == 0
    assert machine.loop.admission.pools["code"].memory.sequences >= 8
