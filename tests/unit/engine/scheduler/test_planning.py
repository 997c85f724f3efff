"""Whoever comes and goes meanwhile: every answer is right, and nobody and nothing waits for a plan."""

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.charging import ChargedMachine, Prices
from support.machine import Machine, naive_answer

from orchestrator.engine.messages import Cancel, Grant, InferenceJob, Urgency, ids_to_bytes

CODE = [at % 47 for at in range(300)]


asking = st.tuples(st.just("ask"), st.tuples(st.sampled_from(["code", "other"]), st.integers(1, 200), st.booleans()))
script = st.lists(
    st.one_of(
        asking,
        asking,
        st.tuples(st.just("rounds"), st.integers(1, 20)),
        st.tuples(st.just("cancel"), st.integers(1, 8)),
        st.tuples(st.just("grant"), st.integers(1500, 9000)),
    ),
    max_size=30,
)


@settings(max_examples=100)
@given(script)
def test_whoever_comes_goes_or_loses_its_grant_every_answer_is_right(made: list[tuple[str, Any]]) -> None:
    machine, asked, cancelled = Machine(cells=8192), dict[int, list[int]](), set[int]()
    machine.floor("code", CODE)
    machine.floor("other", CODE[:100])
    for kind, value in made:
        if kind == "ask":
            floor, length, background = value
            ticket, tail = len(asked) + 1, [(at + length) % 53 for at in range(length)]
            asked[ticket] = [*machine.floors[floor], *tail]
            urgency = Urgency.BACKGROUND if background else Urgency.INTERACTIVE
            machine.loop.handle(InferenceJob(ticket, floor, ids_to_bytes(tail), 1, 40, urgency=urgency))
        elif kind == "rounds":
            for _ in range(value):
                machine.round()
        elif kind == "cancel":
            cancelled.add(value)
            machine.loop.handle(Cancel(value))
        else:
            machine.loop.handle(Grant(2, value, 2048))
    machine.finish()
    machine.loop.close()
    for ticket in asked.keys() - cancelled:
        assert machine.answer(ticket) == naive_answer(asked[ticket], 40)


def streaming(tmp_path: Path) -> ChargedMachine:
    """One answer that goes on and on, beside three floors idle in pools of their own, of which nothing is kept below."""
    machine = ChargedMachine(Prices(step=0.1, save=0.1), cells=16384, window=4096, folder=tmp_path, disk_budget=1)
    for ticket, name in enumerate(("one", "two", "three"), start=100):
        machine.floor(name, [ticket] * 600)
        machine.ask(ticket, name, [1], 0)
        machine.finish()
    machine.floor("code", CODE)
    machine.ask(1, "code", [3], 500)
    while machine.loop.behind() or not machine.answer(1):
        machine.round()
        machine.loop.flush()
    return machine


def test_who_comes_beside_an_answer_comes_in_with_the_next_round(tmp_path: Path) -> None:
    machine = streaming(tmp_path)
    for _ in range(3):
        machine.round()
    machine.ask(2, "code", [4], 5)
    machine.round()
    machine.round()
    machine.loop.flush()
    assert machine.answer(2)


def test_what_is_no_longer_granted_goes_a_piece_in_each_round(tmp_path: Path) -> None:
    machine = streaming(tmp_path)
    admission = machine.loop.admission
    code = admission.pools["code"].memory.cells
    machine.loop.handle(Grant(2, code, 4096))
    rounds = 0
    while admission.held() > code:
        machine.round()
        rounds += 1
    assert set(admission.pools) == {"code"}
    assert 2 < rounds <= 16, "a piece in each round"
