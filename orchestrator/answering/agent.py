"""A turn of an answer: the model is asked, its calls are carried out, and it is asked again, until it calls none of ours.

    Answerer.answer ──▶ compose ──▶ engine ──▶ parser ──▶ text and thoughts, as they come
         ▲                                        │
         └── results, right of the Query ◀── OurTools ◀── calls ──▶ those of a client's tools end the answer

Tools are pydantic-ai's: it reads their schemas from signatures and docstrings, checks arguments and calls them. Its agent
is not used: each event of an answer passed a dozen of its layers, and a round of a tool made 14,000 calls of functions.

The prompt is composed from the turn's context by our formatters, with what the turn has said since the question: the
model's texts as they were generated, and results. Knows no codex, no session and no HTTP.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool
from pydantic_ai.usage import RunUsage

from formatters.blocks import Role
from formatters.context import CallView, ToolView, TurnContext, TurnView
from orchestrator.answering.inference import Finished, Inference, InferenceEvent
from orchestrator.answering.parsing import AnswerParser, BoundParser, CutCall, ParsedCall, new_id
from orchestrator.answering.running import MOST_REQUESTS, TurnLimits
from orchestrator.engine.messages import (
    Admitted,
    AnswerDelta,
    Chosen,
    Completion,
    Ids,
    InferenceJob,
    PrefillProgress,
    Reason,
)
from orchestrator.errors import LoreError
from orchestrator.prompt.filler import cut_text
from orchestrator.prompt.situation import OUR_TOOLS, lacking_scope
from orchestrator.service import CallDelta, Text, Thought, ToolCall


class TurnSoFar(NamedTuple):
    """What a turn has asked of the model already: requests, and tokens that came of them. `last`: the next request is the
    last one, and calls none of our tools."""

    requests: int = 0
    generated: int = 0
    last: bool = False


Compose = Callable[[TurnContext, TurnSoFar], Awaitable[InferenceJob]]
"""The job for a context, whose `running` holds what was said since the question. May raise LoreError."""

Refuse = Callable[[str, str], Awaitable[str]]
"""Why a call of a package's tool must not be carried out; '' where it may. Of its name, and arguments in JSON. May raise
LoreError."""

Learn = Callable[[str, Ids], None]
"""Called with a generated text and its ids, so that encoding the text again gives the same ids."""

AnswerEvent = Text | Thought | CallDelta | ToolCall | Admitted | PrefillProgress | Finished

log = logging.getLogger("lorekeep")
MOST_CHARS = 8_000  # of a result: about as much as a search of the codebase gives
TOOL_S = 10  # seconds that a tool may take
FAULT_CHARS = 200  # of what a tool raised
CALLED_BEFORE = (
    "called before with the same arguments: the result stands above; answer from it, or ask for something else"
)
FAILED = "failed:"  # a result of what may be tried again
LAST_CALL = "\n[this was the last call of this turn: answer now, from what you have]"
CUT_CALL = "the answer ended within a call of a tool, which was left out"
MORE_TOKENS = f"{CUT_CALL}: max_tokens may allow more"
LESS = "ask again, or ask something narrower"


@dataclass(frozen=True)
class EngineModel:
    """What one turn asks, and how. `parser` makes one for the text of a job; `limits` and `refuse` are of the tools that
    it calls."""

    inference: Inference
    compose: Compose
    learn: Learn
    parser: Callable[[InferenceJob], AnswerParser | BoundParser]
    limits: TurnLimits
    refuse: Refuse


class Answerer:
    """Knows our tools, and is built once."""

    def __init__(self, tools: Iterable[Callable[..., Awaitable[str]] | Tool[TurnContext]]) -> None:
        """`tools`: functions of a run's context and arguments, whose names and docstrings are what the model reads, and
        tools that say so themselves."""
        self._tools: FunctionToolset[TurnContext] = FunctionToolset()
        for tool in tools:
            if isinstance(tool, Tool):
                self._tools.add_tool(tool)
            else:
                self._tools.add_function(tool, takes_ctx=True)

    @property
    def tools(self) -> tuple[ToolView, ...]:
        """What Identity tells a model that can call tools."""
        definitions = (tool.tool_def for tool in self._tools.tools.values())
        return tuple(
            ToolView(
                name=definition.name,
                description=definition.description or "",
                parameters_json_schema=definition.parameters_json_schema,
            )
            for definition in definitions
        )

    async def answer(self, turn: TurnContext, model: EngineModel) -> AsyncIterator[AnswerEvent]:
        """Events as they come, `Finished` as the last. Closing the iterator cancels what runs. LoreError on any fault."""
        theirs = {tool.name for tool in turn.environment.client_tools}  # on equal names the client's tool is meant
        tools = OurTools(self._tools, turn, model.limits, model.refuse)
        text, running, completions = list[str](), list[TurnView](), list[Completion]()
        while len(completions) < MOST_REQUESTS:
            # The first context is taken as it is: formatters find what they wrote by its identity.
            now = turn.model_copy(update={"running": (*turn.running, *running)}) if running else turn
            said, job = Utterance(), await model.compose(now, so_far(completions, model.limits))
            async with aclosing(said.events(model, job)) as events:
                async for event in events:
                    text += [event.delta] if isinstance(event, Text) else []
                    yield event
            assert said.completion is not None, "an inference ends with its completion, or raises"
            completions.append(said.completion)
            wanted = [wanted_of(call) for call in said.calls if call.name in theirs]
            ended = said.cut_call and not wanted  # what ours would find nobody reads: no token is left
            called = [call for call in said.calls if call.name not in theirs and not ended]
            running.append(TurnView(role=Role.ASSISTANT, text=said.text, calls=tuple(map(view_of, wanted))))
            results = await tools.results(called)
            running += marked(results) if so_far(completions, model.limits).last else results
            if wanted or not called:
                for call in wanted:
                    yield call
                reason = "length" if said.completion.reason is Reason.LENGTH else "stop"
                reason = "tool_calls" if wanted and not said.cut_call else reason
                yield Finished(reason, "".join(text), tuple(running), tuple(completions))
                return
        raise LoreError(f"the model asked for tools {MOST_REQUESTS} times and gave no answer", LESS)


def so_far(completions: Sequence[Completion], limits: TurnLimits) -> TurnSoFar:
    requests, generated = len(completions), sum(one.generated for one in completions)
    return TurnSoFar(requests, generated, limits.is_last(requests, generated))


def marked(results: Sequence[TurnView]) -> list[TurnView]:
    """The results, each of which says that it is of the turn's last calls."""
    return [one.model_copy(update={"text": one.text + LAST_CALL}) for one in results]


