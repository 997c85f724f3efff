"""Whether answers from a cache are those of a prompt that was computed for them alone, with real weights.

    the prompt        floor ─ amendment ─ question
    alone             a context for each question, on the port to llama.cpp: no tree, no sharing, no checkpoint
    shared            floor and amendment are one floor of all questions
    amended           the amendment is computed behind the cells of a floor that was there
    restored          the engine is started again, and the floor comes from the disk
    evicted           another floor took the cells meanwhile, and the floor comes from the disk
    damaged           files of the floor have a flipped bit; they are refused, and the rest is computed

With one thread a row has the same bits whatever else is in the cells, where it is computed in a step of 64 rows or more,
or in one of fewer. So prompts are computed in steps of 64 rows, each question is somebody else's, which computes all of it,
and nothing is drafted. With more threads llama.cpp divides the cells of one row among them, and rounds otherwise.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from answers import Ids, Refused, Running
from cases_engine import Bench, stopping
from ours import Ours, flash_for
from report import Row

from orchestrator.engine.backend import Run
from orchestrator.engine.checkpoints.file import SUFFIX
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import EngineSpec

SOURCES = Path(__file__).resolve().parent.parent / "codex" / "trees"
CASE, POOL = "the same answers", "codex"
FLOOR, AMENDMENT, QUESTIONS, LENGTH = 576, 64, 200, 10  # the prompt is longer than Gemma's window of 512
BATCH, BATCH_ALONE, CELLS, ROOM = 64, 512, 2_048, 256
RESTART_EVERY, EVICT_EVERY = 50, 10  # questions
TRIES = 8  # of a way: on a quiet machine too one floor of seven was seen to have a shorter step
NEAR = 0.5  # nats between the two likeliest tokens


@dataclass(frozen=True)
class Alone:
    """An answer, and by how much each of its tokens was likelier than the next best: nats."""

    ids: list[int] = field(default_factory=list)
    leads: list[float] = field(default_factory=list)


Asked = list[tuple[int, Ids]]  # owner and question
Answers = list[list[int]]
Way = Callable[[Path, Ids, Asked], Answers]


def same_answers(bench: Bench) -> Iterator[Row]:
    """The contexts of their own have one core, the ways to the cache the other."""
    prompt, asked = asked_of(bench.model)
    with ThreadPoolExecutor(1) as beside:
        computing = beside.submit(answered_alone, bench.model, prompt, asked)
        found = {name: tried(way, bench.model, prompt, asked) for name, way in WAYS.items()}
        alone = computing.result()
    for name, answers in found.items():
        yield agreeing(f"{name}, one thread", alone, answers, goal=len(asked))
    with stopping(engine_of(bench.model, threads=bench.threads)) as engine:
        yield from both_rows("shared, all threads", alone, [answered(engine, prompt, one) for one in asked])
        yield from both_rows("8 at once, all threads", alone, at_once(engine, prompt, asked))


def tried(way: Way, model: Path, prompt: Ids, asked: Asked) -> Answers:
    """Again from its beginning, where a step was too short. Raises Refused where one was each time."""
    for _ in range(TRIES - 1):
        with suppress(Refused):
            return way(model, prompt, asked)
    return way(model, prompt, asked)


def asked_of(model: Path) -> tuple[Ids, Asked]:
    """Our own sources, and the beginnings of lines in them."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.py")))
    heads = list(dict.fromkeys(re.findall(r"^ *(?:(?:async )?def|class) \w+|^ *\w+ = ", text, re.MULTILINE)))
    with closing(backend_of(model)) as backend:
        ids, *tails = backend.encode([text, *(f"\n\n{head}" for head in heads[:QUESTIONS])], control=False)
    assert len(tails) == QUESTIONS
    return ids[: FLOOR + AMENDMENT], list(enumerate(tails, 1))


def backend_of(model: Path) -> LlamaBackend:
    return LlamaBackend(EngineSpec(str(model), threads=1, batch=BATCH_ALONE, flash_attention=flash_for(model)))


def engine_of(model: Path, folder: Path | None = None, threads: int = 1, cells: int = CELLS) -> Ours:
    return Ours(model, cells, threads=threads, batch=BATCH, folder=folder, drafts=False)


# -- alone


def answered_alone(model: Path, prompt: Ids, asked: Asked) -> list[Alone]:
    with closing(backend_of(model)) as backend:
        return [continued(backend, prompt, question) for _, question in asked]


def continued(backend: LlamaBackend, prompt: Ids, question: Ids) -> Alone:
    """Prompt and question are computed apart, as the engine computes a floor and what is behind it."""
    sampler, answer, wanted, at = backend.sampler(Sampling()), Alone(), question, len(prompt)
    with closing(backend.open(CELLS, 1)) as memory:
        for start in range(0, len(prompt), BATCH_ALONE):
            memory.decode([Run(0, start, prompt[start : start + BATCH_ALONE], output=False)])
        while len(answer.ids) < LENGTH:
            memory.decode([Run(0, at, wanted, output=True)])
            second, first = np.partition(memory.logits(len(wanted) - 1), -2)[-2:]
            sampled = memory.sample(len(wanted) - 1, sampler)
            if sampled.end:
                break
            answer.ids.append(sampled.token)
            answer.leads.append(float(first - second))
            at, wanted = at + len(wanted), [sampled.token]
    return answer


