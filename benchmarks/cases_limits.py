"""How much at once: many codices, sessions, loads, touched files, checkouts to and fro. Answers stay right meanwhile.

A question is asked again and again while something goes on, on one daemon with the quoting model; its time is held against
the same question's before that began. What other programs take of the machine meanwhile is in both. Files are touched by a
process of its own, also where no codex is: what that costs is the machine's part. Quiet times and others are taken in turns
where they last for minutes.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import psutil
from cases_daemon import client, load
from cases_engine import Bench
from private_daemon import PrivateDaemon, private_daemon
from report import Row, at_most

CODES = {"zebra": "4815162", "walrus": "9273645"}
LEAST_ASKED = 20  # questions of a median
MOST_S = 60.0  # of files that are touched, and of checkouts
TURNS = 3  # that this time is spread over
SLOWER = 2.0  # times their quiet time
MEMORY = 2 << 30  # bytes of daemon and engine
DISK = 1 << 30
PATIENCE_S = 300.0
TOUCH = """
import os, sys, time
from pathlib import Path
times, ends = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < ends:
    for path in Path(sys.argv[1]).rglob("*.py"):
        os.utime(path)
    times += 1
print(times)
"""


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "limits, 40 codices": codices,
        "limits, 300 sessions": sessions,
        "limits, 20 loads at once": loads,
        "limits, a branch to and fro": branches,
        "limits, 10,000 touched files": touched,
        "limits, a million chunks": chunks,
    }


def codices(bench: Bench) -> Iterator[Row]:
    """One after another; then each is asked its own code."""
    case = "40 codices"
    with limits(bench) as asking:
        with asking.meanwhile():
            for number in range(40):
                load(
                    asking.daemon,
                    vaults(asking.folder / f"more{number}", {"heron": f"{number + 5_000_000}"}),
                    f"more{number}",
                )
        wrong = sum(not asking.right(f"more{number}", "heron", f"{number + 5_000_000}") for number in range(40))
        yield at_most(case, "of 40 asked afterwards, each its own code: wrong", wrong, 0, "")
        yield from asking.figures(case)


def sessions(bench: Bench) -> Iterator[Row]:
    """A turn each, twice: the second goes on from the first."""
    case = "300 sessions"
    with limits(bench) as asking:
        with asking.meanwhile():
            wrong = sum(
                not asking.right("vaults", "walrus", CODES["walrus"], session=f"talk-{number % 300}")
                for number in range(600)
            )
        yield at_most(case, "of 600 turns in them: wrong", wrong, 0, "")
        yield from asking.figures(case)


def loads(bench: Bench) -> Iterator[Row]:
    """Of 20 codices with 200 files each."""
    case = "20 loads at once"
    with limits(bench) as asking:
        folders = [modules(asking.folder / f"load{number}", 200, "calm") for number in range(20)]
        with asking.meanwhile(), ThreadPoolExecutor(20) as pool:
            begun = time.perf_counter()
            for one in [pool.submit(asking.load, folder) for folder in folders]:
                one.result()
            taken = time.perf_counter() - begun
        there = asking.http.get("/v1/codices").json()["codices"]
        yield Row(case, "codices afterwards, with the one that is asked", len(there), goal="= 21", met=len(there) == 21)
        yield Row(case, "all of them", taken, unit="s")
        yield from asking.figures(case)


def branches(bench: Bench) -> Iterator[Row]:
    """Of 1,000 files; the vault's code is the branch's once it was taken in. First nobody asks about them, so nobody waits
    for their floor."""
    case = "a branch to and fro, 1,000 files"
    with limits(bench) as asking:
        folder = modules(asking.folder / "tree", 1_000, "calm")
        vaults(folder, {"heron": "6000001"})
        git(folder, "init", "-q", "-b", "main")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "one")
        git(folder, "checkout", "-q", "-b", "other")
        modules(folder, 1_000, "storm")
        vaults(folder, {"heron": "7000002"})
        git(folder, "commit", "-q", "-a", "-m", "two")
        load(asking.daemon, folder, "tree")
        branches = cycle((("main", "6000001"), ("other", "7000002")))
        unasked, taken = list[float](), list[float]()
        for _ in range(TURNS):
            asking.look_on(MOST_S / TURNS)
            with asking.meanwhile(unasked):
                for _code in checkouts(folder, branches, MOST_S / TURNS):
                    time.sleep(1.0)
            with asking.meanwhile():
                taken += [
                    asking.until_right("tree", "heron", code) for code in checkouts(folder, branches, MOST_S / TURNS)
                ]
        yield asking.beside_quiet(case, "an answer meanwhile, p50, where nobody asks about the branch", unasked)
        yield Row(
            case, f"{len(taken)} checkouts: the median until it answers with the new code", median(taken), unit="s"
        )
        yield from asking.figures(case)


def touched(bench: Bench) -> Iterator[Row]:
    """All of them again and again, without a change; then one is changed and found. First others, which no codex has."""
    case = "10,000 touched files"
    with limits(bench) as asking:
        folder = modules(asking.folder / "tree", 10_000, "calm")
        elsewhere = modules(asking.folder / "elsewhere", 10_000, "calm")
        vaults(folder, {"heron": "6000001"})
        begun = time.perf_counter()
        load(asking.daemon, folder, "tree")
        yield Row(case, "their load", time.perf_counter() - begun, unit="s")
        others, times = list[float](), 0
        for _ in range(TURNS):
            asking.look_on(MOST_S / TURNS)
            with asking.meanwhile(others):
                touch(elsewhere, MOST_S / TURNS)
            with asking.meanwhile():
                times += touch(folder, MOST_S / TURNS)
        yield asking.beside_quiet(case, "an answer while others are touched, p50", others)
        yield Row(case, f"times that all were touched in {MOST_S:.0f} s", times)
        yield from asking.figures(case)
        vaults(folder, {"heron": "8000003"})
        yield Row(
            case,
            "afterwards a changed file, until it is answered with",
            asking.until_right("tree", "heron", "8000003"),
            unit="s",
        )


def chunks(bench: Bench) -> Iterator[Row]:
    """50,000 files of twenty functions, 830 MB, and afterwards searches of it. The better part of an hour on two
    cores, and so run only where LIMITS_CHUNKS=1 is set."""
    case = "a million chunks"
    if not os.environ.get("LIMITS_CHUNKS"):
        yield Row(case, "not run without LIMITS_CHUNKS=1", None, note="no figures")
        return
    with limits(bench) as asking:
        folder = long_modules(asking.folder / "tree", 50_000, 20)
        begun = time.perf_counter()
        with asking.meanwhile():
            options = ("--name", "tree", "--tier", "none", "--no-watch")
            codex = asking.daemon.json("load", folder, *options, timeout_s=12 * 3600)["codex"]
        yield Row(case, "their load", time.perf_counter() - begun, unit="s")
        number = codex["indexed_chunks"]
        yield Row(case, "chunks", number, goal="≥ 1,000,000", met=number >= 1_000_000)
        yield from asking.figures(case)
        searches = [asking.searched("tree", f"which function reads member {at} of module {at}") for at in range(20)]
        yield Row(case, "a search of them, p50", median(searches), unit="ms")


# ---- what the cases are made of --------------------------------------------------------------------------------------


@dataclass
class Asking:
    """A daemon with a small codex, which is asked while something goes on."""

    daemon: PrivateDaemon
    http: httpx2.Client
    quiet: list[float] = field(default_factory=list)  # ms, with that codex alone
    busy: list[float] = field(default_factory=list)
    wrong: int = 0
    peak: int = 0  # bytes of both processes that nobody shares

    @property
    def folder(self) -> Path:
        return self.daemon.folder / "sources"

    def right(self, codex: str, vault: str, code: str, session: str = "") -> bool:
        question = {"role": "user", "content": f"The access code of vault {vault} is"}
        body = {"model": f"lore/{codex}", "messages": [question], "max_tokens": 10, "temperature": 0}
        lore = {"session": session} if session else {"record": False}
        answer = self.http.post("/v1/chat/completions", json={**body, "lore": lore})
        if not answer.is_success:
            return False
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text.strip().startswith(code)

    def load(self, folder: Path) -> None:
        """Without a command's process, which would take a third of a second of a core."""
        self.http.post("/v1/codices", json={"path": str(folder), "name": folder.name}).raise_for_status()

    def searched(self, codex: str, query: str) -> float:
        """Milliseconds. Raises HTTPStatusError."""
        begun = time.perf_counter()
        self.http.post("/v1/search", json={"codex": codex, "query": query}).raise_for_status()
        return 1_000 * (time.perf_counter() - begun)

    def until_right(self, codex: str, vault: str, code: str) -> float:
        """Seconds. Raises TimeoutError."""
        begun = time.perf_counter()
        while not self.right(codex, vault, code):
            if time.perf_counter() - begun > PATIENCE_S:
                raise TimeoutError(f"vault {vault} of {codex} was not {code} within {PATIENCE_S:.0f} s")
        return time.perf_counter() - begun

    def timed(self) -> float:
        begun = time.perf_counter()
        self.wrong += not self.right("vaults", "zebra", CODES["zebra"])
        return 1_000 * (time.perf_counter() - begun)

    def until_settled(self) -> None:
        """Raises TimeoutError."""
        begun = time.perf_counter()
        while any(map(is_at_work, self.http.get("/v1/status").json()["codices"])):
            if time.perf_counter() - begun > PATIENCE_S:
                raise TimeoutError(f"floors were not computed within {PATIENCE_S:.0f} s")
            time.sleep(1.0)

    def look_on(self, seconds: float) -> None:
        """A further turn of quiet."""
        with self.meanwhile(self.quiet):
            time.sleep(seconds)

    @contextmanager
    def meanwhile(self, kept: list[float] | None = None) -> Iterator[None]:
        """Asked as long as the block runs, four times a second, once all that was loaded is computed; the times are kept
        there, or as `busy`."""
        self.until_settled()
        over, times = threading.Event(), self.busy if kept is None else kept

        def ask() -> None:
            times.append(self.timed())
            while not over.wait(0.25):
                times.append(self.timed())
                self.peak = max(self.peak, self.memory())

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def memory(self) -> int:
        assert self.daemon.process is not None
        daemon = psutil.Process(self.daemon.process.pid)
        return sum(int(one.memory_full_info().uss) for one in (daemon, *daemon.children()) if one.is_running())

    def beside_quiet(self, case: str, figure: str, times: list[float]) -> Row:
        ratio = median(times) / median(self.quiet)
        return Row(case, figure, median(times), median(self.quiet), "ms", ratio, f"≤ {SLOWER:g} ×", ratio <= SLOWER)

    def figures(self, case: str) -> Iterator[Row]:
        yield at_most(case, f"of {len(self.busy)} answers meanwhile: wrong or missing", self.wrong, 0, "")
        yield self.beside_quiet(case, "an answer meanwhile, p50, beside quiet", self.busy)
        worst = sorted(self.busy)[int(0.95 * (len(self.busy) - 1))]
        yield Row(case, "the same, p95", worst, unit="ms")
        yield at_most(case, "peak of private memory, daemon and engine", self.peak / 1e6, MEMORY / 1e6, "MB")
        written = sum(size(self.daemon.folder / place) for place in ("data", "cache", "state"))
        yield at_most(case, "on disk afterwards", written / 1e6, DISK / 1e6, "MB")


