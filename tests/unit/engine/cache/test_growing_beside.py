"""A floor that is computed in advance stands beside the one that is asked on now, where the grant has room for both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.driven import Driven
from support.vaults import code, line, quoting

from orchestrator.engine.llama.memory import LlamaBackend
from orchestrator.engine.messages import Grant, InferenceJob, Outcome, PutFloor, Urgency, ids_to_bytes

POOL = "lorekeep@v1/vaults"
SMALL, LARGE = Grant(1, 2048, 2048), Grant(2, 8192, 2048)


@pytest.fixture(scope="module")
def quoter(quoter_model: Path) -> Iterator[LlamaBackend]:
    with quoting(quoter_model) as backend:
        yield backend


@pytest.fixture
def driven(quoter: LlamaBackend) -> Driven:
    """A floor of 1,300 tokens stands in a pool of 2,048 cells, and a new generation of it is known."""
    driven = Driven(quoter, cells=SMALL.cells, window=SMALL.window)
    for name, vaults in (("old", range(10, 70)), ("new", range(12, 72))):
        ids = encoded(driven, "".join(f"{line(vault)}{code(vault)}\n" for vault in vaults))
        assert SMALL.cells / 2 < len(ids) < SMALL.cells - 200
        driven.loop.handle(PutFloor(name, ids_to_bytes(ids), POOL))
    assert cached(driven, 1, "old", 33) == 0
    return driven


def encoded(driven: Driven, text: str) -> list[int]:
    (ids,) = driven.backend.encode([text], control=False)
    return list(ids)


def cached(driven: Driven, ticket: int, floor: str, vault: int) -> int:
    """Prompt tokens that a right answer did not compute."""
    driven.ask(ticket, floor, encoded(driven, line(vault)), 12)
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
