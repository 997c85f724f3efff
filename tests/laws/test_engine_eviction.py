"""What goes first, in the cells and in the tiers: what is worth least, by the cost of computing it again and by its age."""

from array import array

from hypothesis import given
from hypothesis import strategies as st
from support.fake_engine import FakeBackend

from orchestrator.engine.backend import Run
from orchestrator.engine.cache.conservation import check
from orchestrator.engine.cache.eviction import retention_value
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.checkpoints.file import SegmentHeader, file_size, usable
from orchestrator.engine.checkpoints.store import CheckpointStore, Index, checkpoint_name
from orchestrator.engine.prefill_cost import UNSEEN, PrefillCost

PRICES = st.builds(PrefillCost, st.floats(0.001, 100), st.floats(1e-6, 0.1))
PLACES = st.integers(0, 100_000)
LENGTHS = st.integers(1, 5000)
AGES = st.integers(0, 10_000)


# ---- the rule --------------------------------------------------------------------------------------------------------


@given(PRICES, PLACES, PLACES, LENGTHS, AGES)
def test_at_equal_age_what_is_cheap_to_compute_is_worth_less(price, one, other, length, age):
    shallow, deep = sorted((one, other))
    mine, yours = (retention_value(price, start, start + length, age) for start in (shallow, deep))
    assert mine <= yours
    assert mine < yours or price.per_token(shallow, shallow + length) == price.per_token(deep, deep + length)


@given(PRICES, PLACES, LENGTHS, AGES, AGES)
def test_at_equal_cost_what_is_older_is_worth_less(price, start, length, one, other):
    young, old = sorted((one, other))
    assert retention_value(price, start, start + length, old) <= retention_value(price, start, start + length, young)
    assert one == other or retention_value(price, start, start + length, old) < retention_value(
        price, start, start + length, young
    )


@given(PRICES, PLACES, LENGTHS)
def test_a_token_on_average_costs_what_all_of_its_range_cost_together(price, start, length):
    one_by_one = sum(price.empty + price.cell * (at + 0.5) for at in range(start, start + length))
    assert abs(price.per_token(start, start + length) * length - one_by_one) < 1e-6 * one_by_one


# ---- cells -----------------------------------------------------------------------------------------------------------


def stood(pool: Pool, ticket: int, ids: list[int]) -> None:
    """A prompt that was computed and is used by nobody any more."""
    compute(pool, ticket, ids)
    leave(pool, ticket, ids)


TIPS = {}


def compute(pool: Pool, ticket: int, ids: list[int]) -> None:
    tip = TIPS[pool, ticket] = pool.admit(ticket, array("I", ids), 0, 1, 0)
    assert tip is not None
    for node in tip.path():
        if not node.complete:
            pool.memory.decode([Run(pool.tree.attach(node), node.computed_end, node.ids, output=False)])
            node.computed = len(node.ids)


def leave(pool: Pool, ticket: int, ids: list[int]) -> None:
    pool.release(ticket, TIPS.pop((pool, ticket)))


def pool_at(price: PrefillCost) -> Pool:
    return Pool("code", FakeBackend().open(20_000, 12), lambda _pool, _node: None, lambda: price)


def order(pool: Pool) -> list[int]:
    """The first tokens of what is evicted, in that order."""
    gone = []
    while (tip := pool.tree.stalest()) is not None:
        gone.append(tip.path()[0].ids[0])
        pool.tree.evict(tip)
        check(pool)
    return gone


