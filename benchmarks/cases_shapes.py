"""Random weights in the shapes of models that people use: grouped heads, large vocabularies, windows.

The other rows on random weights are of `builtin:noise-s`: six heads of 64 a KV head, 4,096 words. These show what it costs
that logits are wanted of a row, and what windows save.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median

import stories
from answers import Engine
from cases_engine import KIB, ROOM, Bench, rows_of_warm
from llama_server import LlamaServer
from ours import Ours
from prompts import ids
from report import Row, rate
from shaped_models import GEMMA, QWEN, Shape, shaped

DEPTH, TOKENS = KIB, 48


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "shaped as Qwen2.5, 152k words": partial(rows, QWEN, "152k words"),
        "shaped as Gemma 3, 262k words": partial(rows, GEMMA, "262k words, windows"),
    }


def rows(shape: Shape, name: str, bench: Bench) -> Iterator[Row]:
    """Engines stay loaded and take turns; each slot of llama-server computes the floor once, before it counts."""
    model, floor, cells = shaped(shape, bench.model.parent), ids(DEPTH, "floor"), 8 * (DEPTH + ROOM)
    with ExitStack() as undo:
        engines: list[Engine] = []
        for start in (Ours, partial(LlamaServer, slots=8)):
            engines.append(start(model, cells, threads=bench.threads))
            undo.callback(engines[-1].stop)
        ours, theirs = stories.warm(engines, floor, bench.runs)
        yield from rows_of_warm(f"warm question, {name}, 1k", ours, theirs)
        for answers in (1, 8):
            story = partial(stories.decode_rate, floor=floor, answers=answers, tokens=TOKENS)
            turns = [[story(engine) for engine in engines] for _ in range(bench.runs + 1)][1:]
            mine, other = (median(rates) for rates in zip(*turns, strict=True))
            yield rate(f"decoding, {answers} at once, {name}, 1k", "all answers together", mine, other, 0.97)
