"""Who fills a node that several tickets wait for; and everybody gets the answer that is wanted."""

import pytest
from support.machine import Machine, naive_answer

from orchestrator.engine.messages import Job, Outcome, Reason, Urgency
from orchestrator.engine.token_ids import ids_to_bytes

CODE = [n % 50 for n in range(300)]
MOST = 9
TAIL = next([token] for token in range(100) if len(naive_answer([*CODE, token], MOST)) > 2)


def beside_the_background(most: int) -> Machine:
    """A question that goes on from a background ticket's prompt, asked while that is computed."""
    made = Machine()
    made.floor("code", CODE)
    made.loop.handle(Job(1, "code", ids_to_bytes(TAIL), 1, most, urgency=Urgency.BACKGROUND))
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


def test_a_question_goes_on_with_what_the_background_had_begun() -> None:
    made = beside_the_background(0)
    (first,), (second,) = made.ends[1], made.ends[2]
    assert first.reason is Reason.PREFILLED
    assert first.computed < second.computed


def test_a_background_ticket_that_wants_an_answer_gets_it_although_a_question_needs_its_last_token() -> None:
    made = beside_the_background(MOST)
    assert made.answer(1) == naive_answer([*CODE, *TAIL], MOST)
