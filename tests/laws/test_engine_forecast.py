"""What is foretold of a prompt is what its ticket then has: of cells, of checkpoints, and computed."""

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.fake_engine import FakeBackend
from support.machine import END_EVERY, Machine

from orchestrator.engine.messages import Admitted, DropFloor, Grant, Matched, PrefixMatch, Reuse, Tier, ids_to_bytes

KINDS = {"ranges": {}, "joined": {"ranges": False}, "constant": {"ranges": False, "constant": True}}
CODICES = {"code": [n % 50 for n in range(600)], "more": [n % 50 for n in range(700)], "other": [9] * 300}
GRANT = 60_000


class Told:
    """A machine in whose tiers nothing is on its way, and what is foretold and then had there."""

    def __init__(self, kind: str, folder: Path | None) -> None:
        self.machine = Machine(
            cells=GRANT, window=4000, sequences=40, batch=96, folder=folder,
            backend=FakeBackend(END_EVERY, **KINDS[kind]),
        )  # fmt: skip
        for name, ids in CODICES.items():
            self.machine.floor(name, ids)
        self.tickets = 0

    def still(self) -> None:
        while self.machine.loop.has_idle_work():
            self.machine.round()
        if self.machine.store is not None:
            self.machine.store.flush()

    def foretold(self, floor: str, tail: list[int], most: int, owner: int) -> tuple[tuple[Reuse, ...], int]:
        self.machine.loop.handle(PrefixMatch(1, floor, ids_to_bytes(tail), owner, most))
        answer = self.machine.told[-1]
        assert isinstance(answer, Matched), "it is answered at once, whatever else the loop has to do"
        return answer.reuse, answer.length

    def had(self, floor: str, tail: list[int], most: int, owner: int) -> tuple[tuple[Reuse, ...], int]:
        """Asks; what the ticket was admitted with, and how many tokens nobody computed for it, when it was alone."""
        self.tickets += 1
        self.machine.ask(self.tickets, floor, tail, most, owner)
        self.machine.finish()
        (admitted,) = (one for one in self.machine.told if isinstance(one, Admitted) and one.ticket == self.tickets)
        return admitted.reuse, self.machine.ends[self.tickets][0].cached


@pytest.fixture(params=KINDS)
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Told]:
    made = Told(request.param, tmp_path)
    yield made
    made.machine.loop.close()


def tiers_of(reuse: tuple[Reuse, ...]) -> list[Tier]:
    return [part.tier for part in reuse]


def test_on_an_empty_machine_all_of_it_is_computed(told: Told) -> None:
    assert told.foretold("other", [1], 5, 1) == ((Reuse(0, 301, Tier.COMPUTED),), 0)


def test_after_a_restart_a_floor_is_foretold_from_the_disk_and_its_question_to_be_computed(told: Told) -> None:
    told.had("code", [1, 2, 3], 5, 1)
    told.machine.restart()
    reuse, ready = told.foretold("code", [4, 5], 5, 1)
    assert (ready, {part.tier for part in reuse}) == (600, {Tier.DISK, Tier.COMPUTED})
    assert (reuse, ready) == told.had("code", [4, 5], 5, 1)


def test_what_a_smaller_grant_took_is_foretold_from_the_disk(tmp_path: Path) -> None:
    one = Told("ranges", tmp_path)
    one.had("code", [1, 2, 3], 5, 1)
    one.machine.loop.handle(Grant(2, 0, 4000))
    one.machine.loop.handle(Grant(3, GRANT, 4000))
    reuse, ready = one.foretold("code", [1, 2, 9], 5, 1)
    assert (tiers_of(reuse), ready) == ([Tier.DISK] * 4 + [Tier.COMPUTED], 602)
    assert (reuse, ready) == one.had("code", [1, 2, 9], 5, 1)


