"""Who fills a node that several tickets wait for, and when; and everybody gets the answer that is wanted."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machine import Machine, naive_answer

from orchestrator.engine.messages import Cancel, InferenceJob, Outcome, Urgency, ids_to_bytes
from orchestrator.engine.scheduler.ticket import Phase, Ticket

CODE = [n % 50 for n in range(300)]
MOST = 9
TAIL = next([token] for token in range(100) if len(naive_answer([*CODE, token], MOST)) > 2)


def beside_the_background(most: int) -> Machine:
    """A question that goes on from a background ticket's prompt, asked while that is computed."""
    made = Machine()
    made.floor("code", CODE)
    made.loop.handle(InferenceJob(1, "code", ids_to_bytes(TAIL), 1, most, urgency=Urgency.BACKGROUND))
    made.round()
    made.ask(2, "code", [*TAIL, 3], MOST)
    made.finish()
    return made


@pytest.mark.parametrize("most", [0, MOST])
def test_a_question_is_answered_that_goes_on_from_what_the_background_computes(most: int) -> None:
    made = beside_the_background(most)
    assert made.answer(2) == naive_answer([*CODE, *TAIL, 3], MOST)
    (first,), (second,) = made.ends[1], made.ends[2]
    assert (first.outcome, second.outcome) == (Outcome.DONE, Outcome.DONE)
    assert first.computed + second.computed == len(CODE) + len(TAIL) + 1, "nothing is computed twice"


def test_a_background_ticket_that_wants_an_answer_gets_it_although_a_question_needs_its_last_token() -> None:
    made = beside_the_background(MOST)
    assert made.answer(1) == naive_answer([*CODE, *TAIL], MOST)


LONG = [at % 41 for at in range(900)]
OTHER = [at % 37 + 50 for at in range(1500)]


def three(most: int) -> Machine:
    """A long background prompt, a question that goes on from it, and one that shares nothing with them."""
    made = Machine(cells=16384, window=4096)
    made.floor("code", CODE)
    made.loop.handle(InferenceJob(1, "code", ids_to_bytes(LONG), 1, most, urgency=Urgency.BACKGROUND))
    made.round()
    made.ask(2, "code", [*LONG, 3], MOST)
    made.ask(3, "code", OTHER, MOST)
    return made


def until_answered(made: Machine, ticket: int) -> None:
    rounds = 0
    while not made.answer(ticket) and ticket not in made.ends:
        made.round()
        made.loop.flush()
        rounds += 1
        assert rounds < 200


@pytest.mark.parametrize("most", [0, MOST])
def test_what_a_question_waits_for_is_computed_before_younger_questions_whoever_computes_it(most: int) -> None:
    made = three(most)
    until_answered(made, 2)
    assert not made.answer(3) and 3 not in made.ends


def test_once_nobody_waits_for_it_any_more_the_background_is_behind_all_questions_again() -> None:
    made = three(MOST)
    made.round()
    made.loop.handle(Cancel(2))
    until_answered(made, 3)
    assert not made.answer(1) and 1 not in made.ends
    made.finish()
    assert made.answer(1) == naive_answer([*CODE, *LONG], MOST)


def missing(ticket: Ticket) -> int:
    assert ticket.tip is not None
    return sum(len(node.ids) - node.computed for node in ticket.tip.path())


def first_in_line(made: Machine) -> Ticket | None:
    """Of the prompts that are computed, whoever waits for whom; None while somebody comes who may go before it."""
    tickets = [ticket for ticket in made.loop._tickets.values() if ticket.phase is not Phase.ANSWERING]
    if any(ticket.phase is not Phase.PREFILL for ticket in tickets):
        return None
    return min(tickets, key=lambda one: (one.came[0], one.due), default=None)


class Asked(NamedTuple):
    """A prompt, what it wants, and how many rounds are made before the next one is asked."""

    family: int
    length: int
    most: int
    background: bool
    rounds: int

    @property
    def ids(self) -> list[int]:
        return (LONG, OTHER)[self.family][: self.length]


asking = st.builds(
    Asked, st.integers(0, 1), st.integers(1, 400), st.sampled_from([0, 1, 3]), st.booleans(), st.integers(0, 4)
)


@settings(max_examples=100)
@given(st.lists(asking, min_size=2, max_size=6))
def test_in_every_round_the_first_in_line_comes_nearer_to_its_answer(line: list[Asked]) -> None:
    """Prompts that go on from one another, in any order and of both classes."""
    made = Machine(cells=16384, window=4096, sequences=16)
    made.floor("code", CODE)
    for number, one in enumerate(line, start=1):
        urgency = Urgency.BACKGROUND if one.background else Urgency.INTERACTIVE
        made.loop.handle(InferenceJob(number, "code", ids_to_bytes(one.ids), 1, one.most, urgency=urgency))
        for _ in range(one.rounds):
            first = first_in_line(made)
            before = missing(first) if first is not None else 0
            made.round()
            assert first is None or first.phase is not Phase.PREFILL or missing(first) < before
    made.finish()
    for number, one in enumerate(line, start=1):
        assert made.answer(number) == naive_answer([*CODE, *one.ids], one.most)