# -- the ways


def shared(model: Path, prompt: Ids, asked: Asked) -> Answers:
    with stopping(engine_of(model)) as engine:
        computed(engine, prompt)
        return [answered(engine, prompt, one) for one in asked]


def amended(model: Path, prompt: Ids, asked: Asked) -> Answers:
    with stopping(engine_of(model)) as engine:
        computed(engine, prompt[:FLOOR])
        assert computed(engine, prompt) == AMENDMENT
        return [answered(engine, prompt, one) for one in asked]


def restored(model: Path, prompt: Ids, asked: Asked) -> Answers:
    return restarted(model, prompt, asked, untouched, within=range(1))


def damaged(model: Path, prompt: Ids, asked: Asked) -> Answers:
    """Each start computes what was refused, and writes it anew."""
    return restarted(model, prompt, asked, flip, within=range(1, len(prompt) + 1))


def restarted(model: Path, prompt: Ids, asked: Asked, meanwhile: Callable[[Path], None], within: range) -> Answers:
    """`within`: how many tokens of the prompt a start may compute."""
    found = Answers()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with stopping(engine_of(model, folder)) as engine:
            computed(engine, prompt)
        for start in range(0, len(asked), RESTART_EVERY):
            meanwhile(folder)
            with stopping(engine_of(model, folder)) as engine:
                assert computed(engine, prompt) in within
                found += [answered(engine, prompt, one) for one in asked[start : start + RESTART_EVERY]]
    return found


def untouched(folder: Path) -> None:
    """Of a folder that is restored as it is."""


def flip(folder: Path) -> None:
    """A bit in the middle of each of the larger files: those of whole segments of the floor."""
    files = sorted(folder.rglob(f"*{SUFFIX}"), key=lambda path: path.stat().st_size)
    for path in files[-1:]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def evicted(model: Path, prompt: Ids, asked: Asked) -> Answers:
    """There is room for one of the two floors."""
    found = Answers()
    with (
        tempfile.TemporaryDirectory() as folder,
        stopping(engine_of(model, Path(folder), cells=len(prompt) + ROOM)) as engine,
    ):
        computed(engine, prompt)
        for start in range(0, len(asked), EVICT_EVERY):
            engine.ask(prompt[::-1], [], 0).answer()
            assert not computed(engine, prompt)
            found += [answered(engine, prompt, one) for one in asked[start : start + EVICT_EVERY]]
    return found


WAYS: dict[str, Way] = {
    "shared": shared,
    "amended": amended,
    "restored": restored,
    "evicted": evicted,
    "damaged": damaged,
}


def computed(engine: Ours, prompt: Ids) -> int:
    """How many tokens of a floor the engine computed, in whole steps. Raises Refused where one was shorter."""
    before = engine.snapshot.steps
    tokens = engine.ask(prompt, [], 0, POOL).answer().computed
    if tokens != BATCH * (engine.snapshot.steps - before):
        raise Refused(
            f"steps of fewer than {BATCH} rows, which round otherwise: try again while the machine does little else"
        )
    return tokens


def at_once(engine: Ours, prompt: Ids, asked: Asked) -> Answers:
    found = Answers()
    for start in range(0, len(asked), 8):
        running = [ask(engine, prompt, one) for one in asked[start : start + 8]]
        for one in running:
            one.answer()
        found += [one.ids for one in running]
    return found


def answered(engine: Ours, prompt: Ids, one: tuple[int, Ids]) -> list[int]:
    running = ask(engine, prompt, one)
    running.answer()
    return running.ids


def ask(engine: Ours, prompt: Ids, one: tuple[int, Ids]) -> Running:
    owner, question = one
    return engine.ask(prompt, question, LENGTH, POOL, owner)


# -- rows


def both_rows(way: str, alone: Sequence[Alone], found: Answers) -> Iterator[Row]:
    yield agreeing(way, alone, found)
    leads = [
        lead for one, other in zip(alone, found, strict=True) if (lead := lead_where_parted(one, other)) is not None
    ]
    near = sum(lead < NEAR for lead in leads)
    yield Row(CASE, f"{way}: parted where two tokens are within {NEAR} nats", near, len(leads), "answers")


def lead_where_parted(alone: Alone, found: Sequence[int]) -> float | None:
    parted = (lead for lead, one, other in zip(alone.leads, alone.ids, found, strict=False) if one != other)
    return next(parted, None)


def agreeing(way: str, alone: Sequence[Alone], found: Answers, goal: int | None = None) -> Row:
    same = sum(one.ids == other for one, other in zip(alone, found, strict=True))
    wanted = "" if goal is None else f"= {goal}"
    met = None if goal is None else same == goal
    return Row(CASE, f"{way}: the same", same, len(alone), "answers", same / len(alone), wanted, met)
