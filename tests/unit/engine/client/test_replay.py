"""What becomes of tickets when children end: decided on values, and held over any course of events."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from orchestrator.engine.client.replay import AfterEnd, Flight, Suspects, after_end, suspects_of
from orchestrator.engine.messages import InferenceJob, Urgency


def job(ticket, replay=0, urgency=Urgency.INTERACTIVE):
    return InferenceJob(ticket, "f", b"", 1, 8, urgency=urgency, replay=replay)


def test_what_told_nothing_goes_in_again_and_what_told_something_fails():
    silent, talking = Flight(job(1)), Flight(job(2), told=True)
    assert after_end([silent, talking], Suspects()) == AfterEnd((1, 2), (2,), (job(1, replay=1),))


def test_a_replay_that_sees_a_second_end_fails():
    assert after_end([Flight(job(1, replay=1))], Suspects((1,))) == AfterEnd((1,), (1,), ())


def test_who_waits_behind_a_suspect_was_not_in_the_child_and_stays_as_it_was():
    flights = [Flight(job(1, replay=1)), Flight(job(2, replay=1)), Flight(job(3))]
    assert after_end(flights, Suspects((1, 2))) == AfterEnd((1,), (1,), ())


def test_only_questions_are_suspects_not_the_computing_of_a_floor():
    jobs = [job(1), job(2, replay=1), job(3, replay=1, urgency=Urgency.BACKGROUND), job(4, replay=1)]
    assert suspects_of(jobs) == Suspects((2, 4))


def test_suspects_go_in_one_by_one_and_then_all_others_together():
    waiting = {1: job(1, replay=1), 2: job(2, replay=1), 3: job(3)}
    suspects = suspects_of(waiting.values())
    assert suspects.next_jobs(waiting) == [waiting.pop(1)]
    suspects = suspects.after_first()
    assert suspects.next_jobs(waiting) == [waiting.pop(2)]
    suspects = suspects.after_first()
    assert suspects.next_jobs(waiting) == [waiting[3]]


def test_one_that_nobody_waits_for_leaves_the_line_but_for_the_first_which_the_child_has():
    suspects = Suspects((1, 2, 3))
    assert suspects.without(2) == Suspects((1, 3))
    assert suspects.without(1) == suspects
    assert suspects.without(9) == suspects


@given(
    some.lists(some.tuples(some.booleans(), some.integers(0, 1), some.sampled_from(Urgency)), max_size=6), some.data()
)
def test_every_ticket_fails_at_most_once_and_none_is_lost(kinds, data):
    flights = {n: Flight(job(n, replay, urgency), told) for n, (told, replay, urgency) in enumerate(kinds)}
    while flights:
        suspects = suspects_of(flight.job for flight in flights.values())
        handed = [one.ticket for one in suspects.next_jobs({n: flight.job for n, flight in flights.items()})]
        for ticket in handed:
            if data.draw(some.booleans()):
                flights[ticket] = replace(flights[ticket], told=True)
        decided = after_end(flights.values(), suspects)
        assert sorted(decided.inside) == sorted(handed)
        assert sorted([*decided.failed, *(one.ticket for one in decided.again)]) == sorted(handed)
        for ticket in decided.failed:
            del flights[ticket]
        for one in decided.again:
            assert one.replay == 1
            flights[one.ticket] = Flight(one)
