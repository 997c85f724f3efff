"""A round never stalls an answer beyond its budget: whatever waits, is restored or evicted beside it."""

import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.charging import ChargedMachine, Prices
from support.fake_engine import FakeBackend, FakeMemory
from support.machine import Machine
from support.waiting import SOON

from orchestrator.engine.backend import BackendError
from orchestrator.engine.messages import Cancel, Grant, Outcome
from orchestrator.engine.scheduler.planner import Limits

BUDGET = Limits(64).budget_ms / 1000
PREFILL = 0.02  # a round's prefill comes to a few tokens, whatever time is left


def floors(count: int, tokens: int = 256) -> dict[str, list[int]]:
    return {f"floor{n}": [(n * 13 + at) % 50 for at in range(tokens)] for n in range(count)}


def on_disk(prices: Prices, folder: Path, known: dict[str, list[int]]) -> ChargedMachine:
    """All floors lie on disk, in no pool; ticket 1 streams its answer."""
    machine = ChargedMachine(prices, folder, cells=200_000, window=20_000, sequences=12)
    for ticket, (name, ids) in enumerate(known.items(), start=100):
        machine.floor(name, ids)
        machine.ask(ticket, name, [1, 2], 0)
    machine.finish()
    machine.restart()
    return streaming(machine, "streaming", [7] * 10)


def streaming(machine: ChargedMachine, floor: str, ids: list[int]) -> ChargedMachine:
    machine.floor(floor, ids)
    machine.ask(1, floor, [3], 500)
    for _ in range(20):
        machine.round()
    machine.loop.flush()
    return machine


prices = st.builds(
    Prices, token=st.sampled_from([0.0005, 0.001]), save=st.floats(0.001, 0.2), restore=st.floats(0.001, 0.2),
    open=st.floats(0.0, 0.2),
)  # fmt: skip


@settings(max_examples=12)
@given(prices, st.integers(1, 6), st.integers(100, 600), st.integers(2, 300))
def test_no_gap_is_longer_than_the_budget_and_one_piece_however_many_wait_for_floors_on_disk(
    price: Prices, questions: int, tokens: int, tail: int
) -> None:
    with TemporaryDirectory() as folder:
        known = floors(questions, tokens)
        machine = on_disk(price, Path(folder), known)
        for ticket, name in enumerate(known, start=200):
            machine.ask(ticket, name, [5] * tail, 1)
        assert max(machine.gaps(1, 60)) <= BUDGET + price.piece + PREFILL
        machine.store.close()


@settings(max_examples=12)
@given(prices, st.integers(1, 5), st.integers(100, 900))
def test_no_gap_is_longer_when_pools_close_and_what_stood_in_them_is_saved(
    price: Prices, questions: int, tail: int
) -> None:
    machine = ChargedMachine(price, cells=4096, window=2048, sequences=6)
    known = floors(questions, 600)
    for ticket, (name, ids) in enumerate(known.items(), start=100):
        machine.floor(name, ids)
        machine.ask(ticket, name, [ticket] * 50, 2)
        machine.finish()
    streaming(machine, "streaming", [7] * 10)
    for ticket, name in enumerate(known, start=200):
        machine.ask(ticket, name, [5] * tail, 1)
    machine.loop.handle(Grant(2, 3000, 2048))
    assert max(machine.gaps(1, 60)) <= BUDGET + price.piece + PREFILL


@pytest.mark.parametrize("questions", [1, 2, 4, 6])
def test_restores_of_a_tenth_of_a_second_hold_up_an_answer_by_no_more_than_a_round(
    questions: int, tmp_path: Path
) -> None:
    known = floors(questions)
    machine = on_disk(Prices(), tmp_path, known)
    for ticket, name in enumerate(known, start=200):
        machine.ask(ticket, name, [5] * 400, 1)
    assert max(machine.gaps(1, 60)) <= 0.24
    assert machine.store.counters.disk_hits == questions


@pytest.mark.parametrize("token", [0.0005, 0.005, 0.02])
def test_the_first_cold_prompt_of_a_process_holds_up_an_answer_by_no_more_than_a_round(token: float) -> None:
    machine = ChargedMachine(
        Prices(step=0.01, token=token, open=0.0), cells=40_000, window=4096, sequences=6, batch=512
    )
    streaming(machine, "streaming", [7] * 5)
    machine.floor("cold", [n % 50 for n in range(1500)])
    machine.ask(2, "cold", [5], 1)
    assert max(machine.gaps(1, 30)) <= BUDGET + PREFILL


