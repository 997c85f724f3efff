"""What the parts have in common: how much each does, how a daemon is asked, what its processes hold."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
from private_daemon import PrivateDaemon
from report import Row
from support.house import engine_child, over_socket, question

LOOK_S = 0.2  # between two looks at memory and files
MIB = 1 << 20


@dataclass(frozen=True)
class Amount:
    """So many, and at most for so many seconds: a slow machine does fewer, and its row says so."""

    number: int
    seconds: float
    models: Path
    seed: int = 1

    def times(self) -> Iterator[int]:
        ends = time.monotonic() + self.seconds
        for number in range(self.number):
            if time.monotonic() > ends:
                return
            yield number

    def chance(self) -> random.Random:
        return random.Random(self.seed)


def at_least(case: str, figure: str, ours: float, least: float) -> Row:
    return Row(case, figure, ours, goal=f"≥ {least:,.0f}", met=ours >= least)


class Counts(Counter[str]):
    """Counted in several threads."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def one(self, what: str) -> None:
        with self._lock:
            self[what] += 1


@dataclass
class Said:
    """What came of a question: `error` is the code of a refusal, or `gone` where the daemon was."""

    text: str = ""
    lore: Any = field(default_factory=dict)
    error: str = ""


def asked(daemon: PrivateDaemon, text: str, **lore: Any) -> Said:
    """Greedy. Whatever becomes of it is no fault here: who asked decides that."""
    body = {"model": "lore", "messages": [{"role": "user", "content": text}], "max_completion_tokens": 10}
    try:
        with over_socket(daemon) as http:
            answer = http.post("/v1/chat/completions", json={**body, "temperature": 0, "lore": lore})
    except httpx2.HTTPError:
        return Said(error="gone")
    told = answer.json()
    if not answer.is_success:
        return Said(error=told["error"]["code"])
    return Said(told["choices"][0]["message"]["content"].strip(), told["lore"])


def opens(said: Said, code: str) -> bool:
    return said.text.startswith(code)


def asks(vault: str) -> str:
    return question(vault)


def messages(daemon: PrivateDaemon, session: str) -> list[str]:
    """What a session holds; nothing where there is none."""
    with over_socket(daemon) as http:
        answer = http.get(f"/v1/sessions/{session}")
    return [turn["text"] for turn in answer.json()["session"]["turns"]] if answer.is_success else []


# -- what its processes hold


@dataclass
class Held:
    """Private bytes, open files and threads of the daemon and of its engine."""

    daemon: int
    engine: int
    files: int
    threads: int


def held(daemon: PrivateDaemon) -> Held:
    both = [psutil.Process(pid) for pid in (_running(daemon), engine_child(daemon))]
    first, second = (process.memory_full_info().uss for process in both)
    return Held(first, second, sum(one.num_fds() for one in both), sum(one.num_threads() for one in both))


def _running(daemon: PrivateDaemon) -> int:
    assert daemon.process is not None
    return daemon.process.pid


@dataclass
class Peaks:
    """The most that was seen while it was written; bytes. `resident`: RSS."""

    daemon_resident: int = 0
    engine_resident: int = 0
    own: int = 0
    checkpoints: int = 0
    traces: int = 0
    looks: int = 0


@contextmanager
def watched(daemon: PrivateDaemon) -> Iterator[Peaks]:
    """Looks from a thread of its own while the block runs, also through kills and starts."""
    peaks, ended = Peaks(), threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            with suppress(psutil.Error, OSError, AssertionError, ValueError, AttributeError):
                _look(daemon, peaks)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def _look(daemon: PrivateDaemon, peaks: Peaks) -> None:
    peaks.checkpoints = max(peaks.checkpoints, size(daemon.folder / "cache", "*.kv*"))
    peaks.traces = max(peaks.traces, size(daemon.folder / "data", "traces.sqlite3*"))
    first, second = (psutil.Process(pid).memory_full_info() for pid in (_running(daemon), engine_child(daemon)))
    peaks.daemon_resident = max(peaks.daemon_resident, first.rss)
    peaks.engine_resident = max(peaks.engine_resident, second.rss)
    peaks.own = max(peaks.own, first.uss + second.uss)
    peaks.looks += 1


def size(folder: Path, names: str) -> int:
    """Bytes of files of these names; they come and go meanwhile."""
    found = 0
    for path in folder.rglob(names):
        with suppress(OSError):
            found += path.stat().st_size
    return found
