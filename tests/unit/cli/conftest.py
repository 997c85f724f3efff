"""The command line's tests run `lore` as a process of its own, against the real API on a real socket."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.served import Served, served
from support.waiting import SOON

LORE = Path(sys.executable).parent / "lore"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lore-") as name:
        yield Path(name)


@pytest.fixture
def lorekeep(folder: Path) -> Iterator[Served]:
    with served(folder) as running:
        yield running


@pytest.fixture
def lore(folder: Path) -> Run:
    """`lore("ask", "x")`: the finished process. Its socket is the served one, whether or not anything listens."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [LORE, *arguments],
            env={**os.environ, "LORE_SOCKET": str(folder / "lore.sock"), **environment},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=SOON,
        )

    return run
