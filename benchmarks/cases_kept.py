"""Servers that keep a conversation's KV over a restart, beside ours: the same questions about the same text."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cases_engine import ROOM, Bench, stopping, thousands
from ours import Ours
from peers.environments import NotInstalled
from peers.keeping import Hearth, Keeper, Said, Stillwarm
from report import Row

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = [f"\n\n# What does {name} do?\n" for name in ("load", "walk", "cut", "read")]
MIB = 1 << 20
LONG = 128  # tokens of the answer that another conversation meets


class Lorekeep:
    """Our engine, asked with texts."""

    def __init__(self, model: Path, cells: int, folder: Path, threads: int) -> None:
        self.engine = Ours(model, cells, threads=threads, folder=folder)

    def ask(self, turns: Sequence[str], tokens: int, *, slot: int = 0) -> Said:
        del slot
        floor, *tail = self.engine.encode(turns)
        running = self.engine.ask(floor, [one for turn in tail for one in turn], tokens)
        answer = running.answer()
        return Said(answer.first_s, answer.total_s, answer.computed, running.text)

    def stop(self) -> None:
        self.engine.stop()


@dataclass(frozen=True)
class Lived:
    cold: Said
    goes_on: Said  # after a restart
    another: Said  # after the next
    second: Said  # while an answer runs
    disk_bytes: int


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"kept over a restart": kept}


def kept(bench: Bench) -> Iterator[Row]:
    document = text(bench)
    ours = lived(bench, Lorekeep, document)
    for kind in (Hearth, Stillwarm):
        try:
            theirs = lived(bench, kind, document)
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


def lived(bench: Bench, kind: Callable[[Path, int, Path, int], Keeper], document: str) -> Lived:
    """What one server says through three lives: a cold question, then the conversation goes on, then others ask."""
    first, on, other, last = QUESTIONS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def alive() -> Keeper:
            return kind(bench.model, bench.depth + ROOM, folder, bench.threads)

        with stopping(alive()) as server:
            cold = server.ask([document, first], 1)
        with stopping(alive()) as server:
            goes_on = server.ask([document, first, cold.text, on], 1)
        with stopping(alive()) as server:
            another = server.ask([document, other], 1)
            with ThreadPoolExecutor() as pool:
                running = pool.submit(server.ask, [document, on], LONG)
                threading.Event().wait(0.5)  # it is answering by then: its prompt takes a tenth of it
                second = server.ask([document, last], 1, slot=1)
                running.result()
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Lived(cold, goes_on, another, second, size)


def rows(case: str, ours: Lived, theirs: Lived) -> Iterator[Row]:
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
