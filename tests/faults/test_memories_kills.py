"""The process that writes memories is killed again and again: what it had promised is there, and nothing is half."""

import multiprocessing
import os
import re
import signal
import sqlite3
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from orchestrator.cli.memory import replace_with
from orchestrator.karma.changes import IMPORT
from orchestrator.karma.records import CodeCitation, Kind, MemoryState, NewMemory
from orchestrator.karma.store import MemoryStore

ME = 1000
KILLS = int(os.environ.get("LORE_SOAK_KILLS", "20"))
CITED = (CodeCitation("src/a.py", 1, 9, "ab" * 32), CodeCitation("src/b.py"))


def write_until_killed(path: Path, run: int, told: Connection) -> None:
    """Each value of one attribute supersedes the one before: two rows, two citations and the index in one transaction."""
    store = MemoryStore(path)
    for turn in range(1_000_000):
        new = NewMemory(ME, Kind.FACT, f"The port is {run} {turn}.", subject="port", attribute="number", evidence=CITED)
        told.send(store.add(new).id)


def test_after_many_kills_in_mid_write_nothing_promised_is_lost_and_nothing_is_half(tmp_path: Path) -> None:
    path = tmp_path / "memories.sqlite3"
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["orchestrator.karma.store"])
    promised: list[str] = []
    for run in range(KILLS):
        here, there = processes.Pipe(duplex=False)
        writer = processes.Process(target=write_until_killed, args=(path, run, there))
        writer.start()
        there.close()
        promised += [here.recv() for _ in range(1 + run % 3)]  # the next write is under way when it is killed
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        promised += rest_of(here)
    store = MemoryStore(path)
    found = store.all_of(ME)
    states = [one.state for one in found]
    store.close()
    assert set(promised) <= {one.id for one in found}
    assert len(found) <= len(promised) + KILLS, "of each run at most the write that nobody was told of"
    assert states == [MemoryState.NEW] + [MemoryState.SUPERSEDED] * (len(found) - 1)
    assert all(one.evidence == CITED for one in found)
    check_index(path, len(found))


BATCH = 60


def import_until_killed(path: Path, run: int, told: Connection, key: bytes = b"") -> None:
    store = MemoryStore(path, key=key)
    for turn in range(1_000_000):
        bodies = [NewMemory(ME, Kind.FACT, f"Fact {run} {turn} {number}.", source=IMPORT) for number in range(BATCH)]
        told.send(store.add_all(ME, bodies))


def export_until_killed(path: Path, run: int, told: Connection) -> None:
    for turn in range(1_000_000):
        replace_with(path, f"{run} {turn} " + "x" * 200_000 + "\n")
        told.send(turn)


def killed(work: Callable[[Path, int, Connection], None], path: Path, run: int) -> int:
    """How often it told of a whole before it was killed in the next one."""
    processes = multiprocessing.get_context("forkserver")
    here, there = processes.Pipe(duplex=False)
    worker = processes.Process(target=work, args=(path, run, there))
    worker.start()
    there.close()
    first = [here.recv() for _ in range(1 + run % 3)]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    return len(first) + len(rest_of(here))


@pytest.mark.parametrize("key", [b"", b"k" * 32], ids=["plain", "encrypted"])
def test_an_import_that_is_killed_is_there_whole_or_not_at_all(tmp_path: Path, key: bytes) -> None:
    path = tmp_path / "memories.sqlite3"
    whole = sum(killed(partial(import_until_killed, key=key), path, run) for run in range(8))
    store = MemoryStore(path, key=key)
    count = len(store.all_of(ME))
    store.close()
    assert count % BATCH == 0
    assert whole <= count // BATCH <= whole + 8


def test_an_exported_file_is_whole_however_often_the_export_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "fact-0123456789.md"
    for run in range(12):
        killed(export_until_killed, path, run)
        assert re.fullmatch(rf"{run} \d+ x{{200000}}\n", path.read_text())
    replace_with(path, "mended")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def rest_of(here: Connection) -> list[str]:
    """What it had told before it died."""
    rest = []
    while True:
        try:
            rest.append(here.recv())
        except EOFError:
            return rest


def check_index(path: Path, count: int) -> None:
    """The index holds the same words as the table, and the file is whole."""
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")  # raises where they differ
    assert database.execute("SELECT count(*) FROM words WHERE words MATCH 'port'").fetchone() == (count,)
    database.close()
