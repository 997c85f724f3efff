"""A floor that is dropped gives up the cells that only it and its conversations could use; what others share stays."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.driven import Driven
from support.vaults import code, line, quoting

from orchestrator.engine.cache.conservation import check
from orchestrator.engine.llama.memory import LlamaBackend
from orchestrator.engine.messages import PutFloor, ids_to_bytes

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
