"""A model that people use beside llama-server, with flash attention and without: the quicker of the two counts.

Rows and stories are those of `cases_engine`. Ids are drawn, so texts mean nothing; weights and shapes are real.
"""

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import cases_engine
import psutil
import stories
from answers import Engine, Ids
from cases_engine import (
    KIB,
    ROOM,
    Bench,
    eight_at_once,
    one_codex,
    second_idle,
    second_running,
    stall,
    stopping,
    thousands,
    with_theirs,
)
from llama_server import LlamaServer
from ours import Ours, flash_for
from prompts import QUESTION, ids, question
from report import Row, at_most, rate, sooner

from orchestrator.engine.backend import Run
from orchestrator.engine.llama.memory import LlamaBackend
from orchestrator.engine.model import EngineSpec

ALIKE = (one_codex, second_running, second_idle, eight_at_once, stall)
DEPTHS = (0, 2 * KIB, 6 * KIB, 16 * KIB)
ANSWERS = (1, 4, 8)
TOKENS = 64
TRUNK = 7_403  # tokens, as in llama.cpp's pull request 26204, which copies a slot's KV to other slots
ROOT = Path(__file__).resolve().parent.parent
FLOOR_TOKENS, QUESTIONS, LENGTH = 1_200, 50, 24
CASE = "the same answers"


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    alike = {name: case for name, case in cases_engine.cases().items() if case in ALIKE}
    return {**alike, "branching": branching, "decoding": decoding, CASE: same_answers}


def branching(bench: Bench) -> Iterator[Row]:
    """Four ways on from one conversation, in a pool of ours that has no room for a second trunk."""
    floor, trunk, ways = ids(TRUNK - 1_211, "floor"), ids(1_211, "trunk"), 4
    story = partial(stories.branches, floor=floor, trunk=trunk, number=ways)
    with stopping(Ours(bench.model, TRUNK + ROOM, threads=bench.threads)) as engine:
        ours = story(engine)
        time.sleep(0.2)  # the idle engine's figures follow its last answer
        taken = sum(pool.size - pool.free for pool in engine.snapshot.pools) - TRUNK
    theirs = with_theirs(bench, story, ways * (TRUNK + ROOM), slots=ways)
    case = f"{ways} branches of a trunk of {TRUNK:,} tokens"
    yield sooner(case, "last first token", ours.last_first_s, theirs.last_first_s, 4)
    each = ways * theirs.cold_s
    yield sooner(case, "last first token, beside a cold trunk for each", ours.last_first_s, each, 4)
    yield Row(case, "computed tokens", ours.computed, theirs.computed)
    yield at_most(case, "cells beside the trunk's", taken, (ways + 1) * 2 * QUESTION, "tokens")
    yield from sharing(bench, case, [*floor, *trunk], ways)


