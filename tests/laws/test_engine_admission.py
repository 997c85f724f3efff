"""Who comes in, against a naive line: nobody is overtaken, nothing is promised twice, and the grant is never exceeded."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.machine import Machine

from orchestrator.engine.cache.pools import ROUND
from orchestrator.engine.messages import (
    Admitted,
    Cancel,
    Completion,
    Grant,
    InferenceJob,
    Outcome,
    Reason,
    Urgency,
    ids_to_bytes,
)

FLOORS = {"": 0, "small": 40, "code": 300, "large": 900}


@dataclass
class Waits:
    """A job as the naive line sees it: how many tokens it may ever need."""

    number: int
    floor: str
    need: int
    background: bool
    planned: int

    @property
    def order(self) -> tuple[bool, int]:
        return self.background, self.number


@dataclass
class Line:
    """A loop, and beside it the line that it should serve."""

    machine: Machine = field(default_factory=lambda: Machine(cells=4096, window=2048, sequences=5))
    grant: Grant = field(default_factory=lambda: Grant(1, 4096, 2048))
    waiting: dict[int, Waits] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name, size in FLOORS.items():
            self.machine.floor(name, [(7 * at + size) % 50 for at in range(size)])

    def ask(self, number: int, floor: str, tail: int, most: int, background: bool, planned: int) -> None:
        urgency = Urgency.BACKGROUND if background else Urgency.INTERACTIVE
        ids = ids_to_bytes([number % 50 + 60] * tail)
        self.waiting[number] = Waits(number, floor, FLOORS[floor] + tail + most, background, planned)
        self.machine.loop.handle(InferenceJob(number, floor, ids, 1, most, urgency=urgency, grant=planned))
        self.flushed()

    def take(self, cells: int, window: int) -> None:
        self.grant = Grant(self.grant.number + 1, cells, window)
        self.machine.loop.handle(self.grant)

    def round(self) -> None:
        """One round, and whether it let in whom it should."""
        line = sorted(self.waiting.values(), key=lambda one: one.order)
        idle = not self.running
        self.machine.round()
        told = self.flushed()
        entered = [message.ticket for message in told if isinstance(message, Admitted)]
        fitting = [one.number for one in line if self.refused(one) is None]
        assert entered == fitting[: len(entered)], "somebody was overtaken"
        if idle and fitting:
            assert entered, "nobody runs, and the first in line still waits"
        held = sum(pool.memory.cells for pool in self.machine.loop.pools.by_name.values())
        assert not entered or held <= self.grant.cells, "more is held than granted, and somebody entered"
        claimed = sum(pool.in_use() for pool in self.machine.loop.pools.by_name.values())
        assert not entered or claimed <= self.grant.cells

    def flushed(self) -> list[object]:
        self.machine.loop.flush()
        told, self.machine.told = self.machine.told, []
        for message in told:
            if isinstance(message, Admitted):
                self.running.add(message.ticket)
                del self.waiting[message.ticket]
            elif isinstance(message, Completion):
                self.ended(message)
        return told

    def ended(self, end: Completion) -> None:
        self.running.discard(end.ticket)
        one = self.waiting.pop(end.ticket, None)
        if end.outcome is Outcome.REFUSED:
            assert one is not None, "who has entered is not refused"
            assert end.reason is self.refused(one)
        elif one is not None:
            assert end.outcome is Outcome.CANCELLED

    def refused(self, one: Waits) -> Reason | None:
        """Why it can never run under the present grant: compare and set on the grant's number."""
        if one.need > self.grant.window or one.need == 0:
            return Reason.WINDOW
        if one.need > self.grant.cells // ROUND * ROUND:
            return Reason.STALE if one.planned not in (0, self.grant.number) else Reason.CELLS
        return None


asks = st.tuples(
    st.sampled_from(sorted(FLOORS)),
    st.integers(1, 200),
    st.integers(0, 300),
    st.booleans(),
    st.integers(0, 3),
)
actions = st.one_of(
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("round"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), st.integers(1, 20)),
    st.tuples(st.just("grant"), st.tuples(st.integers(0, 5000), st.sampled_from([500, 1300, 2048]))),
)


@few(60)
@given(st.lists(actions, max_size=40))
def test_the_line_is_served_in_order_within_the_grant_and_comes_to_its_end(script: list[Any]) -> None:
    line, number = Line(), 0
    for action, argument in script:
        if action == "ask":
            number += 1
            line.ask(number, *argument)
        elif action == "round":
            for _ in range(argument):
                line.round()
        elif action == "cancel":
            line.machine.loop.handle(Cancel(argument))
            line.flushed()
        else:
            line.take(*argument)
    rounds = 0
    while line.waiting or line.running:
        line.round()
        rounds += 1
        assert rounds < 5000, "the line does not come to its end"
    line.take(0, 2048)
    assert line.machine.loop.pools.held() == 0, "what was granted is given back"


def test_a_question_passes_a_floor_that_waits_and_no_older_question() -> None:
    line = Line(Machine(cells=1024, window=1024, sequences=5), Grant(1, 1024, 1024))
    line.ask(1, "large", 10, 20, False, 0)
    line.round()
    line.ask(2, "large", 0, 0, True, 0)
    line.ask(3, "code", 5, 5, False, 0)
    line.ask(4, "small", 5, 5, False, 0)
    served = []
    while line.waiting or line.running:
        before = set(line.waiting)
        line.round()
        served += sorted(before - set(line.waiting), key=lambda one: (one == 2, one))
    assert served == [3, 4, 2]


def test_a_smaller_grant_is_kept_to_as_soon_as_what_runs_has_ended() -> None:
    line = Line()
    line.ask(1, "code", 10, 300, False, 0)
    line.round()
    line.take(1024, 2048)
    line.ask(2, "code", 20, 5, False, 0)
    while 1 in line.running:
        assert 2 in line.waiting
        line.round()
    while line.waiting or line.running:
        line.round()
    assert line.machine.loop.pools.held() <= 1024


def test_a_smaller_grant_is_kept_to_although_nobody_asks_any_more() -> None:
    machine = Machine(cells=4096, window=2048)
    machine.floor("code", [7] * 300)
    machine.ask(1, "code", [8] * 10, 5)
    machine.round()
    machine.loop.handle(Grant(2, 256, 2048))
    assert machine.loop.pools.held() > 256
    while machine.loop.busy() or machine.loop.has_idle_work():
        machine.round()
    assert machine.loop.pools.held() <= 256
