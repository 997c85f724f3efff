"""An agent over a small engine that says what it was told to say."""

from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from codex.errors import CodexError
from formatters.calls import PLAIN_CALLS
from formatters.context import Evidence, TurnContext
from orchestrator.answering.agent import Answerer, AnswerEvent, EngineModel, Finished, Refuse, TurnSoFar
from orchestrator.answering.codex_tools import SearchArchive
from orchestrator.answering.inference import InferenceEvent
from orchestrator.answering.parsing import AnswerParser, BoundParser
from orchestrator.answering.running import TurnLimits, job_of
from orchestrator.engine.messages import (
    ID_BYTES,
    Admitted,
    AnswerDelta,
    Completion,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Reason,
)
from orchestrator.prompt.composing import Composer, TokenCache
from orchestrator.prompt.evidence import FoundPassages
from orchestrator.service import Text

HIT = Evidence(path="a.py", start=1, end=2, text="def main():\n    pass\n", symbol="main")


@dataclass
class ScriptedEngine:
    """Says the next text of its script for each request, in pieces of a few characters, and keeps what it was asked."""

    script: Sequence[str | Exception]
    size: int = 5
    reason: Reason = Reason.STOP
    requests: list[InferenceJob] = field(default_factory=list)
    ended: int = 0

    async def infer(self, request: InferenceJob) -> AsyncIterator[InferenceEvent]:
        self.requests.append(request)
        said = self.script[len(self.requests) - 1]
        try:
            if isinstance(said, Exception):
                raise said
            prompt = len(request.tail) // ID_BYTES
            yield Admitted(1, prompt, (), 0.0)
            yield PrefillProgress(1, prompt, prompt)
            for at in range(0, len(said), self.size):
                piece = said[at : at + self.size]
                yield AnswerDelta(1, piece, array("I", list(piece.encode())).tobytes())
            yield Completion(1, Outcome.DONE, self.reason, prompt=prompt, cached=3, generated=len(said))
        finally:
            self.ended += 1


@dataclass
class Archive:
    """A searcher with a few passages, or a fault."""

    hits: Sequence[Evidence] = (HIT,)
    fault: CodexError | None = None
    queries: list[tuple[str, str]] = field(default_factory=list)
    graphs: list[bool] = field(default_factory=list)

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> FoundPassages:
        self.queries.append((codex, query))
        self.graphs.append(graph)
        if self.fault:
            raise self.fault
        return FoundPassages(tuple(self.hits[:n]))


async def refuse_nothing(name: str, arguments: str) -> str:
    del name, arguments
    return ""


@dataclass
class Bench:
    """An answerer with everything around it."""

    composer: Composer
    tokens: TokenCache
    engine: ScriptedEngine
    archive: Archive = field(default_factory=Archive)
    calls: bool = True
    more: Sequence[Any] = ()
    texts: list[str] = field(default_factory=list)
    asked: list[TurnSoFar] = field(default_factory=list)
    limits: TurnLimits = field(default_factory=lambda: TurnLimits(10_000, 100.0))
    refuse: Refuse = refuse_nothing

    def __post_init__(self) -> None:
        self.answerer = Answerer([SearchArchive(self.archive, self.tokens).search_archive, *self.more])

    async def compose(self, turn: TurnContext, asked: TurnSoFar) -> InferenceJob:
        composed = await self.composer.compose(turn)
        self.texts.append(composed.text)
        self.asked.append(asked)
        return job_of(InferenceJob(0, "", b"", turn.sigil.uid, 100), composed)

    def answer(self, turn: TurnContext) -> AsyncIterator[AnswerEvent]:
        offered = (*self.answerer.tools, *turn.environment.client_tools)
        schemas = {tool.name: tool.parameters_json_schema for tool in offered}

        def parser(job: InferenceJob) -> AnswerParser | BoundParser:
            return BoundParser(PLAIN_CALLS, schemas) if self.calls else AnswerParser()

        learn = self.tokens.learn_answer
        model = EngineModel(self.engine, self.compose, learn, parser, self.limits, self.refuse)
        return self.answerer.answer(turn, model)

    async def events(self, turn: TurnContext) -> list[AnswerEvent]:
        return [event async for event in self.answer(turn)]


def text_of(events: Sequence[AnswerEvent]) -> str:
    return "".join(event.delta for event in events if isinstance(event, Text))


def finished(events: Sequence[AnswerEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last