def wanted_of(call: ParsedCall) -> ToolCall:
    """A call that the client carries out."""
    return ToolCall(call.id or new_id(), call.name, call.written or json.dumps(dict(call.arguments)))


def view_of(call: ToolCall) -> CallView:
    return CallView(id=call.id, name=call.name, arguments=call.arguments)


@dataclass
class Utterance:
    """What one request to the model gives. `text`: all that was generated, tags included. `cut_call`: it ended in one."""

    text: str = ""
    calls: list[ParsedCall] = field(default_factory=list)
    completion: Completion | None = None
    cut_call: bool = False
    _chosen: list[Chosen] = field(default_factory=list)  # of text that is still to come

    async def events(
        self, model: EngineModel, job: InferenceJob
    ) -> AsyncGenerator[Text | Thought | CallDelta | Admitted | PrefillProgress]:
        parser, generated, ids, cut = model.parser(job), list[str](), list[Ids](), False
        async with aclosing(cast(AsyncGenerator[InferenceEvent], model.inference.infer(job))) as events:
            async for event in events:
                if isinstance(event, AnswerDelta):
                    self._chosen += event.chosen
                    generated.append(event.text)
                    ids.append(event.ids)
                    for part in self._shown(parser.feed(event.text, event.ids)):
                        yield part
                elif isinstance(event, Completion):
                    self.completion, cut = event, event.reason is Reason.LENGTH
                else:
                    yield event
        for part in self._shown(parser.end(cut=cut)):
            yield part
        if self.cut_call and self.completion is not None:
            told = MORE_TOKENS if self.completion.reason is Reason.LENGTH else CUT_CALL
            detail = "; ".join(filter(None, (self.completion.detail, told)))
            self.completion = replace(self.completion, detail=detail)
        self.text = "".join(generated)
        if self.text:
            model.learn(self.text, b"".join(ids))

    def _shown(
        self, parts: Iterable[Text | Thought | CallDelta | ParsedCall | CutCall]
    ) -> Iterator[Text | Thought | CallDelta]:
        """Parts but whole calls, which are kept."""
        for part in parts:
            if isinstance(part, CutCall):
                self.cut_call = True
                continue
            if isinstance(part, ParsedCall):
                self.calls.append(part)
                continue
            if isinstance(part, CallDelta):
                yield part
                continue
            chosen, self._chosen = tuple(self._chosen), []
            yield part if isinstance(part, Thought) else Text(part.delta, chosen)


