"""Which whole pool goes first: whose cells are worth least, by what it would take to have again what stands in them."""

from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.machine import Machine

from orchestrator.engine.cache.eviction import Idle, aged, in_order, to_close
from orchestrator.engine.messages import Grant, PutFloor, ids_to_bytes
from orchestrator.engine.messages import InferenceJob as Asked
from orchestrator.engine.prefill_cost import PrefillCost

pools = st.lists(
    st.builds(Idle, st.sampled_from("abcdefgh"), st.integers(1, 40), st.floats(0, 1e6), st.integers(0, 30)),
    max_size=8, unique_by=lambda pool: pool.name,
)  # fmt: skip


@given(pools)
def test_they_leave_in_the_order_of_their_worth_and_of_equal_ones_the_older_first(idle: list[Idle]) -> None:
    left = in_order(idle, now=30)
    worths = [pool.lost_ms / pool.cells / (1 + 30 - pool.used) for pool in left]
    assert worths == sorted(worths)
    assert sorted(pool.name for pool in left) == sorted(pool.name for pool in idle)
    same = [Idle(pool.name, 10, 5.0, pool.used) for pool in idle]
    assert [pool.used for pool in in_order(same, now=30)] == sorted(pool.used for pool in idle)


@given(st.integers(-50, 50), pools, st.integers(0, 200))
def test_as_few_go_as_make_the_room_and_none_where_all_of_them_do_not(free: int, idle: list[Idle], least: int) -> None:
    made = to_close(free, idle, least)
    sums = [free + sum(pool.cells for pool in idle[:count]) for count in range(len(idle) + 1)]
    enough = [count for count, cells in enumerate(sums) if cells >= least]
    assert made == (tuple(idle[: enough[0]]) if enough else None)


@given(st.builds(PrefillCost, st.floats(0.001, 100), st.floats(1e-6, 0.1)), st.integers(0, 100), st.integers(0, 100))
def test_what_is_older_is_worth_less(price: PrefillCost, one: int, other: int) -> None:
    assert (aged(price.per_token(0, 100), one) <= aged(price.per_token(0, 100), other)) == (one >= other)


# ---- the loop --------------------------------------------------------------------------------------------------------


class Library:
    """Idle pools of which it is known what stands in them, when they were used, and what of it is kept."""

    def __init__(self, folder: Path, floors: dict[str, int]) -> None:
        self.machine = Machine(cells=200_000, window=4000, sequences=40, folder=folder, batch=256)
        self.machine.store.restored(1000, 10.0)  # so dear that no idle tail leaves by itself
        self.floors = {name: [kind + 1] * tokens for kind, (name, tokens) in enumerate(floors.items())}
        self.tails = {name: list[int]() for name in floors}
        self.used = dict.fromkeys(floors, 0)
        self.forgotten = set[str]()
        self.tickets = 0
        for name, ids in self.floors.items():
            self.machine.floor(name, ids)

    def ask(self, name: str, tokens: int) -> None:
        self.tickets += 1
        self.tails[name].append(tokens)
        self.used[name] = self.tickets
        self.machine.loop.handle(Asked(self.tickets, name, ids_to_bytes([100 + self.tickets] * tokens), 1, 0))
        self.machine.finish()

    def settle(self, restore_ms: float, forgotten: set[str]) -> None:
        """All is kept but what is forgotten; to bring back a token takes about so long."""
        while self.machine.loop.has_idle_work():
            self.machine.round()
        self.machine.store.flush()
        for name in forgotten & set(self.machine.loop.pools.by_name):
            self.machine.loop.checkpoints.forget_floor(array("I", self.floors[name]), [])
        self.forgotten = forgotten
        self.machine.store.restored(10**9, 10**6 * restore_ms)

    def worth(self, name: str) -> float:
        figures = self.machine.loop.snapshot().counters
        restore = self.machine.store.restore_ms()

        def lost(start: int, end: int) -> float:
            again = figures["ms_per_token_empty"] + figures["ms_per_token_cell"] * (start + end) / 2
            return (end - start) * (again if name in self.forgotten else min(again, restore))

        floor, pool = len(self.floors[name]), self.machine.loop.pools.by_name[name]
        assert pool.cells_used() == floor + sum(self.tails[name])
        total = lost(0, floor) + sum(lost(floor, floor + tail) for tail in self.tails[name])
        return total / pool.memory.cells / (1 + self.tickets - self.used[name])

    def pressed(self) -> str:
        """The pool that goes when one has to."""
        before = set(self.machine.loop.pools.by_name)
        self.machine.loop.handle(Grant(2, self.machine.loop.pools.held() - 256, 4000))
        (gone,) = before - set(self.machine.loop.pools.by_name)
        return gone


