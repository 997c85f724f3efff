"""Sharing is invisible, conservation holds: random conversations against a naive model that shares nothing."""

from array import array

from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.machine import Machine, naive_answer

from orchestrator.engine.messages import Cancel, DropFloor, Grant, Outcome, PrefillProgress, bytes_to_ids, ids_to_bytes

FLOORS = {
    "": [],
    "small": [7] * 5,
    "code": [n % 50 for n in range(300)],
    "code2": [n % 50 for n in range(200)] + [99] * 100,
}
# Few distinct tokens, so that prompts share prefixes by chance and split nodes everywhere.
tails = st.lists(st.integers(1, 2), min_size=1, max_size=40)
asks = st.tuples(st.sampled_from(sorted(FLOORS)), tails, st.integers(0, 25), st.integers(1, 2))
actions = st.one_of(
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("round"), st.integers(1, 4)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("follow"), st.tuples(st.integers(0, 30), tails)),
    st.tuples(st.just("grant"), st.sampled_from([900, 2000, 4096])),
    st.tuples(st.just("drop"), st.sampled_from(["code", "code2"])),
)


@few(50)
@given(st.lists(actions, max_size=40), st.booleans())
def test_answers_are_those_of_an_engine_that_shares_nothing_and_every_ticket_ends_once(
    script: list, ranges: bool
) -> None:
    machine, jobs, number = Machine(ranges=ranges, sequences=6 if ranges else 16), {}, 0
    for name, ids in FLOORS.items():
        machine.floor(name, ids)
    for action, argument in script:
        if action == "ask":
            floor, tail, max_tokens, owner = argument
            number += 1
            machine.floor(floor, FLOORS[floor])
            jobs[number] = (FLOORS[floor] + tail, max_tokens, floor, tail, owner)
            machine.ask(number, floor, tail, max_tokens, owner)
        elif action == "round":
            for _ in range(argument):
                machine.round()
        elif action == "cancel":
            machine.loop.handle(Cancel(argument))
        elif action == "follow" and argument[0] in jobs:
            _, max_tokens, floor, tail, owner = jobs[argument[0]]
            number += 1
            longer = tail + machine.answers.get(argument[0], []) + argument[1]
            machine.floor(floor, FLOORS[floor])
            jobs[number] = (FLOORS[floor] + longer, max_tokens, floor, longer, owner)
            machine.ask(number, floor, longer, max_tokens, owner)
        elif action == "grant":
            machine.loop.handle(Grant(2, argument, 2048))
        elif action == "drop":
            machine.loop.handle(DropFloor(argument))
        machine.loop.check()
    machine.finish()
    for ticket, (ids, max_tokens, *_) in jobs.items():
        (end,) = machine.ends[ticket]
        expected, got = naive_answer(ids, max_tokens), machine.answers.get(ticket, [])
        if end.outcome is Outcome.DONE:
            assert got == expected
            assert end.computed + end.cached == end.prompt == len(ids)
        else:
            assert end.outcome in (Outcome.CANCELLED, Outcome.REFUSED)
            assert got == expected[: len(got)]


def test_two_conversations_about_a_cold_codex_compute_it_once() -> None:
    machine = Machine()
    machine.floor("code", FLOORS["code"])
    for ticket in (1, 2, 3):
        machine.ask(ticket, "code", [ticket] * 4, 5, owner=ticket)
    machine.finish()
    assert sum(end.computed for (end,) in machine.ends.values()) == 300 + 3 * 4


def test_who_waits_for_what_another_one_computes_is_told_how_far_it_is() -> None:
    machine = Machine()
    machine.floor("code", FLOORS["code"])
    for ticket in (1, 2):
        machine.ask(ticket, "code", [ticket] * 4, 5, owner=ticket)
    machine.finish()
    told = [message for message in machine.told if isinstance(message, PrefillProgress)]
    first, second = ([one.done for one in told if one.ticket == ticket and one.done < 300] for ticket in (1, 2))
    assert len(second) >= 3
    assert set(second) <= {0, *first}
    assert second == sorted(second)


def test_what_one_conversation_computes_is_not_counted_as_cached() -> None:
    machine, floor = Machine(), next(iter(FLOORS))
    machine.floor(floor, FLOORS[floor])
    for number, tail in enumerate(([1, 2, 3], [4, 5]), start=1):
        machine.ask(number, floor, tail, 2, 1)
        while machine.loop.busy():
            machine.round()
    counted = machine.loop.counters
    assert counted.prompt_tokens == counted.cached_tokens + counted.computed_tokens


def test_right_of_the_floor_one_users_tokens_are_never_anothers() -> None:
    machine = Machine()
    machine.floor("code", FLOORS["code"])
    machine.ask(1, "code", [5] * 20, 3, owner=1)
    machine.finish()
    machine.ask(2, "code", [5] * 20, 3, owner=2)
    machine.ask(3, "code", [5] * 20, 3, owner=1)
    machine.finish()
    assert machine.ends[2][0].cached == 300
    assert machine.ends[3][0].cached == 319  # all but the last token, whose logits are needed


def test_a_cancelled_prefill_stays_as_far_as_it_got() -> None:
    machine = Machine()
    machine.floor("code", FLOORS["code"])
    machine.ask(1, "code", [1], 3)
    machine.round()
    machine.loop.handle(Cancel(1))
    machine.ask(2, "code", [1], 3)
    machine.finish()
    assert machine.ends[1][0].outcome is Outcome.CANCELLED
    assert machine.ends[2][0].cached == machine.ends[1][0].computed > 0


def test_more_conversations_than_sequences_all_get_their_answers() -> None:
    machine = Machine(sequences=4)
    machine.floor("code", FLOORS["code"])
    for ticket in range(1, 41):
        machine.ask(ticket, "code", [ticket, 1, 2], 4, owner=1)
    machine.finish()
    assert all(end.outcome is Outcome.DONE for (end,) in machine.ends.values())
    assert sum(end.computed for (end,) in machine.ends.values()) == 300 + 40 * 3


def test_what_cannot_fit_an_empty_machine_is_refused_at_the_door() -> None:
    machine = Machine(cells=512, window=400)
    machine.floor("code", FLOORS["code"])
    machine.ask(1, "code", [1] * 99, 2)
    machine.ask(2, "code", [1] * 60, 40)
    machine.ask(3, "nobody", [1], 1)
    machine.finish()
    assert [(machine.ends[n][0].outcome.value, machine.ends[n][0].reason.value) for n in (1, 2, 3)] == [
        ("refused", "window"),
        ("done", "length") if machine.answers.get(2) and len(machine.answers[2]) == 40 else ("done", "stop"),
        ("refused", "unknown_floor"),
    ]


def test_ids_cross_as_bytes_unchanged() -> None:
    assert list(bytes_to_ids(ids_to_bytes(array("I", [0, 1, 2**32 - 1])))) == [0, 1, 2**32 - 1]
