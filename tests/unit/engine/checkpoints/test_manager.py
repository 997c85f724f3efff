"""Segments of what stands: named as from the root, however the tree changed, and once a conversation, not once a turn."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machine import Machine

from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import path_of
from orchestrator.engine.checkpoints import manager as segments_module
from orchestrator.engine.checkpoints import store as store_module
from orchestrator.engine.checkpoints.manager import CUT, segments
from orchestrator.engine.checkpoints.store import named
from orchestrator.engine.messages import PutFloor, ids_to_bytes

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
        return named(*what)  # type: ignore[arg-type]

    monkeypatch.setattr(segments_module, "named", counted)
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


@settings(max_examples=40)
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
