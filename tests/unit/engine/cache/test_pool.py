"""A pool: the arithmetic of its cells, where what is promised is reserved and nothing is promised twice; what a dropped
floor gives up; room for a floor that is computed in advance; and a move into another context of llama.cpp.
"""

import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import odd_models
from support.driven import Driven
from support.fake_engine import FakeBackend, FakeMemory
from support.machine import END_EVERY, Machine
from support.vaults import code, line, quoting

from orchestrator.engine.backend import BackendError, Memory
from orchestrator.engine.cache.conservation import check
from orchestrator.engine.cache.pool import Pool, move
from orchestrator.engine.cache.pools import Pools, sequences_of
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import Grant, InferenceJob, Outcome, PutFloor, Urgency, ids_to_bytes
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.prefill_cost import UNSEEN

FLOOR = array("I", range(100))


def pool(cells: int = 500, sequences: int = 5) -> Pool:
    return Pool("code", FakeBackend().open(cells, sequences), lambda _pool, _node: None)


def test_an_empty_pool_has_all_its_cells_but_the_scratch() -> None:
    empty = pool()
    assert (empty.free(), empty.reserved(), empty.idle()) == (500, 0, True)


def test_a_ticket_reserves_its_prompt_and_all_it_may_answer() -> None:
    one = pool()
    assert one.admit(1, FLOOR, 100, 1, 50) is not None
    assert one.free() == 500 - 150
    check(one)


def test_two_tickets_with_the_same_floor_reserve_it_once() -> None:
    one = pool()
    one.admit(1, FLOOR + array("I", [1]), 100, 1, 50)
    one.admit(2, FLOOR + array("I", [2]), 100, 2, 50)
    assert one.free() == 500 - 100 - 2 - 100
    check(one)


def test_what_does_not_fit_is_not_admitted_leaves_nothing_and_says_what_it_wanted() -> None:
    one = pool()
    assert one.admit(1, FLOOR, 100, 1, 401) is None
    assert (one.free(), one.idle(), list(one.tree.nodes())) == (500, True, [])
    assert one.wanted == 100 + 401
    check(one)


def test_who_asks_for_room_round_after_round_makes_nothing_older() -> None:
    one = pool()
    tip = one.admit(1, FLOOR, 100, 1, 0)
    assert tip is not None
    tip.computed = 100
    one.release(1, tip)
    before = one.tree._clock, tip.used
    for _ in range(20):
        assert one.admit(2, FLOOR + array("I", [1]), 100, 1, 401) is None
    assert (one.tree._clock, tip.used) == before


def test_no_more_tickets_enter_than_there_are_sequences() -> None:
    one = pool(cells=5000, sequences=4)
    entered = [one.admit(number, array("I", [number]), 0, 1, 5) is not None for number in range(5)]
    assert entered == [True, True, True, False, False]
    check(one)


def test_a_released_ticket_gives_everything_back() -> None:
    one = pool()
    tip = one.admit(1, FLOOR, 100, 1, 50)
    assert tip is not None
    one.release(1, tip)
    assert one.free() == 500
    check(one)


@given(st.integers(2, 256), st.integers(32, 65_536), st.booleans())
def test_a_pool_has_room_for_one_answer_and_never_more_of_them_than_a_step_has_rows(
    sequences: int, batch: int, ranges: bool
) -> None:
    assert (2 if ranges else 3) <= sequences_of(FakeBackend(ranges=ranges), sequences, batch) <= max(3, batch)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("ranges", [False, True])
def test_with_the_fewest_sequences_that_may_be_set_everybody_is_answered(ranges: bool, constant: bool) -> None:
    machine = Machine(sequences=2, backend=FakeBackend(END_EVERY, ranges=ranges, constant=constant))
    machine.floor("code", range(50))
    for ticket in (1, 2, 3):
        machine.ask(ticket, "code", [ticket, 7], 5)
    machine.finish()
    assert [machine.ends[ticket][0].outcome for ticket in (1, 2, 3)] == [Outcome.DONE] * 3


