"""A ticket's states are a table; anything else is our own fault and stops the test."""

from array import array

import pytest

from orchestrator.engine.messages import Job, Urgency
from orchestrator.engine.tickets import ALLOWED, Phase, Ticket


def ticket(arrived: int = 1, urgency: Urgency = Urgency.INTERACTIVE, phase: Phase = Phase.WAITING) -> Ticket:
    return Ticket(Job(arrived, "f", b"", 1, 5, urgency=urgency), array("I"), 0, arrived, 0.0, phase=phase)


@pytest.mark.parametrize("now", Phase)
@pytest.mark.parametrize("then", Phase)
def test_a_ticket_changes_as_the_table_says_and_in_no_other_way(now: Phase, then: Phase) -> None:
    one = ticket(phase=now)
    if then in ALLOWED[now]:
        one.enter(then)
        assert one.phase is then
    else:
        with pytest.raises(AssertionError, match="ticket 1"):
            one.enter(then)


def test_every_ticket_can_end_at_any_time_and_only_once() -> None:
    assert all(Phase.ENDED in ALLOWED[phase] for phase in Phase if phase is not Phase.ENDED)
    assert ALLOWED[Phase.ENDED] == set()


def test_background_stands_behind_interactive_and_the_older_before_the_younger() -> None:
    line = [ticket(1, Urgency.BACKGROUND), ticket(3), ticket(2), ticket(4, Urgency.BACKGROUND)]
    assert [one.number for one in sorted(line, key=lambda one: one.order)] == [2, 3, 1, 4]
