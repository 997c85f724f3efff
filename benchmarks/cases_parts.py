"""Single parts: what a checkpoint's safety costs beside a plain file, what a prompt's assembly takes, how fast a codex is
tokenised.
"""

import asyncio
import functools
import json
import os
import sysconfig
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import llama_cpp
import tiktoken
from cases_engine import Bench
from llama_sources import LOCK, locked_version, sources
from report import Row, at_most

from codex.catalog.tokens import TokenStore
from formatters.blocks import Role
from formatters.calls import PLAIN_CALLS
from formatters.context import CodexPiece, CodexView, IdentityView, SigilView, StateView, TurnContext, TurnView
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from governor.budget import Demand, Ours, next_outlook
from governor.ctc import Claim, ClaimKind, PromptLimits, settle
from governor.footprint import KvPlan
from governor.gguf import read_gguf
from governor.model_shape import shape_of
from governor.readings import GpuReading, HostReading, SensorSnapshot
from governor.settings import GIB, GovernorSettings
from orchestrator.answering.agent import Answerer, Compose, EngineModel, TurnSoFar
from orchestrator.answering.codex_tools import SearchArchive
from orchestrator.answering.inference import InferenceEvent
from orchestrator.answering.parsing import BoundParser
from orchestrator.answering.running import MOST_REQUESTS, TurnLimits, job_of, job_within, within_window
from orchestrator.engine.checkpoints.coding import PLAIN, Coding, Sealed
from orchestrator.engine.checkpoints.file import SegmentHeader, read_state, write
from orchestrator.engine.llama import native
from orchestrator.engine.messages import (
    ID_BYTES,
    AnswerDelta,
    Completion,
    Encode,
    Encoded,
    InferenceJob,
    Outcome,
    Reason,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.transport import HEADER, pack, unpack
from orchestrator.engine.vocab import Vocabulary
from orchestrator.engine.vocab.vocabulary import PATTERNS, read_ranks, read_table
from orchestrator.prompt.composing import Assembler, Composer, TokenCache
from orchestrator.prompt.coverage import Coverage
from orchestrator.prompt.evidence import FoundPassages
from orchestrator.prompt.phrases import Task
from orchestrator.prompt.strategy import FloorCoverage, QuestionFigures, decide

MIB = 2**20
SEGMENTS = 64
FILES, LINES = 200, 50  # about 100k tokens of ten characters a line's token run
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "checkpoint files": checkpoints,
        "prompt assembly": assembly,
        "agent, a round of a tool": rounds,
        "governing a question": governing,
        "tokenising": tokenising,
    }


