"""Faults of the engine's real child, on demand, and what one that was stopped left on disk."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.real_engine import ask, engine, load

from orchestrator.engine.messages import Completion

FAULTY = Path(__file__).resolve().parents[1] / "support" / "faulty_child"


@pytest.fixture(scope="module", autouse=True)
def _engines_are_forks(forked_engines: None) -> None:
    """A test that asks about the start of the process sets REAL_PROCESSES."""


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says how steps of children fail from now on."""
    file = tmp_path / "fault"
    monkeypatch.setenv("PYTHONPATH", str(FAULTY))
    monkeypatch.setenv("FAULT_FILE", str(file))
    monkeypatch.setenv("CHILD_PATIENCE", "2")  # a step takes milliseconds, and beside other processes a second
    return lambda word: (file.write_text(word), None)[1]


@pytest.fixture(scope="module")  # of a session, its event loop would stay where other tests begin their own
async def first_answer(quoter_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Completion]:
    """The cache folder of an engine that was asked about vault 10 and stopped, and the end of its answer."""
    cache = tmp_path_factory.mktemp("first") / "cache"
    async with engine(quoter_model, cache) as client:
        await load(client)
        _, end = await ask(client, 10)
    return cache, end


@pytest.fixture
def cache(first_answer: tuple[Path, Completion], tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(first_answer[0], tmp_path / "cache")
