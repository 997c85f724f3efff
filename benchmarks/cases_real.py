"""A model that people use: beside llama-server, with flash attention and without, where the quicker of the two counts; and
what its answers are worth.

Rows and stories beside llama-server are those of `cases_engine`. Ids are drawn, so texts mean nothing; weights and shapes
are real.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from statistics import median

import cases_engine
import psutil
import stories
from answers import Engine, Ids
from cases_amendments import amendments
from cases_answers import same_answers
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
from cases_quality import drafts, kv_types
from llama_server import LlamaServer
from ours import Ours, flash_for
from prompts import QUESTION, ids, question
from report import Row, at_most, rate, sooner

from orchestrator.engine.backend import Run
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.model import EngineSpec

ALIKE = (one_codex, second_running, second_idle, eight_at_once, stall)
DEPTHS = (0, 2 * KIB, 6 * KIB, 16 * KIB)
FULL_WINDOWS = ("--swa-full",)
TOKENS = 64
TRUNK = 7_403  # tokens, as in llama.cpp's pull request 26204, which copies a slot's KV to other slots


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    alike = {name: case for name, case in cases_engine.cases().items() if case in ALIKE}
    quality = {"the same answers": same_answers, "KV types": kv_types, "amendments": amendments, "drafts": drafts}
    return {**alike, "branching": branching, "decoding": decoding, **quality}


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
    with closing(LlamaBackend(spec)) as backend, closing(backend.open(len(trunk) + KIB, ways + 1)) as memory:
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
    yield at_most(case, "a branch shares the trunk, median", 1e3 * median(seconds), 1, "ms")
    yield Row(case, "cells in which all of them went on", cells, ways * len(trunk), "tokens")
    yield Row(case, "memory of the process, for each branch", grown / ways / KIB, unit="KiB")


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def decoding(bench: Bench) -> Iterator[Row]:
    """One answer beside llama-server as it comes. At depth several answers are beside its full-size window cache: with the
    small one a slot that is restored computes everything again, and eight floors of 16k take minutes. These are with flash
    attention alone: without it llama-server ended when four restored slots answered at once."""
    for depth in DEPTHS:
        many = FULL_WINDOWS if depth > 2 * KIB else ()
        yield from decoded(bench, depth, (1,), ())
        yield from decoded(bench, depth, (4, 8), many)


def decoded(bench: Bench, depth: int, sizes: Sequence[int], more: tuple[str, ...]) -> Iterator[Row]:
    """In turns, on engines that all stay loaded: what else the machine does meets all of them alike."""
    floor, slots = ids(depth, "floor"), max(sizes)
    with ExitStack() as running:
        ours = running.enter_context(stopping(Ours(bench.model, depth + slots * ROOM, threads=bench.threads)))
        engines: list[Engine] = [ours]
        for flash in ("on",) if more else ("on", "off"):
            peer = LlamaServer(
                bench.model, slots * (depth + ROOM), slots=slots, threads=bench.threads, flash=flash, more=more
            )
            engines.append(running.enter_context(stopping(peer)))
            if more:
                peer.spread(floor)
        for answers in sizes:
            story = partial(stories.decode_rate, floor=floor, answers=answers, tokens=TOKENS)
            turns = [[story(engine) for engine in engines] for _ in range(min(bench.runs, 3))]
            one, *others = (median(rates) for rates in zip(*turns, strict=True))
            case = f"decoding, {answers} at once at {thousands(depth)}{', ' if more else ''}{' '.join(more)}"
            yield rate(case, "all answers", one, max(others), 0.97)
