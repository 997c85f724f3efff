"""A failure of llama.cpp in one pool costs that pool: others go on, and what had sent nothing is answered all the same."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.failing import POISON, FailingBackend, FailingMemory
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.backend import BackendError
from orchestrator.engine.messages import Cancel, Grant, InferenceJob, Outcome, Reason, Urgency, ids_to_bytes

CODE, OTHER = [n % 50 for n in range(300)], [n % 40 + 50 for n in range(200)]


def machine(**options: int) -> Machine:
    made = Machine(backend=FailingBackend(END_EVERY), **options)
    made.floor("code", CODE)
    made.floor("other", OTHER)
    return made


class SlowToOpen(FailingBackend):
    """A context, also one that cannot be had, takes more than a round's time."""

    machine: Machine | None = None

    def open(self, cells: int, sequences: int) -> FailingMemory:
        if self.machine is not None:
            self.machine.time += 1
        return super().open(cells, sequences)


def failing(made: Machine) -> FailingBackend:
    assert isinstance(made.backend, FailingBackend)
    return made.backend


def outcome(made: Machine, ticket: int) -> tuple[Outcome, Reason]:
    (end,) = made.ends[ticket]
    return end.outcome, end.reason


def until_answering(made: Machine, ticket: int) -> None:
    while not made.answer(ticket):
        made.round()


def test_a_failed_step_ends_what_had_begun_in_its_pool_and_nothing_in_another_one() -> None:
    made = machine(batch=512)
    made.ask(1, "other", [7], 400)
    until_answering(made, 1)
    made.ask(2, "code", [4], 400)
    until_answering(made, 2)
    said = made.answer(2)[:]
    failing(made).broken = made.loop.admission.pools["code"].memory
    made.round()
    failing(made).broken = None
    made.finish()
    assert made.answer(1) == naive_answer([*OTHER, 7], 400)
    assert (outcome(made, 2), made.answer(2)) == ((Outcome.FAILED, Reason.ENGINE), said)


def test_what_had_sent_nothing_is_answered_as_if_nothing_had_happened() -> None:
    made = machine()
    made.ask(1, "code", [3], 20)
    made.round()
    failing(made).failures = 1
    made.finish()
    assert made.answer(1) == naive_answer([*CODE, 3], 20)
    (end,) = made.ends[1]
    assert (end.outcome, end.computed, end.cached) == (Outcome.DONE, 301, 0)
    assert made.loop.counters.pool_failures == 1


def test_a_poisonous_ticket_fails_alone_and_those_beside_it_are_answered() -> None:
    made = machine()
    for ticket in range(1, 7):
        made.ask(ticket, "code", [POISON] if ticket == 3 else [ticket], 10)
    made.finish()
    assert outcome(made, 3) == (Outcome.FAILED, Reason.ENGINE)
    for ticket in (1, 2, 4, 5, 6):
        assert made.answer(ticket) == naive_answer([*CODE, ticket], 10)


def test_a_ticket_handed_in_again_after_a_crash_is_not_tried_twice_more() -> None:
    made = machine()
    made.loop.handle(InferenceJob(1, "code", ids_to_bytes([POISON]), 1, 5, replay=1))
    made.finish()
    assert outcome(made, 1) == (Outcome.FAILED, Reason.ENGINE)
    assert made.loop.counters.pool_failures == 1


def test_a_second_failure_in_a_row_with_nobody_who_was_there_before_ends_the_child() -> None:
    made = machine()
    made.ask(1, "code", [1], 400)
    until_answering(made, 1)
    failing(made).failures = 1
    made.round()
    assert outcome(made, 1)[0] is Outcome.FAILED
    failing(made).failures = 1
    made.ask(2, "code", [2], 5)
    with pytest.raises(BackendError, match="this step fails"):
        made.loop.round()


def test_a_backend_that_never_succeeds_again_ends_the_child_although_every_ticket_is_a_suspect() -> None:
    made = machine()
    for ticket in (1, 2, 3):
        made.ask(ticket, "code", [ticket], 5)
    failing(made).failures = 1000
    with pytest.raises(BackendError):
        made.finish()
    assert [ticket for ticket in (1, 2, 3) if ticket in made.ends] == [1]


def test_a_floor_that_failed_in_the_background_keeps_no_question_waiting() -> None:
    made = machine()
    made.loop.handle(InferenceJob(1, "code", b"", 0, 0, urgency=Urgency.BACKGROUND))
    made.round()
    failing(made).failures = 1
    made.round()
    made.round()
    made.ask(2, "code", [2], 3)
    made.finish()
    assert outcome(made, 1) == (Outcome.DONE, Reason.PREFILLED)
    assert made.answer(2) == naive_answer([*CODE, 2], 3)