lengths = st.fixed_dictionaries({name: st.integers(1, 900) for name in "abcd"})
uses = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 300)), max_size=10)


@few(12)
@given(lengths, uses, st.sets(st.sampled_from("abcd")), st.sampled_from([0.0001, 0.01, 1.0]))
def test_when_the_grant_shrinks_the_pool_goes_that_is_worth_least(
    floors: dict[str, int], used: list[tuple[str, int]], forgotten: set[str], restore_ms: float
) -> None:
    with TemporaryDirectory() as folder:
        library = Library(Path(folder), floors)
        for name, tokens in [*((name, 1) for name in floors), *used]:
            library.ask(name, tokens)
        library.settle(restore_ms, forgotten)
        worths = {name: library.worth(name) for name in floors}
        gone = library.pressed()
        assert worths[gone] <= min(worths.values()) * (1 + 1e-9)
        library.machine.loop.close()


def test_a_pool_that_lies_in_a_tier_goes_before_an_older_one_that_would_be_computed_again(tmp_path: Path) -> None:
    library = Library(tmp_path, {"computed": 800, "kept": 800})
    library.ask("computed", 10)
    library.ask("kept", 10)
    library.settle(0.0001, {"computed"})
    assert library.pressed() == "kept"


def test_of_a_floor_that_two_generations_share_each_cell_that_lies_in_a_tier_is_counted_as_such(tmp_path: Path) -> None:
    machine = Machine(cells=20_000, window=4000, sequences=20, folder=tmp_path)
    machine.store.restored(1000, 10.0)
    shared = [3] * 700
    for ticket, name in enumerate(("old", "new"), start=1):
        ids = [*shared, *[ticket] * 500]
        machine.loop.handle(PutFloor(name, ids_to_bytes(ids), "generations"))
        machine.loop.handle(Asked(ticket, name, ids_to_bytes([9] * 300), 1, 0))
        machine.finish()
    pool = machine.loop.pools.by_name["generations"]
    while machine.loop.has_idle_work():
        machine.round()
    machine.store.flush()
    kept = machine.loop.checkpoints.saved(pool)
    assert {node: node.computed for node in pool.tree.nodes()} == kept
    machine.loop.checkpoints.forget_floor(array("I", [*shared, *[2] * 500]), [])
    left = sum(machine.loop.checkpoints.saved(pool).values())
    assert left - 500 - 300 in (512, 700), "the segment in which they part was kept on one path only"
    machine.loop.close()


def test_of_two_that_lie_in_a_tier_the_older_one_goes(tmp_path: Path) -> None:
    library = Library(tmp_path, {"old": 800, "young": 800})
    library.ask("old", 10)
    library.ask("young", 10)
    library.settle(0.0001, set())
    assert library.pressed() == "old"


def test_what_makes_room_for_a_question_goes_by_the_same_rule(tmp_path: Path) -> None:
    library = Library(tmp_path, {"computed": 800, "kept": 800, "asked": 900})
    library.ask("computed", 10)
    library.ask("kept", 10)
    library.settle(0.0001, {"computed"})
    held = library.machine.loop.pools.held()
    library.machine.loop.handle(Grant(2, held + 256, 4000))
    library.ask("asked", 5)
    assert set(library.machine.loop.pools.by_name) == {"computed", "asked"}
