"""Servers that restore a conversation's KV from slot files of llama-server, beside ours: one text, the same questions."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cases_engine import ROOM, Bench, stopping, thousands
from ours import Ours
from peers.environments import NotInstalled
from peers.slot_files import Hearth, Reply, Stillwarm, TextServer
from report import Row

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = [f"\n\n# What does {name} do?\n" for name in ("load", "walk", "cut", "read")]
MIB = 1 << 20
LONG = 128  # tokens of the answer that another conversation meets


class Lorekeep:
    """Our engine, asked with texts."""

    def __init__(self, model: Path, cells: int, folder: Path, threads: int) -> None:
        self.engine = Ours(model, cells, threads=threads, folder=folder)

    def ask(self, turns: Sequence[str], tokens: int, *, slot: int = 0) -> Reply:
        del slot
        floor, *tail = self.engine.encode(turns)
        running = self.engine.ask(floor, [one for turn in tail for one in turn], tokens)
        answer = running.answer()
        return Reply(answer.first_s, answer.total_s, answer.computed, running.text)

    def stop(self) -> None:
        self.engine.stop()


@dataclass(frozen=True)
class Lives:
    cold: Reply
    goes_on: Reply  # after a restart
    another: Reply  # after the next
    second: Reply  # while an answer runs
    disk_bytes: int


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"a restart, beside slot files": restarts}


def restarts(bench: Bench) -> Iterator[Row]:
    document = text(bench)
    ours = three_lives(bench, Lorekeep, document)
    for kind in (Hearth, Stillwarm):
        try:
            theirs = three_lives(bench, kind, document)
        except NotInstalled as error:
            yield Row(f"beside {kind.name}", str(error), None, note="not there")
            continue
        yield from rows(f"{thousands(bench.depth)} beside {kind.name}", ours, theirs)


def text(bench: Bench) -> str:
    """Sources of ours, of about as many tokens as the floor of the other rows."""
    whole = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "orchestrator").rglob("*.py"))[:80])
    with stopping(Ours(bench.model, ROOM)) as engine:
        (ids,) = engine.encode([whole])
    return whole[: len(whole) * bench.depth // len(ids)]


def three_lives(bench: Bench, kind: Callable[[Path, int, Path, int], TextServer], document: str) -> Lives:
    """One server, started three times: a cold question; the conversation goes on; others ask."""
    first, on, other, last = QUESTIONS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def started() -> TextServer:
            return kind(bench.model, bench.depth + ROOM, folder, bench.threads)

        with stopping(started()) as server:
            cold = server.ask([document, first], 1)
        with stopping(started()) as server:
            goes_on = server.ask([document, first, cold.text, on], 1)
        with stopping(started()) as server:
            another = server.ask([document, other], 1)
            with ThreadPoolExecutor() as pool:
                running = pool.submit(server.ask, [document, on], LONG)
                time.sleep(0.5)  # by then it answers: its document is restored or in a slot
                second = server.ask([document, last], 1, slot=1)
                running.result()
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Lives(cold, goes_on, another, second, size)


def rows(case: str, ours: Lives, theirs: Lives) -> Iterator[Row]:
    pairs = {
        "cold": (ours.cold, theirs.cold),
        "after a restart, the conversation goes on": (ours.goes_on, theirs.goes_on),
        "after a restart, another question": (ours.another, theirs.another),
        "a second conversation while the first is answered": (ours.second, theirs.second),
    }
    for figure, (one, other) in pairs.items():
        yield Row(case, f"{figure}: first token", one.first_s, other.first_s, "s", other.first_s / one.first_s)
        yield Row(case, f"{figure}: computed tokens", one.computed, other.computed)
    yield Row(case, "until the next may be asked", ours.another.whole_s, theirs.another.whole_s, "s")
    yield Row(case, "on disk after three lives", ours.disk_bytes / MIB, theirs.disk_bytes / MIB, "MiB")
