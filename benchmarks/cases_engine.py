"""Our engine beside llama-server, row by row: the same model file, the same token ids, threads and batch size, one run.

Goals are those the cache was designed to; where llama-server has no such thing its column is empty.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol, TypeVar

import stories
from answers import Answer, Engine
from llama_server import LlamaServer
from ours import Ours
from prompts import edited, ids, question
from report import Row, at_most, rate, share, sooner
from stories import Warm

from orchestrator.engine.builtin import ensure

Figures = TypeVar("Figures")
ROOM = 2_048  # cells beside the floor, for questions and answers
KIB = 1_024


class Stoppable(Protocol):
    def stop(self) -> object: ...


StoppableT = TypeVar("StoppableT", bound=Stoppable)


@dataclass(frozen=True)
class Bench:
    model: Path
    threads: int
    runs: int
    depths: tuple[int, ...]  # tokens of the floor, smallest first
    real: bool = False  # weights that were trained

    @property
    def depth(self) -> int:
        return self.depths[0]


@dataclass(frozen=True)
class Goals:
    """Those that real weights and random ones have apart: shares of llama-server's time, how many times sooner, seconds."""

    cold: float | None
    plain: float | None  # a warm question beside llama-server -fa off, too
    edit: float
    restart_s: float  # beyond a warm question
    crowd: float


REAL = Goals(cold=1.05, plain=0.5, edit=10, restart_s=0.3, crowd=4)
RANDOM = Goals(cold=None, plain=None, edit=4, restart_s=0.1, crowd=6)
RANDOM_DEEP = replace(RANDOM, edit=15, restart_s=0.3)


def goals_of(bench: Bench, depth: int) -> Goals:
    return REAL if bench.real else RANDOM if depth <= 8 * KIB else RANDOM_DEEP


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "warm, changed, restarted": one_codex,
        "second conversation, first running": second_running,
        "second conversation, first idle": second_idle,
        "8 conversations at once, cold": eight_at_once,
        "a pool for one codex and 8 tails": small_pool,
        "a long prompt beside a streaming answer": stall,
        "a long prompt given up": given_up,
        "decoding": decoding,
        "decoding with flash attention": decoding_flashed,
        "decoding at depth": decoding_deep,
        "decoding with a larger model": decoding_larger,
        "own time per step": own_time,
    }


def one_codex(bench: Bench) -> Iterator[Row]:
    """A cold question, warm ones, one after a line was changed, and one after a restart, all about one floor."""
    for depth in bench.depths:
        floor, cells = ids(depth, "floor"), depth + ROOM
        with tempfile.TemporaryDirectory() as folder:
            with (
                stopping(Ours(bench.model, cells, threads=bench.threads, folder=Path(folder))) as engine,
                stopping(LlamaServer(bench.model, cells, threads=bench.threads)) as peer,
                stopping(LlamaServer(bench.model, cells, threads=bench.threads, flash="off")) as plain,
            ):
                ours, theirs, unhelped = stories.warm((engine, peer, plain), floor, bench.runs)
                # Ours appends what changed behind the floor; llama-server gets the prompt with the line changed in place.
                changed = engine.ask(floor, [*ids(60, "amendment"), *question(99)], 1).answer()
                edit = peer.ask(edited(floor, 12), question(99), 1).answer()
                held = engine.kv_bytes()
            again = with_ours(bench, partial(stories.one_question, floor=floor), cells, folder=Path(folder))
        name, goals = thousands(depth), goals_of(bench, depth)
        case = f"warm question, {name}"
        yield from rows_of_warm(case, ours, theirs, goals.cold)
        yield unflashed(case, "time to first token", ours.warm_s, unhelped.warm_s, "s", goals.plain)
        yield unflashed(case, "cold, time to first token", ours.cold_s, unhelped.cold_s, "s", goals.cold)
        yield from rows_of_change(f"one line changed in the middle, {name}", changed, edit, goals.edit)
        case, kept = f"after a restart, {name}", held * depth / cells
        yield from rows_of_restart(case, again.first_s, ours.warm_s, theirs.cold_s, kept, goals.restart_s)


def rows_of_warm(case: str, ours: Warm, theirs: Warm, cold: float | None = None) -> Iterator[Row]:
    """`cold`: the share of their time that a cold question may take."""
    yield share(case, "time to first token", ours.warm_s, theirs.warm_s, "s", 0.5)
    yield share(case, "computed tokens", ours.computed, theirs.computed, "", 1.0)
    yield share(case, "cold, time to first token", ours.cold_s, theirs.cold_s, "s", cold)
    yield at_most(case, "warm of cold", 100 * ours.warm_s / ours.cold_s, 5, "%")