class OurTools:
    """Our tools in one turn, each for a sigil that may use it. A refusal and a fault are told to the model, and the turn
    goes on.

    A small model repeats itself, and a passage would stand twice: the same call is carried out once, unless it failed.
    """

    def __init__(
        self, tools: FunctionToolset[TurnContext], turn: TurnContext, limits: TurnLimits, refuse: Refuse
    ) -> None:
        self._tools = tools
        self._context = RunContext(deps=turn, model=cast(Any, None), usage=RunUsage())  # tools read `deps` alone
        self._limits = limits
        self._refuse = refuse
        self._known: dict[str, ToolsetTool[TurnContext]] = {}
        self._carried_out: set[str] = set()

    async def results(self, calls: Sequence[ParsedCall]) -> list[TurnView]:
        """Of the calls of one answer, in their order; they are carried out side by side."""
        if calls and not self._known:
            self._known = await self._tools.get_tools(self._context)
        texts = await asyncio.gather(*map(self._result, calls))
        return [_told(call, text) for call, text in zip(calls, texts, strict=True)]

    async def _result(self, call: ParsedCall) -> str:
        """What the model reads of the call."""
        self._limits.called()
        tool, given = self._known.get(call.name), json.dumps(dict(call.arguments))
        if tool is None:
            return f"{FAILED} there is no tool {call.name}"
        try:
            arguments = tool.args_validator.validate_json(given)
        except ValidationError as fault:
            return cut_text(f"{FAILED} wrong arguments: {fault.json(include_url=False)}", MOST_CHARS)
        same = f"{call.name} {json.dumps(arguments, sort_keys=True)}"
        if call.name in OUR_TOOLS and same in self._carried_out:
            return CALLED_BEFORE
        self._carried_out.add(same)
        result = await self._carried(call.name, arguments, tool)
        if result.startswith(FAILED):
            self._carried_out.discard(same)
        return result

    async def _carried(self, name: str, arguments: dict[str, Any], tool: ToolsetTool[TurnContext]) -> str:
        if lacked := lacking_scope(self._context.deps.sigil, name):
            return f"refused: the sigil {self._context.deps.sigil.name} lacks the scope {lacked}"
        limit = asyncio.timeout(TOOL_S)
        try:
            if name not in OUR_TOOLS and (why := await self._refuse(name, json.dumps(arguments))):
                return f"refused: {why}"
            async with limit:
                return cut_text(await self._tools.call_tool(name, arguments, self._context, tool), MOST_CHARS)
        except LoreError as fault:
            return f"{FAILED} {fault.message}"
        except Exception as fault:
            if limit.expired():
                return f"{FAILED} {name} took longer than {TOOL_S} seconds"
            log.exception("the tool %s failed", name)
            return f"{FAILED} {name}: {type(fault).__name__}: {str(fault)[:FAULT_CHARS]}"


def _told(call: ParsedCall, text: str) -> TurnView:
    """A result as the turn goes on with it."""
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)  # for a model to read
    return TurnView(role=Role.TOOL, text=text, calls=(CallView(id=new_id(), name=call.name, arguments=arguments),))
