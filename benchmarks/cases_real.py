"""A model that people use beside llama-server, with flash attention and without: the quicker of the two counts.

Rows and stories are those of `cases_engine`. Ids are drawn, so texts mean nothing; weights and shapes are real.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median

import stories
from answers import Engine
from cases_engine import (
    KIB,
    ROOM,
    Bench,
    eight_at_once,
    one_codex,
    second_idle,
    second_running,
    stall,
    thousands,
)
from llama_server import LlamaServer
from ours import Ours
from prompts import ids
from report import Row, rate

ANSWERS_AT = {
    0: (1, 4, 8),
    2 * KIB: (1, 4, 8),
    6 * KIB: (1,),
    16 * KIB: (1,),
}  # more would each be computed by the peer
TOKENS = 64


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "warm, changed, restarted": one_codex,
        "second conversation, first running": second_running,
        "second conversation, first idle": second_idle,
        "8 conversations at once, cold": eight_at_once,
        "a long prompt beside a streaming answer": stall,
        "decoding": decoding,
    }


def decoding(bench: Bench) -> Iterator[Row]:
    """In turns, on engines that all stay loaded: what else the machine does meets all of them alike."""
    for depth, sizes in ANSWERS_AT.items():
        cells = max(sizes) * (depth + ROOM)
        with ExitStack() as undo:
            peers = (
                LlamaServer(bench.model, cells, slots=max(sizes), threads=bench.threads, flash=flash)
                for flash in ("on", "off")
            )
            engines: list[Engine] = [Ours(bench.model, cells, threads=bench.threads), *peers]
            for engine in engines:
                undo.callback(engine.stop)
            for answers in sizes:
                story = partial(stories.decode_rate, floor=ids(depth, "floor"), answers=answers, tokens=TOKENS)
                turns = [[story(engine) for engine in engines] for _ in range(bench.runs)]
                ours, *theirs = (median(rates) for rates in zip(*turns, strict=True))
                yield rate(f"decoding, {answers} at once at {thousands(depth)}", "all answers", ours, max(theirs), 0.97)