def rows_of_change(case: str, ours: Answer, theirs: Answer, times: float) -> Iterator[Row]:
    yield sooner(case, "time to first token", ours.first_s, theirs.first_s, times)
    yield Row(case, "computed tokens", ours.computed, theirs.computed)


def rows_of_restart(
    case: str, again_s: float, warm_s: float, cold_s: float, kept: float, limit_s: float
) -> Iterator[Row]:
    """After a restart every question is a cold one to llama-server. `kept` is what is restored, in bytes; `limit_s` is what
    it may take beyond a warm question."""
    yield Row(case, "time to first token", again_s, cold_s, "s", cold_s / again_s)
    beyond = again_s - warm_s
    yield at_most(case, "beyond a warm question", beyond, limit_s, "s")
    megabytes = kept / 1e6 / max(beyond, 1e-3)
    yield Row(case, "restored, all told", megabytes, unit="MB/s", goal="≥ 500 MB/s", met=megabytes >= 500)


def second_running(bench: Bench) -> Iterator[Row]:
    case = "second conversation, first running"
    story = partial(stories.second_while_first_runs, floor=ids(bench.depth, "floor"))
    (ours, held), (theirs, also) = both(bench, story, cells=2 * (bench.depth + ROOM), slots=2)
    yield sooner(case, "time to first token", ours.first_s, theirs.first_s, 20)
    yield Row(case, "computed tokens", ours.computed, theirs.computed)
    yield Row(case, "KV", held / 2**20, also / 2**20 or None, "MiB", goal="the floor's once")


def second_idle(bench: Bench) -> Iterator[Row]:
    story = partial(stories.first_again_after_second, floor=ids(bench.depth, "floor"))
    ours, theirs = both(bench, story, cells=2 * (bench.depth + ROOM), slots=2)
    yield share("second conversation, first idle", "first one computes again", ours.computed, theirs.computed, "", 1.0)


def eight_at_once(bench: Bench) -> Iterator[Row]:
    case, cells = "8 conversations at once, cold", bench.depth + ROOM
    story = partial(stories.crowd, floor=ids(bench.depth, "floor"), size=8)
    ours = with_ours(bench, story, cells)
    theirs = with_theirs(bench, story, 8 * cells, slots=8)
    yield share(case, "computed tokens", ours.computed, theirs.computed, "", 0.132)  # 8,600 of 65,301
    yield sooner(case, "last first token", ours.last_first_s, theirs.last_first_s, goals_of(bench, bench.depth).crowd)
    yield Row(case, "KV", ours.kv_bytes / 2**20, theirs.kv_bytes / 2**20 or None, "MiB", goal="≤ 80 MiB at 8k")
    yield share(case, "memory of the process", ours.resident_bytes / 2**20, theirs.resident_bytes / 2**20, "MiB", 1.0)


def small_pool(bench: Bench) -> Iterator[Row]:
    story = partial(stories.crowd, floor=ids(bench.depth, "floor"), size=8)
    ours = with_ours(bench, story, bench.depth + ROOM)
    theirs = with_theirs(bench, story, bench.depth + ROOM, slots=8, unified=True)
    met = ours.answered == 8
    yield Row("a pool for one codex and 8 tails", "answered", ours.answered, theirs.answered, "of 8", goal="8", met=met)


def stall(bench: Bench) -> Iterator[Row]:
    """In one pool: one of its own would get its cells once nobody is answered, and the prompt would wait for the answer."""
    for depth in bench.depths:
        case, limit = f"{thousands(depth)} prompt beside a streaming answer", 0.3 if depth <= 8 * KIB else 0.7
        story = partial(stories.largest_gap, floor=ids(depth, "other"), tokens=300)
        cells = 2 * (depth + ROOM)
        with stopping(Ours(bench.model, cells, threads=bench.threads, pool="codex")) as engine:
            ours = story(engine)
        theirs = with_theirs(bench, story, cells, slots=2)
        yield Row(case, "largest gap", ours, theirs, "s", theirs / ours, f"≤ {limit:g} s", ours <= limit)


def given_up(bench: Bench) -> Iterator[Row]:
    """Beside nobody a step of ours takes a second at most; what was given up must be gone after it."""
    case, cells = f"{thousands(bench.depth)} prompt given up after 5 s", 2 * (bench.depth + ROOM)
    story = partial(stories.next_after_given_up, floor=ids(bench.depth, "floor"), after_s=5)
    ours, theirs = both(bench, story, cells=cells)
    yield Row(case, "first token of the next question", ours, theirs, "s", theirs / ours, "≤ 1 s: a step", ours <= 1)