def test_a_context_that_cannot_be_had_fails_its_ticket_and_says_so() -> None:
    made = machine()
    made.ask(1, "other", [1], 400)
    until_answering(made, 1)
    failing(made).most_cells = 0
    made.ask(2, "code", [1], 5)
    made.finish()
    assert outcome(made, 2) == (Outcome.FAILED, Reason.ENGINE)
    assert "no context of" in made.ends[2][0].detail
    assert made.answer(1) == naive_answer([*OTHER, 1], 400)


def test_where_the_machine_has_less_than_was_granted_idle_pools_make_room() -> None:
    made = machine(cells=16_384)
    made.ask(1, "other", [1], 5)
    made.finish()
    failing(made).most_cells = 700
    made.ask(2, "code", [1], 5)
    made.finish()
    assert made.answer(2) == naive_answer([*CODE, 1], 5)
    assert list(made.loop.admission.pools) == ["code"]


def test_a_ticket_called_off_while_pools_are_closed_for_it_has_the_next_one_close_none(tmp_path: Path) -> None:
    made = Machine(cells=32_768, folder=tmp_path, disk_budget=8, backend=SlowToOpen(END_EVERY))  # keeps nothing
    for name, ids in (("code", CODE), ("other", OTHER), ("third", [1] * 200)):
        made.floor(name, ids)
    slow = failing(made)
    assert isinstance(slow, SlowToOpen)
    slow.machine = made
    made.ask(1, "code", [1], 5)
    made.finish()
    made.ask(2, "other", [7], 400)
    until_answering(made, 2)
    slow.most_cells = sum(pool.memory.cells for pool in made.loop.admission.pools.values())
    made.ask(3, "third", [1], 5)
    made.round()
    assert "code" in made.loop.admission.pools, "the round had no time to close it"
    made.loop.handle(Cancel(3))
    slow.most_cells = 1 << 30
    made.ask(4, "third", [1], 5)
    made.round()
    assert {"code", "third"} <= made.loop.admission.pools.keys()
    made.finish()
    assert made.answer(4) == naive_answer([*[1] * 200, 1], 5)


def test_where_a_pool_cannot_grow_tickets_wait_for_the_one_that_runs_and_what_never_fits_fails_with_words() -> None:
    made = machine(cells=32_768, window=16_384, batch=4096)
    made.ask(1, "code", [1], 20)
    made.round()
    opened, failing(made).most_cells = failing(made).opened, made.loop.admission.held()
    made.ask(2, "code", [2] * 8200, 20)
    made.ask(3, "code", [3] * 8500, 20)
    made.finish()
    assert made.answer(2) == naive_answer([*CODE, *[2] * 8200], 20)
    assert outcome(made, 3) == (Outcome.FAILED, Reason.ENGINE)
    assert "no context of" in made.ends[3][0].detail
    assert failing(made).opened - opened <= 4, "a larger context is asked for once, not each round"


def test_a_pool_that_failed_and_cannot_be_opened_again_ends_the_child() -> None:
    made = machine()
    made.ask(1, "code", [1], 5)
    made.round()
    failing(made).failures, failing(made).most_cells = 1, 0
    made.round()
    with pytest.raises(BackendError, match="no context"):
        made.loop.round()


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(["code", "other"]), st.integers(1, 9), st.integers(0, 12)), max_size=12),
    st.lists(st.sampled_from([0, 0, 0, 1, 2]), max_size=40),
)
def test_under_any_failures_every_ticket_ends_once_and_every_answer_that_is_one_is_right(
    asks: list[tuple[str, int, int]], script: list[int]
) -> None:
    made, floors = machine(), {"code": CODE, "other": OTHER}
    for number, (floor, token, most) in enumerate(asks, start=1):
        made.ask(number, floor, [token], most)
    try:
        for failures in script:
            failing(made).failures = failures
            made.round()
        failing(made).failures = 0
        made.finish()
    except BackendError:
        return  # the process ends; what then follows is the client's
    for number, (floor, token, most) in enumerate(asks, start=1):
        (end,) = made.ends[number]
        expected = naive_answer([*floors[floor], token], most)
        assert made.answer(number) == (
            expected if end.outcome is Outcome.DONE else expected[: len(made.answer(number))]
        )
        assert end.outcome in (Outcome.DONE, Outcome.FAILED)
        assert end.outcome is Outcome.FAILED or end.computed + end.cached == end.prompt
    made.loop.handle(Grant(2, 0, 2048))
    assert made.loop.admission.pools == {}
