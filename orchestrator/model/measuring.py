"""Measures how long a text the loaded model follows (`needles`), in the background; what was measured is kept in a file.

    for each length, shortest first:  its text is computed behind that of the one before ─▶ its questions, one by one
                                              │                                                  │
                                       cells of a pool that is never saved              each result is kept at once

A measurement that is cancelled goes on with the question that it was at. It ends with the first length that is lost. The
limit that follows holds until another measurement of the same model and KV types is complete.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from codex.progress import progress_at
from formatters.blocks import BlockKind
from formatters.template import Literal, NoThink, Piece, Slot
from governor.footprint import KvPlan
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import (
    UNSAVED,
    AnswerDelta,
    Completion,
    Ids,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Urgency,
)
from orchestrator.engine.model import sample_file, shards
from orchestrator.engine.prefill_cost import prompt_s
from orchestrator.errors import Conflict, EngineFailed, InvalidRequest
from orchestrator.machine.machine import Machine
from orchestrator.model import needles
from orchestrator.model.chat_model import ChatModel, engine_faults
from orchestrator.model.needles import DEPTHS, KINDS, Haystack, LengthVerdict, Line, NeedleQuestion, Needles
from orchestrator.wire.models import ContextReport, LengthReport, MeasuredEvent, MeasureEstimate
from orchestrator.wire.places import MeasurePhase
from orchestrator.wire.replies import ProgressEvent

log = logging.getLogger("lorekeep.measuring")

QUESTION_TOKENS = 100  # of a question and its template, about: for the estimate
ANSWER_TOKENS = 20  # of an answer, about
PAGE = 256  # lines in one call to the tokenizer
# Where an answer's own words begin behind what a template ends with: behind a thought, and in gpt-oss's last channel.
OPENED = {"<think>": "\n</think>\n\n", "<|start|>assistant": "<|channel|>final<|message|>"}
PHASE: MeasurePhase = "measure"
INSTRUCTIONS, QUERY = Slot(BlockKind.IDENTITY), Slot(BlockKind.QUERY)
Cells = dict[tuple[int, str, float], bool]


# -- what was measured, in a file


@dataclass(frozen=True)
class Measurement:
    """Of one model with one pair of KV types. `limit`: of the last that was complete."""

    lengths: tuple[int, ...] = ()
    results: Cells = field(default_factory=dict)
    limit: int | None = None

    def fitting(self, window: int) -> tuple[int, ...]:
        """The lengths that can be asked now: those it was begun with."""
        held = window - needles.RESERVE
        return tuple(one for one in self.lengths if one <= held) if self.lengths else needles.lengths_for(window)

    def as_json(self) -> dict[str, Any]:
        rows = [[*cell, right] for cell, right in self.results.items()]
        return {"lengths": self.lengths, "results": rows, "limit": self.limit}


def measurement_of(found: Any) -> Measurement:
    """Raises ValueError, TypeError or LookupError for what is none."""
    results = {(int(length), str(kind), float(depth)): bool(right) for length, kind, depth, right in found["results"]}
    limit = found["limit"]
    return Measurement(tuple(map(int, found["lengths"])), results, None if limit is None else int(limit))


def model_key(model: Path, plan: KvPlan) -> str:
    """Names a model's file and its KV types, which a new build of llama.cpp leaves as they are. Reads 8 MiB a shard."""
    digest = hashlib.sha256(f"{plan.keys} {plan.values}\n".encode())
    for shard in shards(model):
        sample_file(shard, digest)
    return digest.hexdigest()


