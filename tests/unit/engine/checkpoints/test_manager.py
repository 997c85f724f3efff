"""Segments of what stands: named as from the root, however the tree changed, and once a conversation, not once a turn."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import STATE, header, store
from support.examples import few
from support.machine import Machine, naive_answer

from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import path_of
from orchestrator.engine.checkpoints import manager as segments_module
from orchestrator.engine.checkpoints import store as store_module
from orchestrator.engine.checkpoints.manager import CUT, LEAST_GAIN_MS, SOONER, segments, sooner_computed
from orchestrator.engine.checkpoints.store import checkpoint_name
from orchestrator.engine.messages import Admitted, PrefixMatch, PutFloor, Reuse, Tier, ids_to_bytes
from orchestrator.engine.prefill_cost import PrefillCost

CODE = [n % 50 for n in range(10 * CUT)]


def talked(turns: int, folder: Path) -> Machine:
    """One conversation of so many turns stands in the cells, a node each."""
    machine, talk = Machine(cells=20_000, window=20_000, batch=4096, folder=folder), list[int]()
    machine.floor("code", CODE)
    for ticket in range(1, turns + 1):
        talk += [100 + ticket] * 20
        machine.ask(ticket, "code", talk, 3)
        machine.finish()
        talk += machine.answer(ticket)
    return machine


def pool_of(machine: Machine) -> Pool:
    return machine.loop.pools.by_name["code"]


def evict_all(pool: Pool) -> None:
    while (tip := pool.tree.stalest()) is not None:
        pool.tree.evict(tip)


def test_a_conversation_that_leaves_turn_by_turn_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = talked(12, tmp_path)
    pool, hashed = pool_of(machine), [0]
    assert len(list(pool.tree.nodes())) > 12

    def counted(*what: object) -> str:
        hashed[0] += 1
        return checkpoint_name(*what)  # type: ignore[arg-type]

    monkeypatch.setattr(segments_module, "checkpoint_name", counted)
    evict_all(pool)
    assert hashed[0] < 60, "ten segments of a floor and two of a tail, twice, and one or two a turn"
    assert machine.store.figures()["tier_segments"] >= 11
    machine.loop.close()


def test_what_a_slow_disk_does_not_take_is_counted_as_lost_and_not_even_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WAITING_BYTES", 0)
    machine = talked(2, tmp_path)
    pool = pool_of(machine)
    monkeypatch.setattr(pool.memory, "save", None)
    evict_all(pool)
    assert pool.cells_used() == 0
    assert machine.store.figures()["tier_segments"] == 0
    assert machine.store.counters.lost_segments >= 11
    machine.store.close()


asked = st.lists(
    st.tuples(st.sampled_from(["short", "long"]), st.integers(1, 3), st.integers(0, 600), st.booleans()),
    min_size=1, max_size=8,
)  # fmt: skip


@few(15)
@given(asked)
def test_a_node_s_segments_are_those_of_its_path_named_from_the_root(
    tmp_path_factory: pytest.TempPathFactory,
    script: list[tuple[str, int, int, bool]],
) -> None:
    """Also after it was split, and where two floors part."""
    machine = Machine(
        cells=20_000, window=20_000, sequences=40, batch=512, folder=tmp_path_factory.mktemp("model") / "kv"
    )
    for name, end in (("short", 512), ("long", 900)):
        machine.loop.handle(PutFloor(name, ids_to_bytes(CODE[:end]), "both"))
    for ticket, (floor, talk, length, looked) in enumerate(script, 1):
        machine.ask(ticket, floor, [*[talk] * length, ticket % 3], 3)
        machine.finish()
        for pool in machine.loop.pools.by_name.values() if looked else ():
            for node in pool.tree.nodes():
                path = path_of(node)
                whole = segments("root", path.ids, path.cut, path.owner, node.computed_end)
                found = machine.loop.checkpoints._over(node, path, node.computed_end)  # type: ignore[union-attr]
                assert list(found) == [one for one in whole if one.end > node.start]
    machine.store.close()


@given(
    st.floats(1e-4, 10),
    st.floats(0, 1e-3),
    st.floats(1e-4, 10),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(1, 30_000),
)
def test_what_is_saved_is_computed_only_where_that_is_clearly_sooner(
    empty: float, cell: float, restore_ms: float, start: int, inside: int, length: int
) -> None:
    """`start`: of what is saved; it may begin before the end of what is in cells."""
    prefill, depth, end = PrefillCost(empty, cell), start + min(inside, length - 1), start + length
    saved = [Reuse(start, end, Tier.DISK)]
    read = restore_ms * length
    compute = sum(empty + cell * (at + 0.5) for at in (depth, end - 1)) / 2 * (end - depth)  # of an arithmetic series
    sooner = sooner_computed(prefill, restore_ms, saved, depth)
    assert not sooner or (read > compute * SOONER * 0.999 and read - compute > LEAST_GAIN_MS * 0.999)
    assert sooner or not (read > compute * SOONER * 1.001 and read - compute > LEAST_GAIN_MS * 1.001)
    assert not sooner or sooner_computed(prefill, 2 * restore_ms, saved, depth), "a slower disk is read no sooner"
    assert not sooner_computed(prefill, restore_ms, [], depth)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_prompt_is_computed_while_reading_is_slow_and_that_is_told(ranges: bool, tmp_path: Path) -> None:
    machine = Machine(cells=20_000, window=20_000, batch=512, folder=tmp_path, ranges=ranges)
    machine.floor("code", CODE)
    assert asked_again(machine, 1, seconds_a_token=0.0).left == 0
    slow = asked_again(machine, 2, seconds_a_token=0.01)
    assert (slow.left, slow.reuse) == (len(CODE), (Reuse(0, len(CODE) + 1, Tier.COMPUTED),))
    quick = asked_again(machine, 3, seconds_a_token=1e-6)
    assert (quick.left, quick.reuse[0]) == (0, Reuse(0, CUT if ranges else len(CODE), Tier.DISK))
    assert {tuple(machine.answer(ticket)) for ticket in (1, 2, 3)} == {tuple(naive_answer([*CODE, 7], 3))}


def asked_again(machine: Machine, ticket: int, seconds_a_token: float) -> Admitted:
    """How a question came in once nothing of it was in cells and all on disk, with a disk so slow."""
    if machine.loop.pools.by_name:
        evict_all(pool_of(machine))
        machine.store.flush()
    seen = 1000 ** (ticket + 1)  # beside which what was seen before is nothing
    machine.store.restored(seen, seen * seconds_a_token)
    foretold = machine.loop.admission.match(PrefixMatch(1, "code", ids_to_bytes([7]), 1, 3))
    machine.ask(ticket, "code", [7], 3)
    machine.finish()
    (admitted,) = [one for one in machine.told if isinstance(one, Admitted) and one.ticket == ticket]
    assert (foretold.left, foretold.reuse) == (admitted.left, admitted.reuse)
    return admitted


def test_a_slow_disk_is_tried_again_once_prompts_were_computed_instead(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.keep(header(0), STATE, PrefillCost(1.0, 0.0))
    at_first = kept.restore_ms()
    kept.restored(2560, 25.6)
    assert kept.restore_ms() > 1000 * at_first
    for _ in range(30):
        kept.passed_over()
    assert kept.restore_ms() < 2 * at_first
    kept.close()