class Buffered(FakeBackend):
    """Each context has buffers beside its cells, of so many cells' bytes."""

    def __init__(self, buffers: int) -> None:
        super().__init__()
        self.buffers = buffers

    def open(self, cells: int, sequences: int) -> FakeMemory:
        memory = super().open(cells, sequences)
        memory.buffers = int(self.buffers * self.info.kv_bytes_per_token)
        return memory


@given(st.integers(0, 3_000), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12_000)), max_size=12))
def test_pools_with_their_buffers_stay_within_a_grant_that_was_made_for_one_of_them(
    buffers: int, openings: list[tuple[int, int]]
) -> None:
    pools = Pools(Buffered(buffers), 4, lambda *_: None, lambda _: 0.0, lambda: False, lambda: UNSEEN)
    pools.apply(Grant(1, cells=30_000, window=30_000))
    for ticket, (name, need) in enumerate(openings):
        assert pools.opened(str(name), need, ticket) is not None, "idle pools make room"
        held = [one.memory.cells for one in pools.by_name.values()]
        assert sum(held) + buffers * (len(held) - 1) <= 30_000
        assert pools.by_name[str(name)].memory.cells >= need or name in dict(openings[:ticket])


POOL = "lorekeep@v1/vaults"


@pytest.fixture(scope="module")
def quoter(quoter_model: Path) -> Iterator[LlamaBackend]:
    with quoting(quoter_model) as backend:
        yield backend


class Codex:
    """Floors of one codex in one pool, and questions about the vaults in them."""

    def __init__(self, backend: LlamaBackend, **floors: Sequence[int]) -> None:
        self.driven = Driven(backend, cells=8192, window=8192)
        self.floors: dict[str, list[int]] = {}
        self.tickets = 0
        for name, vaults in floors.items():
            self.floors[name] = self._ids("".join(f"{line(vault)}{code(vault)}\n" for vault in vaults))
            self.driven.loop.handle(PutFloor(name, ids_to_bytes(self.floors[name]), POOL))

    def asked(self, floor: str, vault: int) -> int:
        """Cached prompt tokens of a right answer."""
        self.tickets += 1
        self.driven.ask(self.tickets, floor, self._ids(line(vault)), 12)
        self.driven.finish()
        assert self.driven.text(self.tickets) == code(vault)
        return self.driven.ends[self.tickets].cached

    def dropped(self, floor: str) -> int:
        """Cells that became free."""
        before = self.cells()
        self.driven.drop(floor)
        check(self.driven.pool(POOL))
        return before - self.cells()

    def cells(self) -> int:
        return self.driven.pool(POOL).cells_used()

    def _ids(self, text: str) -> list[int]:
        (ids,) = self.driven.backend.encode([text], control=False)
        return list(ids)


def test_the_old_generation_goes_with_its_conversations_and_the_new_one_stays_whole(quoter: LlamaBackend) -> None:
    codex = Codex(quoter, old=range(10, 40), new=[*range(10, 20), *range(40, 60)])
    codex.asked("old", 35)
    codex.asked("new", 55)
    freed = codex.dropped("old")
    assert freed > len(codex.floors["old"]) / 2
    assert codex.cells() < len(codex.floors["new"]) + 60
    assert codex.asked("new", 45) >= len(codex.floors["new"])


def test_a_shorter_floor_goes_without_what_stands_on_the_longer_one(quoter: LlamaBackend) -> None:
    codex = Codex(quoter, base=range(10, 30), log=range(10, 40))
    codex.asked("base", 25)
    codex.asked("log", 35)
    freed = codex.dropped("base")
    assert 0 < freed < 60, "its conversation alone"
    assert codex.asked("log", 33) >= len(codex.floors["log"])


def test_a_longer_floor_goes_without_the_conversations_of_the_shorter_one(quoter: LlamaBackend) -> None:
    codex = Codex(quoter, base=range(10, 30), log=range(10, 40))
    codex.asked("base", 25)
    codex.asked("log", 35)
    assert codex.dropped("log") >= len(codex.floors["log"]) - len(codex.floors["base"])
    assert codex.asked("base", 25) > len(codex.floors["base"]), "its tail too"