@contextmanager
def limits(bench: Bench) -> Iterator[Asking]:
    with private_daemon(models=bench.model.parent) as daemon, client(daemon) as http:
        asking = Asking(daemon, http)
        load(daemon, vaults(asking.folder / "vaults", CODES), "vaults", "--wait")
        asking.timed()
        asking.quiet = [asking.timed() for _ in range(LEAST_ASKED)]
        yield asking


def is_at_work(codex: dict[str, Any]) -> bool:
    """Whether it is being loaded, compared or computed."""
    return bool(codex["prefill"] or codex["load"] or "being" in codex["fresh"])


def vaults(folder: Path, codes: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for vault, code in codes.items():
        (folder / f"{vault}.py").write_text(f'"""A vault."""\n\n# The access code of vault {vault} is {code}.\n')
    return folder


def modules(folder: Path, number: int, word: str) -> Path:
    return written(folder, (f"def module{at}_0():\n    return '{word}'\n" for at in range(number)))


def long_modules(folder: Path, number: int, functions: int) -> Path:
    """Functions of 26 lines, which are a chunk each, with lines that differ."""
    return written(folder, ("\n\n".join(long_function(at, part) for part in range(functions)) for at in range(number)))


def long_function(module: int, part: int) -> str:
    lines = [f"    total += rows[{line}].member{(module * 31 + part * 7 + line) % 9973}" for line in range(24)]
    return "\n".join((f"def module{module}_{part}(rows, total=0):", *lines, "    return total\n"))


def written(folder: Path, texts: Iterable[str]) -> Path:
    for at, text in enumerate(texts):
        place = folder / f"part{at // 500:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"module{at}.py").write_text(text)
    return folder


def touch(folder: Path, seconds: float) -> int:
    """How many times all files were touched, by another process: it must not take this one's lock from who asks."""
    command = [sys.executable, "-P", "-c", TOUCH, str(folder), str(seconds)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)


def checkouts(folder: Path, branches: Iterator[tuple[str, str]], seconds: float) -> Iterator[str]:
    """One branch after the other is checked out; the code that its vault has then."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        branch, code = next(branches)
        git(folder, "checkout", "-q", branch)
        yield code


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