def sharing(bench: Bench, case: str, trunk: Ids, ways: int) -> Iterator[Row]:
    """What the tree's copy is: the same memory, in this process, with room for one trunk and the ways' tails."""
    spec = EngineSpec(str(bench.model), threads=bench.threads, batch=512, flash_attention=flash_for(bench.model))
    backend = LlamaBackend(spec)
    memory = backend.open(len(trunk) + KIB, ways + 1)
    for start in range(0, len(trunk), spec.batch):
        memory.decode([Run(0, start, trunk[start : start + spec.batch], output=False)])
    held, seconds = resident(), list[float]()
    for way in range(1, ways + 1):
        begun = time.perf_counter()
        memory.copy(0, way, 0, len(trunk))
        seconds.append(time.perf_counter() - begun)
    grown = resident() - held
    memory.decode([Run(way, len(trunk), question(way), output=True) for way in range(1, ways + 1)])
    cells = memory.cells
    memory.close()
    backend.close()
    yield at_most(case, "a branch shares the trunk, median", 1e3 * median(seconds), 1, "ms")
    yield Row(case, "cells in which all of them went on", cells, ways * len(trunk), "tokens")
    yield Row(case, "memory of the process, for each branch", grown / ways / KIB, unit="KiB")


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def same_answers(bench: Bench) -> Iterator[Row]:
    """Greedy answers about our own sources, on each way to a cached prefix, beside those with a prefix computed for each.

    llama.cpp rounds otherwise in batches of another shape. So the prefix is computed alone, then the question. Answers side
    by side may differ where two tokens are nearly as likely, and so may one whose question is computed with its prefix.
    """
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "codex" / "trees").glob("*.py")))
    names = re.findall(r"^ *(?:async )?def (\w+)", text, re.MULTILINE)
    cells = FLOOR_TOKENS + 8 * ROOM
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        with stopping(Ours(bench.model, cells, threads=bench.threads)) as engine:
            ids, *asked = engine.encode([text, *(f"\n\n    def {name}(" for name in names[:QUESTIONS])])
            floor = ids[:FLOOR_TOKENS]
            alone = [answered_alone(engine, floor, tail) for tail in asked]
            yield agreeing("shared", alone, [answered(engine, floor, tail) for tail in asked])
            yield agreeing("cold, in one batch", alone, [answered_cold(engine, floor, tail) for tail in asked])
            yield agreeing("shared, 8 at once", alone, at_once(engine, floor, asked))
        with stopping(Ours(bench.model, cells, threads=bench.threads, folder=cache)) as engine:
            answered(engine, floor, asked[0])
        with stopping(Ours(bench.model, cells, threads=bench.threads, folder=cache)) as engine:
            restored = engine.ask(floor, asked[0], LENGTH).answer()
            yield Row(CASE, "restored: computed tokens", restored.computed, len(asked[0]))
            yield agreeing("restored", alone, [answered(engine, floor, tail) for tail in asked])


def answered_alone(engine: Ours, floor: Ids, tail: Ids) -> list[int]:
    engine.forget()
    engine.ask(floor, [], 0).answer()
    return answered(engine, floor, tail)


def answered_cold(engine: Ours, floor: Ids, tail: Ids) -> list[int]:
    engine.forget()
    return answered(engine, floor, tail)


def answered(engine: Ours, floor: Ids, tail: Ids) -> list[int]:
    running = engine.ask(floor, tail, LENGTH)
    running.answer()
    return running.ids


def at_once(engine: Ours, floor: Ids, asked: Sequence[Ids]) -> list[list[int]]:
    found = []
    for start in range(0, len(asked), 8):
        running = [engine.ask(floor, tail, LENGTH) for tail in asked[start : start + 8]]
        for one in running:
            one.answer()
        found += [one.ids for one in running]
    return found


def agreeing(way: str, alone: Sequence[list[int]], found: Sequence[list[int]]) -> Row:
    same = sum(one == other for one, other in zip(alone, found, strict=True))
    return Row(CASE, f"{way}: the same", same, len(alone), "answers", same / len(alone))


def decoding(bench: Bench) -> Iterator[Row]:
    """In turns, on engines that all stay loaded: what else the machine does meets all of them alike.

    The floor is computed once by each engine. Ours shares its cells; the peer's other slots get copies of the first.
    """
    for depth in DEPTHS:
        floor, cells = ids(depth, "floor"), max(ANSWERS) * (depth + ROOM)
        with ExitStack() as running:
            ours = running.enter_context(
                stopping(Ours(bench.model, depth + max(ANSWERS) * ROOM, threads=bench.threads))
            )
            peers = [
                running.enter_context(
                    stopping(LlamaServer(bench.model, cells, slots=max(ANSWERS), threads=bench.threads, flash=flash))
                )
                for flash in ("on", "off")
            ]
            for peer in peers if depth else ():
                peer.spread([*floor, *question(0)])
            engines: list[Engine] = [ours, *peers]
            for answers in ANSWERS:
                story = partial(stories.decode_rate, floor=floor, answers=answers, tokens=TOKENS)
                turns = [[story(engine) for engine in engines] for _ in range(min(bench.runs, 3))]
                one, *others = (median(rates) for rates in zip(*turns, strict=True))
                yield rate(f"decoding, {answers} at once at {thousands(depth)}", "all answers", one, max(others), 0.97)