def test_a_prompt_asked_again_computes_its_last_token_where_an_answer_is_wanted_and_else_none(told: Told) -> None:
    told.had("code", [1, 2, 3], 0, 1)
    assert told.foretold("code", [1, 2, 3], 0, 1) == ((Reuse(0, 603, Tier.VRAM),), 603)
    assert told.foretold("code", [1, 2, 3], 5, 1) == told.had("code", [1, 2, 3], 5, 1)


def test_what_another_ticket_computes_is_told_as_to_be_computed_as_far_as_it_is_not_yet() -> None:
    one = Told("ranges", None)
    one.machine.ask(50, "code", [1], 5, 1)
    one.machine.round()
    reuse, ready = one.foretold("code", [2], 5, 1)
    assert reuse == (Reuse(0, ready, Tier.VRAM), Reuse(ready, 601, Tier.COMPUTED))
    assert 0 < ready < 600


@pytest.mark.parametrize(
    ("tail", "owner", "most", "length"),
    [
        ([7, 8, 9], 1, 5, 602),
        ([7, 9], 1, 5, 601),
        ([7, 8], 2, 5, 600),
        ([], 1, 0, 600),
        ([], 1, 5, 599),
        ([7, 8], 1, 5, 601),
    ],
)
def test_what_is_in_cells_is_told_for_its_owner(tail: list[int], owner: int, most: int, length: int) -> None:
    one = Told("ranges", None)
    one.had("code", [7, 8], 0, 1)
    computed = [Reuse(length, 600 + len(tail), Tier.COMPUTED)] if length < 600 + len(tail) else []
    assert one.foretold("code", tail, most, owner) == ((Reuse(0, length, Tier.VRAM), *computed), length)


def test_of_a_floor_that_was_dropped_and_of_an_unknown_one_nothing_is_told() -> None:
    one = Told("ranges", None)
    one.had("code", [1], 0, 1)
    one.machine.loop.handle(DropFloor("code"))
    assert one.foretold("code", [], 0, 1) == one.foretold("never named", [], 0, 1) == ((), 0)


tails = st.lists(st.integers(1, 2), min_size=1, max_size=6).map(
    lambda runs: [token for token in runs for _ in range(70)]
)
asks = st.tuples(st.sampled_from(sorted(CODICES)), tails, st.sampled_from([0, 1, 8]), st.sampled_from([1, 2]))
events = st.sampled_from(["", "", "again", "restart", "kill", "evict", "shrink", "drop"])


@few(20)
@given(
    st.lists(st.tuples(asks, events), min_size=1, max_size=8), st.sampled_from(sorted(KINDS)), st.booleans(),
    st.integers(0, 2**32),
)  # fmt: skip
def test_what_is_foretold_is_what_the_ticket_then_has(
    script: list[tuple[tuple[str, list[int], int, int], str]], kind: str, disk: bool, seed: int
) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory() as folder:
        told = Told(kind, Path(folder) if disk else None)
        for asked, event in script:
            told.still()
            foretold_of_it = told.foretold(*asked)
            had = told.had(*asked)
            assert foretold_of_it == had
            happen(told, event, asked, chance)
        told.machine.loop.close()


def happen(told: Told, event: str, asked: tuple[str, list[int], int, int], chance: random.Random) -> None:
    machine = told.machine
    if event == "again":
        floor, tail, _, owner = asked
        told.still()
        follow = [*tail, *machine.answer(told.tickets), 7]
        assert told.foretold(floor, follow, 3, owner) == told.had(floor, follow, 3, owner)
    elif event == "restart":
        machine.restart()
    elif event == "kill":
        told.still()
        store = machine.store
        machine.start()
        if store is not None:
            store.close()
    elif event == "evict":
        for pool in machine.loop.pools.by_name.values():
            while (tip := pool.tree.stalest()) is not None and chance.random() < 0.8:
                pool.tree.evict(tip)
    elif event == "shrink":
        machine.loop.handle(Grant(2, chance.choice([0, 1024]), 4000))
        machine.loop.handle(Grant(3, GRANT, 4000))
    elif event == "drop":
        machine.loop.handle(DropFloor(asked[0]))
        machine.floor(asked[0], CODICES[asked[0]])
