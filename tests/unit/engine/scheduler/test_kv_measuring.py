"""What a type of KV changes: the figures against a plain computation, and a measurement that disturbs nobody."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.fake_engine import FakeBackend
from support.machine import Machine, naive_answer

from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import Grant, KvMeasured, MeasureKv, StopMeasuring, ids_to_bytes
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.scheduler.kv_measuring import (
    TOKENS_EACH,
    Numbers,
    change_of,
    compared,
    log_softmax,
    next_rows,
)
from orchestrator.engine.scheduler.step import LOGIT_ROWS

IDS = ids_to_bytes(range(1, 301))

# ---- the figures -----------------------------------------------------------------------------------------------------

logits = arrays(np.float32, (5, 7), elements=st.floats(-30, 30, width=32))


@given(logits, logits)
def test_a_divergence_is_that_of_the_two_distributions(one: Numbers, other: Numbers) -> None:
    exact, near = (np.stack([log_softmax(row) for row in rows]) for rows in (one, other))
    divergences, changed = compared(exact, near)
    p, q = (np.exp(rows.astype(np.float64)) / np.exp(rows.astype(np.float64)).sum(1)[:, None] for rows in (one, other))
    assert divergences == pytest.approx((p * (np.log(p) - np.log(q))).sum(1), rel=1e-3, abs=1e-3)
    assert changed.tolist() == [a.argmax() != b.argmax() for a, b in zip(exact, near, strict=True)]
    assert not compared(exact, exact)[0].any()


def test_the_mean_the_99th_percentile_and_the_share_are_over_all_places() -> None:
    steps = [
        (np.arange(50, dtype=np.float32), np.arange(50) % 2 == 0),
        (np.arange(50, 100, dtype=np.float32), np.zeros(50, bool)),
    ]
    change = change_of(steps)
    assert (change.tokens, change.mean, change.changed) == (100, 49.5, 0.25)
    assert change.worst == pytest.approx(98.01)


# ---- on a model ------------------------------------------------------------------------------------------------------


def test_f16_changes_nothing_and_a_smaller_type_more_than_a_larger_one(qwen_model: Path) -> None:
    with closing(LlamaBackend(EngineSpec(str(qwen_model), threads=1, sequences=4))) as backend:
        machine = Machine(cells=8192, window=2048, backend=backend)  # type: ignore[arg-type]  # it has no fake's tokens
        found = [measured(machine, kind).change for kind in ("f16", "q8_0", "q4_0")]
    same, eight, four = (one for one in found if one is not None)
    assert (same.tokens, same.mean, same.worst, same.changed) == (80, 0.0, 0.0, 0.0)
    assert 0 < eight.mean < four.mean
    assert eight.mean < eight.worst < four.worst


def measured(machine: Machine, kind: str) -> KvMeasured:
    """The end of a measurement; before it, how far it was."""
    machine.told.clear()
    machine.loop.handle(MeasureKv(1, ids_to_bytes(range(1, 81)), kind))
    while machine.loop.has_idle_work():
        machine.loop.round()
    machine.loop.flush()
    told = [one for one in machine.told if isinstance(one, KvMeasured)]
    assert [one.done for one in told] == sorted({one.done for one in told})
    assert all(one.change is None for one in told[:-1])
    return told[-1]


@given(st.integers(1, LOGIT_ROWS), st.floats(0, 1e5), st.floats(1, 1e4))
def test_a_step_is_as_long_as_the_one_before_allows(rows: int, took_ms: float, budget_ms: float) -> None:
    following = next_rows(rows, took_ms, budget_ms)
    assert 1 <= following <= min(2 * rows, LOGIT_ROWS)
    assert following == 1 or following * took_ms <= rows * budget_ms * (1 + 1e-9)


# ---- beside others ---------------------------------------------------------------------------------------------------


def said(machine: Machine) -> list[KvMeasured]:
    machine.loop.flush()
    return [one for one in machine.told if isinstance(one, KvMeasured)]


def test_no_step_is_taken_while_a_question_is_there_and_it_goes_on_after_it() -> None:
    machine = Machine(cells=8192)
    machine.floor("code", range(1, 41))
    machine.loop.handle(MeasureKv(1, IDS, "q8_0"))
    machine.round()
    before = len(said(machine))
    assert before == 1
    machine.ask(7, "code", [1, 2], 5)
    machine.round()
    while machine.loop.busy():
        machine.round()
        assert len(said(machine)) in (before, before + 1), "the round that ends the answer may go on with it"
    assert machine.answer(7) == naive_answer([*range(1, 41), 1, 2], 5)
    while machine.loop.has_idle_work():
        machine.round()
    assert said(machine)[-1].change is not None


def test_where_there_is_no_room_the_numbers_are_told_and_nothing_is_held() -> None:
    machine = Machine(cells=512)
    machine.loop.handle(MeasureKv(1, IDS, "q8_0"))
    (refused,) = said(machine)
    assert refused.refusal == f"{TOKENS_EACH * 300:,} tokens of KV are needed beside what is held, and 512 are free"
    assert not machine.loop.has_idle_work()
    assert machine.loop.pools.free() == 512


def test_a_question_that_needs_its_room_has_it() -> None:
    machine = Machine(cells=1024, window=1024)
    machine.floor("code", range(1, 601))
    machine.loop.handle(MeasureKv(1, IDS, "q8_0"))
    machine.round()
    machine.ask(7, "code", [1], 5)
    machine.finish()
    assert machine.answer(7) == naive_answer([*range(1, 601), 1], 5)
    assert "needed for a question" in said(machine)[-1].refusal


def test_a_grant_that_shrinks_ends_it() -> None:
    machine = Machine(cells=4096)
    machine.loop.handle(MeasureKv(1, IDS, "q8_0"))
    machine.loop.handle(Grant(2, 512, 512))
    machine.round()
    assert said(machine)[-1].refusal
    assert machine.loop.pools.free() == 512


def test_one_that_nobody_waits_for_any_more_gives_its_room_back_and_a_second_one_is_refused() -> None:
    machine = Machine(cells=4096, backend=FakeBackend())
    machine.loop.handle(MeasureKv(1, IDS, "q8_0"))
    machine.loop.handle(MeasureKv(2, IDS, "q8_0"))
    assert [(one.call, one.refusal) for one in said(machine)] == [(2, "another measurement is running")]
    machine.loop.handle(StopMeasuring(2))
    assert machine.loop.has_idle_work()
    machine.loop.handle(StopMeasuring(1))
    assert not machine.loop.has_idle_work()
    assert machine.loop.pools.free() == 4096
