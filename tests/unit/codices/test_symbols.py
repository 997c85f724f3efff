"""Symbols of a codex as questions meet it: what changed is read again, and nothing else; never what it does not hold."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from support.libraries import fill, request

from codex.catalog.databases import SqliteBytesCache
from codex.library import Library
from orchestrator.codices import symbols as module
from orchestrator.codices.symbols import CodexSymbols
from orchestrator.errors import NotFound, NotReady

FILES = {
    "a.py": "from b import help_it\n\n\ndef run():\n    return help_it()\n",
    "b.py": "def help_it():\n    return 1\n",
}


@dataclass
class House:
    library: Library
    source: Path
    symbols: CodexSymbols
    read: list[str]

    def load(self, files: dict[str, str]) -> None:
        fill(self.source, files)
        self.library.load(request(self.source, name="demo"))

    def callers(self, name: str) -> list[str]:
        return [one.qualified for one in self.symbols.answer("demo", "callers", name).symbols]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    library, remembered = Library(tmp_path / "codices"), SqliteBytesCache(tmp_path / "outlines.sqlite3")
    read: list[str] = []
    facts = module.facts

    def noted(document: Any) -> Any:
        read.append(document.path)
        return facts(document)

    monkeypatch.setattr(module, "facts", noted)
    unbuilt: Any = SimpleNamespace(get=lambda name: None)
    made = House(library, tmp_path / "source", CodexSymbols(library.catalog, unbuilt, remembered), read)
    made.load(FILES)
    yield made
    made.symbols.close()
    remembered.close()
    library.close()


def test_a_codex_answers_by_its_newest_generation_and_reads_only_what_changed(house: House) -> None:
    assert (house.callers("help_it"), house.read) == (["run"], ["a.py", "b.py"])
    house.load({"a.py": "from b import help_it\n\n\ndef walk():\n    return help_it()\n"})
    assert (house.callers("help_it"), house.read) == (["walk"], ["a.py", "b.py", "a.py"])
    assert house.callers("help_it") == ["walk"]
    assert len(house.read) == 3


def test_files_that_are_gone_answer_no_more(house: House) -> None:
    assert house.callers("help_it") == ["run"]
    (house.source / "a.py").unlink()
    house.library.load(request(house.source, name="demo"))
    assert house.callers("help_it") == []
    assert house.symbols.answer("demo", "definition", "run").symbols == ()


def test_what_was_read_once_is_remembered_over_a_restart(house: House) -> None:
    assert house.callers("help_it") == ["run"]
    again = CodexSymbols(house.library.catalog, house.symbols.residents, house.symbols.remembered)
    assert [one.qualified for one in again.answer("demo", "callers", "help_it").symbols] == ["run"]
    assert house.read == ["a.py", "b.py"]
    again.close()


def test_a_memory_that_is_damaged_is_read_anew(house: House) -> None:
    codices = house.library.catalog.generation("demo").entries
    house.symbols.remembered.put([(module._key(one.path, one.digest), b"damaged") for one in codices])
    assert (house.callers("help_it"), house.read) == (["run"], ["a.py", "b.py"])


def test_a_codex_that_takes_long_to_read_refuses_for_now_and_answers_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    let, facts = Event(), module.facts

    def slow(document: Any) -> Any:
        assert let.wait(30)
        return facts(document)

    monkeypatch.setattr(module, "facts", slow)
    house.symbols.patience = 0.01
    with pytest.raises(NotReady, match=r"the symbols of codex demo are being read \(.*\)"):
        house.callers("help_it")
    let.set()
    house.symbols.patience = 30
    assert house.callers("help_it") == ["run"]


def test_an_unknown_codex_is_not_found(house: House) -> None:
    with pytest.raises(NotFound):
        house.symbols.answer("nope", "definition", "run")


def test_a_fault_of_one_reading_is_raised_and_the_next_tries_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = module.facts

    def broken(document: Any) -> Any:
        raise RecursionError(document.path)

    monkeypatch.setattr(module, "facts", broken)
    with pytest.raises(RecursionError):
        house.callers("help_it")
    monkeypatch.setattr(module, "facts", facts)
    assert house.callers("help_it") == ["run"]


def test_a_codex_that_is_built_answers_by_its_own_files(house: House) -> None:
    digests = house.library.catalog.generation("demo").digests()
    only: Callable[[str], Any] = lambda name: SimpleNamespace(digests={"b.py": digests["b.py"]})  # noqa: E731
    built: Any = SimpleNamespace(get=only)
    house.symbols.residents = built
    assert house.callers("help_it") == []