class MeasurementFile:
    """All measurements by the key of their model. A file that cannot be read counts as empty: it is measured again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str) -> Measurement:
        found = self._read().get(key)
        try:
            return measurement_of(found) if found is not None else Measurement()
        except (ValueError, TypeError, LookupError):
            log.warning("%s holds no measurement of this model that can be read", self._path)
            return Measurement()

    def put(self, key: str, measured: Measurement) -> None:
        """Whole or not at all."""
        content = json.dumps(self._read() | {key: measured.as_json()})
        temporary = self._path.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_text(content)
        temporary.replace(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return {}
        return found if isinstance(found, dict) else {}


# -- one text and its questions, in the engine


class Asked:
    """The needles of some lengths, their text in this model's tokens, and the prompt around it: the text stands where a
    codex does."""

    def __init__(self, client: EngineClient, chat: ChatModel, lengths: Sequence[int]) -> None:
        self.needles: Needles = needles.needles(lengths)
        self._client, self._chat, self._longest = client, chat, lengths[-1]
        think = chat.placement.no_think is NoThink.NOTHING
        layout = chat.template.layout(way=chat.placement.way, think=think)
        cut = layout.index(Slot(BlockKind.CODEX))
        self._head, self._tail = layout[:cut], layout[cut + 1 :]
        if isinstance(last := layout[-1], Literal):
            opened = (more for end, more in OPENED.items() if last.text.rstrip().endswith(end))
            self._tail = (*self._tail, *(Literal(more, last.block) for more in opened))
        self._haystack: Haystack | None = None

    async def floor(self, length: int) -> Ids:
        """The ids of the instructions and of the text of this length."""
        if self._haystack is None:
            self._haystack = await self._woven()
        text = b"".join(line.ids for line in self._haystack.text(length))
        return await self._ids(self._head, {INSTRUCTIONS: needles.INSTRUCTIONS}) + text

    async def tail(self, question: NeedleQuestion) -> Ids:
        (begun,) = await self._chat.tokens.encode([question.begun])
        return await self._ids(self._tail, {QUERY: question.text}) + begun

    async def _woven(self) -> Haystack:
        between, held, source = list[Line](), 0, needles.filler()
        while held <= self._longest:
            page = await self._lines(list(islice(source, PAGE)))
            between += page
            held += sum(line.tokens for line in page)
        groups = {place: await self._lines(lines) for place, lines in self.needles.lines.items()}
        return needles.woven(between, groups)

    async def _lines(self, texts: Sequence[str]) -> list[Line]:
        """Each tokenised by itself, so that a shorter text's ids begin a longer one's."""
        ids = await self._client.encode(texts)
        return [Line(text, one.tobytes()) for text, one in zip(texts, ids, strict=True)]

    async def _ids(self, pieces: Sequence[Piece], filled: Mapping[Slot, str]) -> Ids:
        """The template's own text, which may hold control tokens, and what fills its slots, which may not."""
        ids = []
        for piece in pieces:
            text = piece.text if isinstance(piece, Literal) else filled.get(piece, "")
            ids += await self._chat.tokens.encode([text], control=isinstance(piece, Literal))
        return b"".join(ids)


async def computed(client: EngineClient, floor: str) -> AsyncGenerator[int]:
    """Computes a floor in the background; yields how many of its tokens are in cells."""
    async with aclosing(client.run(job_of(floor))) as events:
        async for event in events:
            if isinstance(event, PrefillProgress):
                yield event.done
            elif isinstance(event, Completion):
                insist_done(event)


async def answered(client: EngineClient, job: InferenceJob) -> str:
    said = ""
    async with aclosing(client.run(job)) as events:
        async for event in events:
            if isinstance(event, AnswerDelta):
                said += event.text
            elif isinstance(event, Completion):
                insist_done(event)
    return said


def job_of(floor: str, tail: Ids = b"", most: int = 0, stop: tuple[str, ...] = ()) -> InferenceJob:
    return InferenceJob(0, floor, tail, owner=0, max_tokens=most, stop=stop, urgency=Urgency.BACKGROUND)


def insist_done(ended: Completion) -> None:
    """Raises EngineFailed."""
    if ended.outcome is not Outcome.DONE:
        why = ended.detail or f"the engine ended a question: {ended.reason}"
        raise EngineFailed(why, "the same command again goes on where this ended")


# -- the measuring


