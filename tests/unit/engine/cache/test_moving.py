"""A pool that moves into another context of llama.cpp: what stood in it stands, is shared as before, and goes on."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import odd_models
from support.driven import Driven
from support.vaults import code, line, quoting

from orchestrator.engine.backend import BackendError, Memory
from orchestrator.engine.cache.conservation import check
from orchestrator.engine.cache.pool import move
from orchestrator.engine.llama.memory import LlamaBackend
from orchestrator.engine.messages import Grant, Outcome
from orchestrator.engine.model import EngineSpec


def codex(vaults: range) -> str:
    return "".join(f"{line(vault)}{code(vault)}\n" for vault in vaults)


@pytest.fixture(scope="module")
def quoter(quoter_model: Path) -> Iterator[LlamaBackend]:
    with quoting(quoter_model) as backend:
        yield backend


def encoded(backend: LlamaBackend, text: str) -> list[int]:
    (ids,) = backend.encode([text], control=False)
    return list(ids)


def opened(driven: Driven) -> Callable[[int], Memory]:
    return lambda cells: driven.backend.open(cells, driven.sequences)


def test_a_pool_that_is_too_small_grows_once_its_answers_are_given(quoter: LlamaBackend) -> None:
    driven = Driven(quoter, cells=1024, window=8192)
    driven.floor("code", encoded(quoter, codex(range(10, 30))))
    for ticket, vault in enumerate((12, 17, 28), start=1):
        driven.ask(ticket, "code", encoded(quoter, line(vault)), 12)
    while not all(driven.text(ticket) for ticket in (1, 2, 3)):
        driven.round()
    before = driven.pool("code").memory.cells
    driven.loop.handle(Grant(2, 8192, 8192))
    driven.ask(4, "code", encoded(quoter, codex(range(40, 75)) + line(50)), 12)
    driven.finish()
    assert [driven.text(ticket) for ticket in (1, 2, 3, 4)] == [code(vault) for vault in (12, 17, 28, 50)]
    assert driven.pool("code").memory.cells > before
    driven.close()


def test_more_answers_than_sequences_are_all_right(quoter: LlamaBackend) -> None:
    driven, vaults = Driven(quoter, cells=1280, window=1024, sequences=4), range(11, 22)
    driven.floor("code", encoded(quoter, codex(range(10, 30))))
    for ticket in vaults:
        driven.ask(ticket, "code", encoded(quoter, line(ticket)), 12)
    driven.round()
    assert (driven.loop.snapshot().running, driven.loop.snapshot().waiting) == (3, 8)
    driven.finish()
    assert {ticket: driven.text(ticket) for ticket in vaults} == {ticket: code(ticket) for ticket in vaults}
    assert driven.loop.counters.computed_tokens <= len(driven.floors["code"]) + sum(
        len(encoded(quoter, line(ticket))) for ticket in vaults
    )
    driven.close()


def test_what_stands_after_a_move_is_what_a_full_computation_gives(quoter: LlamaBackend) -> None:
    driven = Driven(quoter, cells=2048, window=2048)
    floor = encoded(quoter, codex(range(10, 30)))
    tails = [encoded(quoter, f"\nWho asked {n}? {line(n)}") for n in (11, 19, 27)]
    driven.floor("code", floor)
    for ticket, tail in enumerate(tails, start=1):
        driven.ask(ticket, "code", tail, 0)
    driven.finish()
    driven.loop.handle(Grant(2, 8192, 2048))
    pool = driven.pool("code")
    for cells in (4096, 1024):  # a larger one, a smaller one
        shape = [(node.start, node.end, node.ref_count, node.sequence) for node in pool.tree.nodes()]
        assert move(pool, cells, opened(driven))
        assert pool.memory.cells == cells
        check(pool)
        assert [(node.start, node.end, node.ref_count, node.sequence) for node in pool.tree.nodes()] == shape
        for ticket, tail in enumerate(tails):
            first, fresh = driven.views(100 * cells + ticket, "code", tail, 4), driven.recomputed([*floor, *tail], 4)
            assert driven.ends[100 * cells + ticket].computed == 1
            assert driven.near(first, fresh)
    driven.close()


def test_a_larger_context_that_cannot_be_had_leaves_the_pool_as_it_was(quoter: LlamaBackend) -> None:
    driven = Driven(quoter, cells=1024, window=2048)
    driven.floor("code", encoded(quoter, codex(range(10, 30))))
    driven.ask(1, "code", encoded(quoter, line(12)), 12)
    driven.finish()

    def small_machine(cells: int) -> Memory:
        if cells > 1024:
            raise BackendError("no memory")
        return quoter.open(cells, driven.sequences)

    assert move(driven.pool("code"), 4096, small_machine) is False
    check(driven.pool("code"))
    driven.ask(2, "code", encoded(quoter, line(25)), 12)
    driven.finish()
    assert (driven.text(2), driven.pool("code").memory.cells) == (code(25), 1024)
    assert driven.ends[2].cached > driven.ends[2].computed
    driven.close()


@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "sliding"])
def test_a_memory_without_ranges_moves_with_its_anchors(kind: str, tmp_path: Path) -> None:
    path = getattr(odd_models, kind)(tmp_path / "model.gguf")
    backend = LlamaBackend(EngineSpec(str(path), threads=1, batch=64, gpu_layers=0))
    driven, floor = Driven(backend, cells=2048, window=2048), [n * 7 % 4000 for n in range(300)]
    driven.floor("code", floor)
    for ticket, tail in enumerate(([1, 2, 3], [1, 2, 3, 4, 5], [9] * 20), start=1):
        driven.ask(ticket, "code", tail, 0)
        driven.finish()
    driven.loop.handle(Grant(2, 8192, 2048))
    assert move(driven.pool("code"), 4096, opened(driven))
    check(driven.pool("code"))
    for ticket, tail in enumerate(([1, 2, 3, 8], [1, 2, 3, 4, 5, 8], [*[9] * 20, 8]), start=11):
        view, fresh = driven.views(ticket, "code", tail, 3), driven.recomputed([*floor, *tail], 3)
        assert driven.ends[ticket].computed == 1
        assert driven.near(view, fresh)
    driven.close()
    backend.close()


def test_many_codices_and_identities_live_side_by_side_and_come_back_when_room_was_short(
    quoter: LlamaBackend, tmp_path: Path
) -> None:
    """Six floors of two identities, room for about two: each question is right, and no floor is computed twice."""
    driven = Driven(quoter, cells=2304, window=1024, folder=tmp_path)
    parts = {f"code{n}": range(100 + 20 * n, 110 + 20 * n) for n in range(6)}
    floors = {
        name: encoded(quoter, f"You are {('a', 'b')[n % 2] * 20}.\n{codex(part)}")
        for n, (name, part) in enumerate(parts.items())
    }
    for name, ids in floors.items():
        driven.floor(name, ids)
    vaults = dict[int, int]()
    for ticket in range(1, 31):
        name = random.Random(ticket).choice(sorted(parts))
        vaults[ticket] = random.Random(ticket).choice(parts[name])
        driven.ask(ticket, name, encoded(quoter, line(vaults[ticket])), 12, owner=1 + ticket % 3)
        if ticket % 3 == 0:
            driven.finish()
        if ticket == 15:
            driven.loop.handle(Grant(2, 1280, 1024))
    driven.finish()
    assert {end.outcome for end in driven.ends.values()} == {Outcome.DONE}
    assert {ticket: driven.text(ticket) for ticket in vaults} == {ticket: code(at) for ticket, at in vaults.items()}
    tails = sum(len(encoded(quoter, line(vault))) for vault in vaults.values())
    assert driven.loop.counters.computed_tokens <= sum(map(len, floors.values())) + tails
    assert driven.loop.pools.held() <= 1280
    driven.close()