@given(PRICES, st.lists(st.integers(1, 400), min_size=1, max_size=8), st.data())
def test_cells_go_in_the_order_of_their_worth_and_leased_ones_never(price, lengths, data):
    pool = pool_at(price)
    leased = data.draw(st.sets(st.integers(0, len(lengths) - 1)))
    for ticket, length in enumerate(lengths):
        compute(pool, ticket, [ticket + 1] * length)
    for ticket in data.draw(st.permutations(range(len(lengths)))):
        if ticket not in leased:
            leave(pool, ticket, [])
    now = pool.tree._clock
    naive = sorted(
        (price.empty + price.cell * len(node.ids) / 2) / (1 + now - node.used)
        for node in pool.tree.nodes()
        if not node.ref_count
    )
    found = []
    while (tip := pool.tree.stalest()) is not None:
        assert not tip.ref_count
        found.append(retention_value(price, tip.start, tip.computed_end, now - tip.used))
        pool.tree.evict(tip)
        check(pool)
    assert found == sorted(found)
    assert len(found) == len(naive) == len(lengths) - len(leased)
    assert all(abs(one - other) <= 1e-9 * one for one, other in zip(naive, found, strict=True))


def test_what_the_machine_taught_decides_between_old_and_deep_and_young_and_shallow():
    steep, flat = PrefillCost(1.0, 1.0), PrefillCost(1.0, 0.0)
    for price, first in ((steep, 2), (flat, 1)):
        pool = pool_at(price)
        stood(pool, 1, [1] * 3000)
        stood(pool, 2, [2] * 10)
        assert order(pool)[0] == first


# ---- tiers -----------------------------------------------------------------------------------------------------------


def chain(kind: int, length: int, start: int = 0, parent: str = "root") -> SegmentHeader:
    ids = array("I", [kind] * length)
    return SegmentHeader("root", checkpoint_name(parent, ids), parent, start, start + length, ids)


def leaving(index: Index, price: PrefillCost) -> list[str]:
    names = []
    for kept in index.leaving(price):
        names.append(kept.header.name)
        index.remove(kept.header.name)
    return names


@given(PRICES, st.lists(st.tuples(st.integers(0, 5), st.integers(1, 300)), min_size=1, max_size=20), st.data())
def test_segments_leave_worth_least_first_and_none_before_what_goes_on_from_it(price, made, data):
    index, ends = Index("root"), {"root": 0}
    for number, (depth, length) in enumerate(made):
        parent = list(ends)[depth % len(ends)]
        head = chain(number, length, ends[parent], parent)
        index.use(head)
        ends[head.name] = head.end
    for name in data.draw(st.lists(st.sampled_from([name for name in ends if name != "root"]), max_size=20)):
        index.use(index.get(name).header)
    there = {name: index.get(name) for name in ends if name != "root"}
    now, parents = index._clock, {name: kept.header.parent for name, kept in there.items()}
    for name in leaving(index, price):
        ends_of_chains = [one for one in there if one not in {parents[other] for other in there}]
        worths = {
            one: retention_value(price, there[one].header.start, there[one].header.end, now - there[one].used)
            for one in ends_of_chains
        }
        assert name in ends_of_chains
        assert worths[name] == min(worths.values())
        del there[name]
    assert not there


def test_what_lies_behind_a_gap_leaves_before_all_others():
    index = Index("root")
    first = chain(1, 10)
    second = chain(1, 10, 10, first.name)
    third = chain(1, 10, 20, second.name)
    other = chain(2, 10)
    for header in (other, first, second, third):
        index.use(header)
    index.remove(first.name)
    assert leaving(index, UNSEEN) == [second.name, third.name, other.name]


def test_a_store_over_its_budget_keeps_the_deep_and_evicts_the_shallow_where_depth_is_dear(tmp_path):
    for price, kept in ((PrefillCost(1.0, 1.0), "deep"), (PrefillCost(1.0, 0.0), "shallow")):
        deep, shallow, newest = chain(1, 10, start=3000), chain(2, 10), chain(3, 10)
        folder = tmp_path / kept
        assert usable(folder)
        store = CheckpointStore("root", folder, 5 * file_size(newest, b"s" * 1000) // 2)
        for header in (deep, shallow, newest):
            store.keep(header, b"s" * 1000, price)
        assert store.holds(newest.name)
        assert store.holds({"deep": deep, "shallow": shallow}[kept].name)
        assert not store.holds({"deep": shallow, "shallow": deep}[kept].name)
        store.close()