@dataclass
class ContextMeter:
    """`name`, `path` and `plan`: the model, and its KV types. `model` waits until it is loaded; `quiet` returns when nobody
    is answered. No limit is below `least`; `applies`: whether one is kept to."""

    name: str
    path: Path
    plan: KvPlan
    file: MeasurementFile
    client: EngineClient
    machine: Machine
    model: Callable[[], Awaitable[ChatModel]]
    quiet: Callable[[], Awaitable[None]]
    least: int
    applies: bool
    _key: str = ""
    _running: bool = False

    async def limit(self) -> int | None:
        """The longest window that is of use, in tokens, where it was measured and is kept to."""
        return (await self._measured()).limit if self.applies else None

    async def report(self) -> ContextReport:
        """Waits for the model. Raises LoreError where there is none."""
        await self.model()
        measured = await self._measured()
        window, counters = self.machine.longest, self.client.snapshot.counters
        return reported(
            measured,
            lengths := measured.fitting(window),
            model=self.name,
            kv=f"{self.plan.keys} {self.plan.values}",
            limit=measured.limit if self.applies else None,
            left=estimated(lengths, measured.results, counters),
            whole=estimated(needles.lengths_for(window), {}, counters),
        )

    async def measure(self, *, again: bool) -> AsyncIterator[ProgressEvent | MeasuredEvent]:
        """Measures what is missing, or everything `again`. Closing it keeps what was measured.

        Raises Conflict where one runs already, InvalidRequest for a window too short to tell, EngineFailed.
        """
        if self._running:
            raise Conflict("the context is being measured already", "wait until that is done")
        self._running = True
        try:
            with engine_faults():
                async with aclosing(self._steps(again)) as events:
                    async for event in events:
                        yield event
                yield MeasuredEvent(event="measured", context=await self.report())
        finally:
            self._running = False

    async def _steps(self, again: bool) -> AsyncGenerator[ProgressEvent]:
        """Length by length, what is not known yet. A floor is dropped when the next one, which it begins, is computed."""
        chat, measured = await self.model(), await self._measured()
        window = self.machine.longest
        measured = with_lengths(Measurement(limit=measured.limit) if again else measured, window)
        lengths, held = measured.fitting(window), list[str]()
        asked = Asked(self.client, chat, measured.lengths)
        await asyncio.to_thread(self.file.put, self._key, measured)
        meter = ProgressMeter(estimated(lengths, measured.results, {}).tokens, time.monotonic)
        try:
            while missing := needles.judged(lengths, measured.results).missing:
                held.append(self._put(await asked.floor(missing[0])))
                async with aclosing(computed(self.client, held[-1])) as tokens:
                    async for done in tokens:
                        yield meter.text(done)
                if held[1:]:
                    self.client.drop_floor(held.pop(0))
                for question in asked.needles.questions(missing[0]):
                    cells = [(missing[0], question.kind, depth) for depth in question.depths]
                    if any(cell not in measured.results for cell in cells):
                        await self.quiet()  # an answer in the background would slow the prefill of who comes meanwhile
                        job = job_of(held[-1], await asked.tail(question), question.most, chat.stop)
                        rights = question.judge(await answered(self.client, job))
                        measured = replace(measured, results=measured.results | dict(zip(cells, rights, strict=True)))
                        measured = await self._keep(measured, lengths)
                        yield meter.question()
        finally:
            for floor in held:
                self.client.drop_floor(floor)

    def _put(self, ids: Ids) -> str:
        name = hashlib.sha256(ids).hexdigest()
        self.client.put_floor(name, ids, pool=UNSAVED)
        return name

    async def _keep(self, measured: Measurement, lengths: Sequence[int]) -> Measurement:
        """Writes it; where it is complete, its limit holds from now on."""
        verdict = needles.judged(lengths, measured.results)
        if verdict.complete:
            measured = replace(measured, limit=verdict.limit(self.least))
            if self.applies:
                self.machine.end_window_at(measured.limit)
        await asyncio.to_thread(self.file.put, self._key, measured)
        return measured

    async def _measured(self) -> Measurement:
        if not self._key and self.client.spec.remote is not None:
            info = await self.client.ensure_ready()
            self._key = info.fingerprint
        if not self._key:
            self._key = await asyncio.to_thread(model_key, self.path, self.plan)
        return await asyncio.to_thread(self.file.get, self._key)


def with_lengths(measured: Measurement, window: int) -> Measurement:
    """With lengths. Raises InvalidRequest for a window too short to tell."""
    if not measured.fitting(window):
        least = 2 * needles.SHORTEST + needles.RESERVE
        why = f"a window of {window:,} tokens is too short to be measured, which takes {least:,}"
        raise InvalidRequest(why, "raise model.context, or free memory: lore status")
    return replace(measured, lengths=measured.lengths or needles.lengths_for(window))


