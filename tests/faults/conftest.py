"""Faults of the engine's real child, on demand."""

from collections.abc import Callable
from pathlib import Path

import pytest

FAULTY = Path(__file__).resolve().parents[1] / "support" / "faulty_child"


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says how steps of children fail from now on."""
    file = tmp_path / "fault"
    monkeypatch.setenv("PYTHONPATH", str(FAULTY))
    monkeypatch.setenv("FAULT_FILE", str(file))
    monkeypatch.setenv("CHILD_PATIENCE", "1")
    return lambda word: (file.write_text(word), None)[1]
