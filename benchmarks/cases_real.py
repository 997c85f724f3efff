"""A model that people use beside llama-server, with flash attention and without: the quicker of the two counts.

Rows and stories are those of `cases_engine`. Ids are drawn, so texts mean nothing; weights and shapes are real.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import cases_engine
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
)
from llama_server import LlamaServer
from ours import Ours
from prompts import ids
from report import Row, rate

ALIKE = (one_codex, second_running, second_idle, eight_at_once, stall)
ANSWERS_AT = {
    0: (1, 4, 8),
    2 * KIB: (1, 4, 8),
    6 * KIB: (1,),
    16 * KIB: (1,),
}  # more would each be computed by the peer
TOKENS = 64
ROOT = Path(__file__).resolve().parent.parent
FLOOR_TOKENS, QUESTIONS, LENGTH = 1_200, 50, 24
CASE = "the same answers"


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    alike = {name: case for name, case in cases_engine.cases().items() if case in ALIKE}
    return {**alike, "decoding": decoding, CASE: same_answers}


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
