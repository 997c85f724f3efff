"""A ticket's states are a table; anything else is our own fault and stops the test."""

from array import array

import pytest

from orchestrator.engine.cache.tree import Node
from orchestrator.engine.messages import InferenceJob, Urgency
from orchestrator.engine.scheduler.ticket import ALLOWED, Phase, Ticket


def ticket(arrived: int = 1, urgency: Urgency = Urgency.INTERACTIVE, phase: Phase = Phase.WAITING) -> Ticket:
    return Ticket(InferenceJob(arrived, "f", b"", 1, 5, urgency=urgency), array("I"), 0, arrived, 0.0, phase=phase)


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


def awaited() -> tuple[Ticket, Ticket, Node]:
    """A background ticket that fills a node for a question."""
    filling, asking = ticket(1, Urgency.BACKGROUND, Phase.PREFILL), ticket(2, phase=Phase.PREFILL)
    node = Node(None, 0, array("I", [1, 2]), None, computed_by=1)
    filling.computes_for(asking, node)
    return filling, asking, node


def test_who_fills_what_another_one_waits_for_is_served_in_that_one_s_place() -> None:
    filling, asking, _ = awaited()
    assert filling.order == asking.order < ticket(3).order


def test_the_first_of_those_who_wait_lends_its_place() -> None:
    filling, asking, node = awaited()
    for other in (ticket(5), ticket(3, Urgency.BACKGROUND)):
        filling.computes_for(other, node)
    assert filling.order == asking.order


def test_a_place_is_lent_until_the_node_stands_or_nobody_waits_for_it_or_all_begins_anew() -> None:
    filling, _, node = awaited()
    node.computed_by = None
    assert filling.order == filling.came
    filling, asking, _ = awaited()
    asking.enter(Phase.ENDED)
    assert filling.order == filling.came
    filling, _, _ = awaited()
    filling.wait_again()
    assert filling.order == filling.came
