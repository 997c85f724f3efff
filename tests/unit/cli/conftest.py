"""The command line's tests run its entry point against the real API on a real socket.

`lore` runs it in this process, which takes a twentieth of the time; `lore_process` in one of its own, for signals and what
is written at a process's end.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from support.served import Served, served
from support.waiting import SOON

from orchestrator.cli import main

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
def environment(folder: Path) -> dict[str, str]:
    """The served socket, whether or not anything listens, and no file of who runs the tests."""
    return {**os.environ, "LORE_SOCKET": str(folder / "lore.sock"), "XDG_STATE_HOME": str(folder / "state")}


@pytest.fixture
def lore(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`lore("ask", "x")`: what a finished process of the command would say. Its streams are real files."""
    place = tmp_path_factory.mktemp("streams")

    def run(*arguments: str, stdin: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        given = place / "stdin"
        given.write_text(stdin or "")
        with (
            (Path(os.devnull) if stdin is None else given).open() as source,
            (place / "stdout").open("w+") as out,
            (place / "stderr").open("w+") as err,
            pytest.MonkeyPatch.context() as patch,
        ):
            for name in ("stdin", "stdout", "stderr"):
                patch.setattr(sys, name, {"stdin": source, "stdout": out, "stderr": err}[name])
            patch.setattr(sys, "argv", ["lore", *arguments])
            patch.setattr(sys, "excepthook", sys.excepthook)
            with mock.patch.dict(os.environ, {**environment, **more}, clear=True):
                status = exit_status()
            for stream in (out, err):
                stream.flush()
                stream.seek(0)
            return subprocess.CompletedProcess([LORE, *arguments], status, out.read(), err.read())

    return run


def exit_status() -> int:
    """Of the entry point, as the interpreter makes it of what ends a program."""
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:  # noqa: BLE001 - what the interpreter would catch
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the command's own is for what comes after it
    return 0


@pytest.fixture
def lore_process(environment: dict[str, str]) -> Run:
    """`lore_process("ask", "x")`: the finished process."""

    def run(*arguments: str, stdin: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [LORE, *arguments],
            env={**environment, **more},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=SOON,
        )

    return run
