"""The laws of memories on disk: states change along their table alone, no memory comes or goes unsaid, users stay apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as some

from orchestrator.errors import Conflict
from orchestrator.karma.changes import MERGED_WITHIN_S
from orchestrator.karma.records import KINDS, DecisionOutcome, Kind, MemoryRecord, MemoryState, NewMemory
from orchestrator.karma.store import MemoryStore

USERS = (1000, 1001)
TEXTS = ("The cache is Redis.", "the cache is redis", "The cache is Memcached.", "Never push to main.")

additions = some.builds(
    NewMemory,
    uid=some.sampled_from([*USERS, *USERS[:1] * 2]),
    kind=some.sampled_from([*Kind, *[Kind.FACT] * 6]),  # of facts most can go wrong
    text=some.sampled_from(TEXTS),
    codex=some.sampled_from([None, None, "lore"]),
    subject=some.just("cache"),
    attribute=some.sampled_from(["engine", "engine", ""]),
    created=some.none() | some.floats(0, 1_000_000),
    state=some.sampled_from([None, MemoryState.PROPOSED]),
)
CHANGES = ("confirm", "retire", "outcome", "up", "down", "consecrate", "forget", *MemoryState)
steps = some.lists(
    additions | some.tuples(some.sampled_from(CHANGES), some.integers(0, 5), some.floats(0, 2 * MERGED_WITHIN_S)),
    min_size=4,
    max_size=25,
)


@dataclass
class Ticking:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """A store, and every memory as it was last seen."""

    store: MemoryStore
    clock: Ticking
    seen: dict[str, MemoryRecord] = field(default_factory=dict)

    def take(self, step: NewMemory | tuple[str, int, float]) -> tuple[set[str], set[str]]:
        """Gives which ids may have come and which may have gone by it."""
        if isinstance(step, NewMemory):
            return {self.store.add(step).id}, set()
        do, place, later = step
        self.clock.now += later
        if not self.seen:
            return set(), set()
        record = list(self.seen.values())[place % len(self.seen)]
        gone = {record.id} if do == "forget" else set()
        try:
            self._change(record.uid, record.id, do)
        except Conflict:
            return set(), set()
        return set(), gone

    def _change(self, uid: int, one: str, do: str) -> None:
        match do:
            case "confirm" | "retire" | "consecrate" | "forget":
                getattr(self.store, do)(uid, one)
            case "outcome":
                self.store.set_outcome(uid, one, DecisionOutcome.SUCCESS)
            case "up" | "down":
                self.store.rate(uid, one, up=do == "up")
            case _:
                self.store.change(uid, one, MemoryState(do))

    def all(self) -> Mapping[str, MemoryRecord]:
        return {one.id: one for uid in USERS for one in self.store.all_of(uid)}


@settings(deadline=None)
@given(taken=steps)
def test_states_change_along_their_table_and_no_memory_comes_or_goes_unsaid(
    taken: list[NewMemory | tuple[str, int, float]],
) -> None:
    with TemporaryDirectory() as folder:
        world = World(MemoryStore(Path(folder) / "memories.sqlite3", clock := Ticking()), clock)
        for step in taken:
            came, gone = world.take(step)
            now = world.all()
            assert now.keys() == (world.seen.keys() | came) - gone
            for one in now.keys() & world.seen.keys():
                check_step(world.seen[one], now[one])
            check_whole(now)
            world.seen = dict(now)
        check_figures(world)
        world.store.close()


def check_step(before: MemoryRecord, after: MemoryRecord) -> None:
    """What a memory says and whose it is stand; its state stands or follows the table."""
    assert (before.uid, before.kind, before.text, before.codex) == (after.uid, after.kind, after.text, after.codex)
    assert before.state is after.state or KINDS[after.kind].may_become(before.state, after.state)


def check_whole(memories: Mapping[str, MemoryRecord]) -> None:
    """A successor is the same user's, of the same codex, about the same; of an attribute one value stands; trust is between
    0 and 1."""
    current = [(one.uid, one.codex, one.subject, one.attribute) for one in memories.values() if stands(one)]
    assert len(current) == len(set(current))
    for one in memories.values():
        assert 0.0 <= one.trust <= 1.0
        then = memories.get(one.successor)
        if then is not None:
            assert (then.uid, then.codex, then.subject, then.attribute) == (
                one.uid,
                one.codex,
                one.subject,
                one.attribute,
            )


def stands(one: MemoryRecord) -> bool:
    return bool(one.attribute) and one.kind is Kind.FACT and one.is_shown and one.state is not MemoryState.SUPERSEDED


def check_figures(world: World) -> None:
    """Each user has all of theirs."""
    for uid in USERS:
        assert len(world.store.all_of(uid)) == sum(one.uid == uid for one in world.seen.values())