def decoding(bench: Bench) -> Iterator[Row]:
    """Of short answers one run says little: what else the machine does in that second counts. So they take turns."""
    for depth, name in ((0, "without a floor"), (2 * KIB, "at 2k")):
        for answers in (1, 4, 8):
            ours, theirs = in_turns(bench, answers, depth, tokens=256)
            yield rate(f"decoding, {answers} at once, {name}", "all answers together", ours, theirs, 0.97)


def decoding_flashed(bench: Bench) -> Iterator[Row]:
    """Like with like: what an answer takes in the one engine and the other where attention is not what differs."""
    for answers in (1, 4, 8):
        ours, theirs = in_turns(bench, answers, 0, tokens=256, flash=True)
        yield rate(
            f"decoding, {answers} at once, both with flash attention", "all answers together", ours, theirs, 0.97
        )


def decoding_deep(bench: Bench) -> Iterator[Row]:
    case, figure = f"decoding, 8 at once at {thousands(bench.depth)}", "all answers together"
    story = partial(stories.decode_rate, floor=ids(bench.depth, "floor"), answers=8, tokens=64)
    ours = with_ours(bench, story, bench.depth + ROOM)
    theirs = with_theirs(bench, story, 8 * (bench.depth + ROOM), slots=8)
    yield rate(case, figure, ours, theirs, 1.4)
    plain = with_theirs(bench, story, 8 * (bench.depth + ROOM), slots=8, flash="off")
    yield unflashed(case, figure, ours, plain, "tokens/s")


def decoding_larger(bench: Bench) -> Iterator[Row]:
    """What a step costs beside the weights is a matter of its many small parts, and weighs less the larger a model is."""
    larger = replace(bench, model=ensure("builtin:noise-m", bench.model.parent), runs=min(bench.runs, 3))
    for answers in (1, 4, 8):
        ours, theirs = in_turns(larger, answers, 0, tokens=96)
        size = round(larger.model.stat().st_size / 1e6)
        case = f"decoding, {answers} at once, a model of {size} MB, without a floor"
        yield rate(case, "all answers together", ours, theirs, 0.97)


def in_turns(bench: Bench, answers: int, depth: int, tokens: int, *, flash: bool | None = None) -> tuple[float, float]:
    story = partial(stories.decode_rate, floor=ids(depth, "floor"), answers=answers, tokens=tokens)
    turns = [both(bench, story, cells=8 * (depth + ROOM), slots=8, flash=flash) for _ in range(bench.runs)]
    return median(ours for ours, _ in turns), median(theirs for _, theirs in turns)


def own_time(bench: Bench) -> Iterator[Row]:
    """All of a step but llama.cpp's arithmetic: the same child, loop and messages on the backend that only counts."""
    counting = replace(bench, model=Path("fake"))
    for answers, limit in ((1, 0.3), (8, 1.0)):
        seconds = with_ours(counting, partial(stories.step_time, answers=answers, tokens=500), 8 * ROOM)
        yield at_most("own time per step", f"{answers} at once", 1_000 * seconds, limit, "ms")


def unflashed(case: str, figure: str, ours: float, theirs: float, unit: str, limit: float | None = None) -> Row:
    """The same beside llama-server told to do without flash attention, which on a CPU nobody is told to try."""
    return share(case, f"{figure}, beside llama-server -fa off", ours, theirs, unit, limit)


def thousands(depth: int) -> str:
    return f"{round(depth / KIB)}k"


# ---- one engine at a time, so that neither disturbs the other --------------------------------------------------------


def both(
    bench: Bench, story: Callable[[Engine], Figures], *, cells: int, slots: int = 1, flash: bool | None = None
) -> tuple[Figures, Figures]:
    return with_ours(bench, story, cells, flash=flash), with_theirs(bench, story, cells, slots=slots)


def with_ours(
    bench: Bench,
    story: Callable[[Engine], Figures],
    cells: int,
    *,
    folder: Path | None = None,
    flash: bool | None = None,
) -> Figures:
    with stopping(Ours(bench.model, cells, threads=bench.threads, folder=folder, flash=flash)) as engine:
        return story(engine)


def with_theirs(
    bench: Bench,
    story: Callable[[Engine], Figures],
    cells: int,
    *,
    slots: int = 1,
    unified: bool = False,
    flash: str = "auto",
) -> Figures:
    peer = LlamaServer(bench.model, cells, slots=slots, unified=unified, flash=flash, threads=bench.threads)
    with stopping(peer) as engine:
        return story(engine)


@contextmanager
def stopping(engine: StoppableT) -> Iterator[StoppableT]:
    try:
        yield engine
    finally:
        engine.stop()