class Gated(FakeBackend):
    """Its KV is large; of contexts beyond `at_once` cells the first `refused` cannot be had, and none before `gate`."""

    def __init__(self, refused: int = 0) -> None:
        super().__init__(10**9)
        self.info = replace(self.info, kv_bytes_per_token=1 << 17)
        self.gate, self.at_once, self.refused = threading.Event(), 512, refused
        self.tried = list[str]()  # the threads of large contexts that were refused
        self.refusal = threading.Event()  # there was one since somebody looked

    def open(self, cells: int, sequences: int) -> FakeMemory:
        if cells > self.at_once and threading.current_thread() is not threading.main_thread():
            assert self.gate.wait(SOON)
            self.refused -= 1
            if self.refused >= 0:
                self.tried.append(threading.current_thread().name.partition("_")[0])
                self.refusal.set()
                raise BackendError("no memory")
        return super().open(cells, sequences)


def beside_an_opening(backend: Gated, window: int = 4096) -> Machine:
    """Ticket 1 streams, ticket 2 wants a pool that is being opened, and is waiting for its context."""
    machine = Machine(cells=16_384, window=window, sequences=6, backend=backend)
    machine.floor("small", [7] * 10)
    machine.ask(1, "small", [3], 400)
    while not machine.answer(1):
        machine.round()
    machine.floor("large", [n % 50 for n in range(3000)])
    machine.ask(2, "large", [5], 4)
    machine.loop.flush()
    before = len(machine.answer(1))
    for _ in range(20):
        machine.round()
    machine.loop.flush()
    assert len(machine.answer(1)) == before + 20
    assert list(machine.loop.pools.by_name) == ["small"]
    return machine


@pytest.mark.parametrize("refused", [0, 1])
def test_an_answer_goes_on_while_a_large_context_is_opened_and_who_waits_for_it_enters_then(refused: int) -> None:
    machine = beside_an_opening(backend := Gated(refused))
    backend.gate.set()
    machine.finish()
    assert len(machine.answer(2)) == 4
    assert {machine.ends[ticket][0].outcome for ticket in (1, 2)} == {Outcome.DONE}


def test_a_context_whose_ticket_was_called_off_meanwhile_is_an_idle_pool_within_the_grant() -> None:
    machine = beside_an_opening(backend := Gated())
    machine.loop.handle(Cancel(2))
    held = machine.loop.pools.held()
    backend.gate.set()
    machine.ask(3, "large", [6], 1)
    machine.finish()
    assert machine.loop.pools.held() == held
    assert machine.ends[3][0].outcome is Outcome.DONE


def test_who_needs_the_room_of_a_context_whose_ticket_was_cancelled_gets_it() -> None:
    machine = beside_an_opening(backend := Gated(), window=16_384)
    machine.loop.handle(Cancel(2))
    backend.gate.set()
    machine.ask(3, "small", [8] * 12_000, 1)
    machine.finish()
    assert {machine.ends[ticket][0].outcome for ticket in (1, 3)} == {Outcome.DONE}


def test_a_ticket_for_which_there_is_no_memory_fails_alone_and_no_answer_waits_for_its_second_try() -> None:
    machine = beside_an_opening(backend := Gated(refused=2))
    backend.gate.set()
    while len(backend.tried) < 2:  # the answer must not end before: what nobody waits beside is opened at once
        backend.refusal.wait(0.01)
        backend.refusal.clear()
        machine.round()
    machine.finish()
    outcomes = {ticket: machine.ends[ticket][0].outcome for ticket in (1, 2)}
    assert outcomes == {1: Outcome.DONE, 2: Outcome.FAILED}
    assert backend.tried == ["opening", "opening"]


def test_a_context_that_cannot_be_had_is_no_fault_of_who_finds_out() -> None:
    machine = beside_an_opening(backend := Gated(refused=1))
    machine.loop.handle(Cancel(2))
    backend.gate.set()
    machine.ask(3, "large", [6], 4)
    machine.finish()
    assert {machine.ends[ticket][0].outcome for ticket in (1, 3)} == {Outcome.DONE}