def checkpoints(bench: Bench) -> Iterator[Row]:
    """Segments of 1 MiB, as a model with 4 KiB of KV a token has them; both ways synced to the disk."""
    del bench
    states = [os.urandom(MIB) for _ in range(SEGMENTS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        headers = [
            SegmentHeader("r" * 64, f"{n:064x}", "p" * 64, n * 256, n * 256 + 256, array("I", range(256)))
            for n in range(SEGMENTS)
        ]
        copying = speed(lambda n: plain(folder / f"{n}.plain", states[n]))
        reading = speed(lambda n: (folder / f"{n}.plain").read_bytes())
        for how, coding in (("", PLAIN), (", encrypted", Sealed(os.urandom(32)))):
            saving = speed(partial(save, folder, headers, states, coding))
            loading = speed(partial(load, folder, headers, coding))
            beside = {"save": (saving, copying, "copy"), "load and check": (loading, reading, "read")}
            for what, (ours, theirs, plainly) in beside.items():
                name, note = f"{what}{how}, MB/s", f"beside a plain {plainly}"
                yield Row("checkpoint files", name, ours, theirs, ratio=ours / theirs, note=note)


def save(folder: Path, headers: list[SegmentHeader], states: list[bytes], coding: Coding, number: int) -> None:
    write(folder / f"{number}.kv", headers[number], states[number], coding)


def load(folder: Path, headers: list[SegmentHeader], coding: Coding, number: int) -> None:
    read_state(folder / f"{number}.kv", headers[number], coding)


def plain(path: Path, state: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(state)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def speed(work: Callable[[int], object]) -> float:
    begun = time.perf_counter()
    for number in range(SEGMENTS):
        work(number)
    return SEGMENTS * MIB / 1e6 / (time.perf_counter() - begun)


def assembly(bench: Bench) -> Iterator[Row]:
    """Everything between the question and the engine, on a warm codex of 100k tokens with 20 messages; ours, and all."""
    runs = max(200, bench.runs)
    for case, measured, middle in (("ours alone", composed, 3), ("with the turn around it", asked, 5)):
        seconds = sorted(asyncio.run(measured(runs)))
        name = f"prompt assembly, 100k codex, {case}"
        yield at_most(name, "p50", 1_000 * seconds[len(seconds) // 2], middle, "ms")
        yield at_most(name, "p99", 1_000 * seconds[len(seconds) * 99 // 100], 15, "ms")


def rounds(bench: Bench) -> Iterator[Row]:
    """What the agent adds to a round of a turn: from the end of the call to the engine's next request, with a tool that
    takes no time, on the same codex."""
    seconds = sorted(asyncio.run(called(max(50, bench.runs))))
    name = "agent, a round of a tool, 100k codex"
    yield at_most(name, "p50", 1_000 * seconds[len(seconds) // 2], 5, "ms")
    yield at_most(name, "p99", 1_000 * seconds[len(seconds) * 99 // 100], 15, "ms")


async def called(turns: int) -> list[float]:
    """Seconds of each round but the first of each turn."""
    tokens = TokenCache(Words())
    composer, engine = composer_of(tokens), Calling()
    answerer = Answerer([SearchArchive(Nothing(), tokens).search_archive])

    async def compose(turn: TurnContext, _: TurnSoFar) -> InferenceJob:
        composed = await within_window(turn, composer.compose, 1_000_000)
        return job_within(InferenceJob(0, "", b"", 0, 100), composed, 1_000_000)

    for turn in questions(turns + 1):
        engine.requests = 0
        async for _ in answerer.answer(turn, model_of(engine, compose, tokens)):
            pass
    return engine.taken[MOST_REQUESTS - 1 :]  # those of the first turn write and tokenise the floor


def model_of(engine: Any, compose: Compose, tokens: TokenCache) -> EngineModel:
    def parser(_: InferenceJob) -> BoundParser:
        return BoundParser(PLAIN_CALLS, {"search_archive": {}})

    async def refuse(_name: str, _arguments: str) -> str:
        return ""

    return EngineModel(engine, compose, tokens.learn_answer, parser, TurnLimits(1_000_000, 1_000.0), refuse)


class Calling:
    """An engine that calls a tool for as long as it may, and notes how long it waits for the next request."""

    def __init__(self) -> None:
        self.requests = 0
        self.taken: list[float] = []
        self._said = 0.0

    async def infer(self, job: InferenceJob) -> AsyncIterator[InferenceEvent]:
        if self.requests:
            self.taken.append(time.perf_counter() - self._said)
        self.requests += 1
        last = self.requests == MOST_REQUESTS
        call = {"name": "search_archive", "arguments": {"query": f"word {self.requests}"}}
        text = "Yes." if last else f"<tool_call>{json.dumps(call)}</tool_call>"
        self._said = time.perf_counter()
        yield AnswerDelta(1, text, ids_to_bytes(range(len(text))))
        yield Completion(1, Outcome.DONE, Reason.STOP, prompt=len(job.tail) // ID_BYTES, generated=1)


async def composed(runs: int) -> list[float]:
    composer, turns = composer_of(TokenCache(Words())), questions(runs + 1)
    taken = []
    for turn in turns:
        begun = time.perf_counter()
        await composer.compose(turn)
        taken.append(time.perf_counter() - begun)
    return taken[1:]  # the first writes and tokenises the floor


async def asked(runs: int) -> list[float]:
    """Until the engine is asked: the turn's loop around it too."""
    tokens = TokenCache(Words())
    composer, reached = composer_of(tokens), Reached()
    answerer = Answerer([SearchArchive(Nothing(), tokens).search_archive])

    async def compose(turn: TurnContext, _: TurnSoFar) -> InferenceJob:
        return job_of(InferenceJob(0, "", b"", 0, 100), await composer.compose(turn))

    taken = []
    for turn in questions(runs + 1):
        begun = time.perf_counter()
        async for _ in answerer.answer(turn, model_of(reached, compose, tokens)):
            pass
        taken.append(reached.at - begun)
    return taken[1:]


class Reached:
    """An engine that notes when it is asked, and says a word."""

    at = 0.0

    async def infer(self, job: InferenceJob) -> AsyncIterator[InferenceEvent]:
        self.at = time.perf_counter()
        yield AnswerDelta(1, "Yes.", ids_to_bytes([1]))
        yield Completion(1, Outcome.DONE, Reason.STOP, prompt=len(job.tail) // ID_BYTES, generated=1)


class Nothing:
    """An archive that holds nothing."""

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> FoundPassages:
        del query, codex, n, graph
        return FoundPassages(())


def composer_of(tokens: TokenCache) -> Composer:
    template = ChatTemplate(CHATML)
    return Composer(builtin(), template, probe(template), Assembler(tokens, "root"))


def questions(count: int) -> Iterator[TurnContext]:
    text = "".join(f"value_{n} = compute({n}) + other[{n}]\n" for n in range(LINES))
    codex = CodexView(name="large", pieces=tuple(CodexPiece(path=f"src/m{n}.py", text=text) for n in range(FILES)))
    turns = tuple(
        TurnView(role=(Role.USER, Role.ASSISTANT)[n % 2], text=f"message {n} about things") for n in range(20)
    )
    identity, sigil = IdentityView(name="x", text="You answer."), SigilView(name="owner", uid=0)
    state = StateView(turns=turns)
    for number in range(count):
        yield TurnContext(identity=identity, sigil=sigil, codex=codex, state=state, query=f"what is {number}?")


def governing(bench: Bench) -> Iterator[Row]:
    """What the governor decides for a question: levels and grant from a reading, retrieval, and verdicts on 200 claims of
    which a third must go."""
    shape, card = shape_of(read_gguf(bench.model)), GpuReading(0, total=24 * GIB, free=20 * GIB, own=2 * GIB)
    snapshot = SensorSnapshot(0.0, (card,), HostReading(32 * GIB, 20 * GIB))
    figures, settings = QuestionFigures(Task.HYBRID, window=32_768, used=20_000), GovernorSettings()
    outlook, prompt = None, claims()
    limits = PromptLimits(sum(one.tokens for one in prompt) * 2 // 3, 10**9, gist=256)
    seconds = []
    for number in range(max(200, bench.runs)):
        began = time.perf_counter()
        ours = Ours(held=2 * GIB + number * MIB, demand=Demand(shape, KvPlan()))
        outlook = next_outlook(outlook, replace(snapshot, at=number / 4), ours, settings)
        decide(FloorCoverage(Coverage.FULL, 60_000, 20_000), figures)
        assert settle(prompt, limits).refusal is None
        seconds.append(time.perf_counter() - began)
    seconds.sort()
    name = "governing a question, 200 claims"
    yield at_most(name, "p50", 1_000 * seconds[len(seconds) // 2], 1, "ms")
    yield at_most(name, "p99", 1_000 * seconds[len(seconds) * 99 // 100], 3, "ms")


def claims() -> list[Claim]:
    """The floor, 60 turns with a tool's result and filler each, and passages."""
    turns = [
        claim
        for at in range(60)
        for claim in (
            Claim(f"turn {at}", ClaimKind.TURN, 200, 800, weight=at, turn=at),
            Claim(f"result of {at}", ClaimKind.SUPERSEDED, 300, 1_200, stub=30, turn=at),
            Claim(f"filler {at}", ClaimKind.FILLER, 20, 300, weight=-at, turn=at),
        )
    ]
    passages = [Claim(f"a{at}.py", ClaimKind.EVIDENCE, 250, 1_000, weight=-at) for at in range(19)]
    return [Claim("floor", ClaimKind.FLOOR, 10_000, 40_000), *turns, *passages]


def tokenising(bench: Bench) -> Iterator[Row]:
    """The codex's way from texts to stored ids beside tiktoken's own batch, with the same ranks and one thread each.

    The vocabulary is a real one of 128,256 tokens; messages are packed as they cross to the child and back.
    """
    native.start()
    table, counter = read_table(llama_bpe()), Child(Vocabulary(llama_bpe()))
    peer = tiktoken.Encoding(
        table.pre, pat_str=PATTERNS[table.pre], mergeable_ranks=read_ranks(table), special_tokens={}
    )
    texts = standard_library()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        for run in range(max(2, min(5, bench.runs))):
            store = TokenStore(Path(name) / f"{run}.sqlite3")
            ours.append(taken(lambda store=store: store.counts(counter, texts)))  # type: ignore[misc]
            store.close()
            theirs.append(taken(lambda: peer.encode_ordinary_batch(texts, num_threads=1)))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    mine, other = megabytes / min(ours), megabytes / min(theirs)
    yield Row(
        "tokenising, 10 MB of code",
        "counted and stored, MB/s",
        mine,
        other,
        ratio=mine / other,
        goal="≥ 0.8 ×",
        met=mine >= 0.8 * other,
        note="beside tiktoken's encode_ordinary_batch",
    )


def taken(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@functools.cache
def llama_bpe() -> Any:
    settings = llama_cpp.llama_model_default_params()
    settings.vocab_only = True
    folder = sources(locked_version(LOCK)) / "vendor" / "llama.cpp"
    return llama_cpp.llama_model_load_from_file(str(folder / "models" / "ggml-vocab-llama-bpe.gguf").encode(), settings)


def standard_library(most: int = 10_000_000) -> list[str]:
    """Python's own modules in the order of their names, as far as they fill so many characters."""
    texts, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if size < most and "site-packages" not in path.parts:
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
            size += len(texts[-1])
    return texts


class Child:
    """The engine's desk without its process: what crosses is packed and unpacked."""

    name = "llama-bpe"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
        (asked,) = crossed(Encode(1, tuple(texts), False))
        found = [self._vocabulary.content(text) for text in asked.texts]
        (answer,) = crossed(Encoded(1, tuple(ids_to_bytes(ids) for ids in found)))
        return [bytes_to_ids(ids) for ids in answer.ids]


def crossed(message: object) -> tuple[Any, ...]:
    return unpack(pack([message])[HEADER.size :])


class Words:
    """Ids by rule: tokenising is measured elsewhere."""

    async def encode(self, texts: Sequence[str], control: bool) -> list[bytes]:
        del control
        return [array("I", range(max(1, len(text) // 4))).tobytes() for text in texts]