class ProgressMeter:
    """Counts prompt tokens: those of the text, which is computed once, and some for each question."""

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._total, self._clock, self._began = total, clock, clock()
        self._text = self._questions = 0

    def text(self, done: int) -> ProgressEvent:
        self._text = max(self._text, done)
        return self._event()

    def question(self) -> ProgressEvent:
        self._questions += QUESTION_TOKENS
        return self._event()

    def _event(self) -> ProgressEvent:
        done = min(self._text + self._questions, self._total)
        found = progress_at(PHASE, done, self._total, self._clock() - self._began)
        eta = None if found.eta_s is None else round(found.eta_s, 1)
        return ProgressEvent.of(found, event="progress", rate=round(found.rate, 1), eta_s=eta, name="")


# -- what is reported; pure


def estimated(lengths: Sequence[int], results: Cells, counters: Mapping[str, float]) -> MeasureEstimate:
    """At most: as if no further length were lost. Seconds are None before the engine has learned what steps cost."""
    missing = needles.judged(lengths, results).missing
    asked = {length: unanswered(length, results) for length in missing}
    tokens = max(missing, default=0) + QUESTION_TOKENS * sum(asked.values())
    seconds = None
    if counters.get("costs_known"):
        text = prompt_s(counters, 0, max(missing, default=0)) or 0.0
        seconds = text + sum(count * question_s(counters, length) for length, count in asked.items())
    return MeasureEstimate(tokens=tokens, answers=sum(asked.values()), seconds=seconds)


def unanswered(length: int, results: Cells) -> int:
    """Questions: one for each depth, but of several at once."""
    kinds = [(kind, depth) for kind in KINDS for depth in (DEPTHS[:1] if kind == "several" else DEPTHS)]
    return sum((length, kind, depth) not in results for kind, depth in kinds)


def question_s(counters: Mapping[str, float], length: int) -> float:
    step_ms = counters["ms_per_answer_empty"] + counters["ms_per_answer_cell"] * length
    return (prompt_s(counters, length, length + QUESTION_TOKENS) or 0.0) + ANSWER_TOKENS * step_ms / 1000


def reported(
    measured: Measurement,
    lengths: Sequence[int],
    *,
    model: str,
    kv: str,
    limit: int | None,
    left: MeasureEstimate,
    whole: MeasureEstimate,
) -> ContextReport:
    verdict = needles.judged(lengths, measured.results)
    return ContextReport(
        model=model,
        kv=kv,
        depths=DEPTHS,
        lengths=tuple(length_report(length, measured.results, verdict) for length in lengths),
        counted=verdict.counted or (),
        effective=verdict.effective,
        limit=limit,
        complete=verdict.complete,
        words=judged_words(verdict, lengths, limit),
        left=left,
        whole=whole,
    )


def length_report(length: int, results: Cells, verdict: LengthVerdict) -> LengthReport:
    kinds = verdict.counted or KINDS
    by_depth = [[results.get((length, kind, depth)) for kind in kinds] for depth in DEPTHS]
    return LengthReport(
        length=length,
        share=needles.share(results, length, kinds),
        depths=tuple(None if None in rights else sum(map(bool, rights)) / len(rights) for rights in by_depth),
        kinds={kind: needles.share(results, length, [kind]) for kind in KINDS},
    )


def judged_words(verdict: LengthVerdict, lengths: Sequence[int], limit: int | None) -> str:
    """What came of it, in a sentence."""
    if not lengths:
        return "the window is too short to be measured"
    if not verdict.complete:
        return "not measured" if verdict.counted is None else "not measured to the end"
    if verdict.effective is None:
        return f"no measured length: at {lengths[0]:,} tokens no kind of question is mastered, so nothing is limited"
    if verdict.lost is None:
        return f"texts of up to {verdict.effective:,} tokens are followed, the longest that was measured"
    kept = f"windows end at {limit:,}" if limit is not None else "model.measured_context is off, so nothing is limited"
    return f"the effective length is {verdict.effective:,} tokens: at {verdict.lost:,} too little is found; {kept}"