def test_of_two_equal_floors_one_goes_and_all_that_stands_stays(quoter: LlamaBackend) -> None:
    codex = Codex(quoter, one=range(10, 30), twin=range(10, 30))
    codex.asked("one", 25)
    assert codex.dropped("one") == 0
    assert codex.asked("twin", 25) > len(codex.floors["twin"]), "the conversation too"


def test_the_last_floor_takes_its_pool_with_it(quoter: LlamaBackend) -> None:
    codex = Codex(quoter, base=range(10, 30))
    codex.asked("base", 25)
    codex.driven.drop("base")
    assert codex.driven.loop.pools.by_name == {}


POOL = "lorekeep@v1/vaults"
SMALL, LARGE = Grant(1, 2048, 2048), Grant(2, 8192, 2048)


@pytest.fixture
def driven(quoter: LlamaBackend) -> Driven:
    """A floor of 1,300 tokens stands in a pool of 2,048 cells, and a new generation of it is known."""
    driven = Driven(quoter, cells=SMALL.cells, window=SMALL.window)
    for name, vaults in (("old", range(10, 70)), ("new", range(12, 72))):
        ids = encoded(driven.backend, "".join(f"{line(vault)}{code(vault)}\n" for vault in vaults))
        assert SMALL.cells / 2 < len(ids) < SMALL.cells - 200
        driven.loop.handle(PutFloor(name, ids_to_bytes(ids), POOL))
    assert cached(driven, 1, "old", 33) == 0
    return driven


def encoded(backend: LlamaBackend, text: str) -> list[int]:
    (ids,) = backend.encode([text], control=False)
    return list(ids)


def cached(driven: Driven, ticket: int, floor: str, vault: int) -> int:
    """Prompt tokens that a right answer did not compute."""
    driven.ask(ticket, floor, encoded(driven.backend, line(vault)), 12)
    driven.finish()
    assert driven.text(ticket) == code(vault)
    return driven.ends[ticket].cached


def in_advance(driven: Driven, ticket: int, floor: str) -> None:
    driven.loop.handle(InferenceJob(ticket, floor, b"", 0, 0, urgency=Urgency.BACKGROUND))


def test_with_room_for_both_the_old_floor_stays_where_it_is(driven: Driven) -> None:
    driven.loop.handle(LARGE)
    in_advance(driven, 2, "new")
    driven.finish()
    assert driven.ends[2].outcome is Outcome.DONE
    assert cached(driven, 3, "old", 35) > 1000
    assert cached(driven, 4, "new", 35) > 1000
    assert driven.loop.counters.evicted_tokens == 0


def test_a_question_is_answered_beside_a_floor_in_advance(driven: Driven) -> None:
    driven.loop.handle(LARGE)
    in_advance(driven, 2, "new")
    driven.round()
    assert cached(driven, 3, "old", 35) > 1000
    driven.finish()
    assert driven.ends[2].outcome is Outcome.DONE


def test_with_room_for_one_the_new_floor_takes_the_old_ones_place(driven: Driven) -> None:
    in_advance(driven, 2, "new")
    driven.finish()
    assert driven.ends[2].outcome is Outcome.DONE
    assert driven.pool(POOL).memory.cells == SMALL.cells
    assert driven.loop.counters.evicted_tokens > 1000
    assert cached(driven, 3, "new", 35) > 1000


def codex(vaults: range) -> str:
    return "".join(f"{line(vault)}{code(vault)}\n" for vault in vaults)


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


@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "sliding", "sliding small"])
def test_a_memory_without_ranges_moves_with_its_anchors(kind: str, tmp_path: Path) -> None:
    name, _, windows = kind.partition(" ")
    path = getattr(odd_models, name)(tmp_path / "model.gguf")
    backend = LlamaBackend(EngineSpec(str(path), threads=1, batch=64, gpu_layers=0, **odd_models.WINDOWS[windows]))
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
    assert not driven.loop.pools.exceed_grant()
    assert sum(pool.memory.cells for pool in driven.loop.pools.by_name.values()) <= 1280
    driven.close()
