"""An answer as a run of pydantic-ai's agent, over our engine: a turn's context in, events out.

    Answerer.answer ──▶ agent's run ──▶ EngineModel: one inference for each request to the model
         ▲                  │ calls tools, and asks again with the result right of the Query
         └── EngineEvent ◀──┴── EngineResponse ◀── BoundParser ◀── text of the engine

The prompt is composed from the run's dependency by our formatters; of pydantic-ai's messages only what the running turn
has said since the question is taken: calls and their results. Nothing that the framework would add to messages reaches a
prompt. Knows no codex, no session and no HTTP.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import NoneType
from typing import Any, NamedTuple, cast

import pydantic_ai
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded
from pydantic_ai.messages import (
    CustomEvent,
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.run import AgentRun
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import Tool, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_ai.usage import UsageLimits

from formatters.blocks import Role
from formatters.context import CallView, ToolView, TurnContext, TurnView
from orchestrator.answering.inference import Finished, Inference, InferenceEvent
from orchestrator.answering.parsing import AnswerParser, BoundParser, ParsedCall
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
from orchestrator.service import Text, Thought, ToolCall


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

AnswerEvent = Text | Thought | ToolCall | Admitted | PrefillProgress | Finished

log = logging.getLogger("lorekeep")
pydantic_ai.BANNER_ENABLED = False  # it advertises on the terminal, and in the log where it takes us for a coding agent
PROVIDER = "lorekeep"
MOST_CHARS = 8_000  # of a result: about as much as a search of the codebase gives
TOOL_S = 10  # seconds that a tool may take
FAULT_CHARS = 200  # of what a tool raised
CALLED_BEFORE = (
    "called before with the same arguments: the result stands above; answer from it, or ask for something else"
)
FAILED = "failed:"  # a result of what may be tried again
LAST_CALL = "\n[this was the last call of this turn: answer now, from what you have]"
LESS = "ask again, or ask something narrower"
_GENERATED = "generated"  # metadata of a response: the whole text as it was generated, tags included
_PROFILE = ModelProfile(
    supports_json_schema_output=False,
    supports_image_input=False,
    supports_inline_system_prompts=True,
    default_structured_output_mode="tool",
    supported_native_tools=frozenset(),
)


@dataclass
class GuardedTools(WrapperToolset[TurnContext]):
    """Our tools in one run, each for a sigil that may use it. A refusal and a fault are told to the model, and the turn
    goes on.

    A small model repeats itself, and a passage would stand twice: the same call is carried out once, unless it failed.
    """

    limits: TurnLimits
    refuse: Refuse
    _carried_out: set[str] = field(default_factory=set)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[TurnContext], tool: ToolsetTool[TurnContext]
    ) -> Any:
        self.limits.called()
        call = f"{name} {json.dumps(tool_args, sort_keys=True)}"
        if name in OUR_TOOLS and call in self._carried_out:
            given = CALLED_BEFORE
        else:
            self._carried_out.add(call)
            given = await self._given(name, tool_args, ctx, tool)
        if given.startswith(FAILED):
            self._carried_out.discard(call)
        return given + LAST_CALL if asked_so_far(ctx.messages, self.limits).last else given

    async def _given(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[TurnContext], tool: ToolsetTool[TurnContext]
    ) -> str:
        """What the model reads of the call."""
        if lacked := lacking_scope(ctx.deps.sigil, name):
            return f"refused: the sigil {ctx.deps.sigil.name} lacks the scope {lacked}"
        limit = asyncio.timeout(TOOL_S)
        try:
            if name not in OUR_TOOLS and (why := await self.refuse(name, json.dumps(tool_args))):
                return f"refused: {why}"
            async with limit:
                return cut_text(await super().call_tool(name, tool_args, ctx, tool), MOST_CHARS)
        except LoreError as fault:
            return f"{FAILED} {fault.message}"
        except Exception as fault:
            if limit.expired():
                return f"{FAILED} {name} took longer than {TOOL_S} seconds"
            log.exception("the tool %s failed", name)
            return f"{FAILED} {name}: {type(fault).__name__}: {str(fault)[:FAULT_CHARS]}"


def asked_so_far(messages: Sequence[ModelMessage], limits: TurnLimits) -> TurnSoFar:
    given = [message for message in messages if isinstance(message, ModelResponse)]
    generated = sum(one.usage.output_tokens for one in given)
    return TurnSoFar(len(given), generated, limits.is_last(len(given), generated))


class Answerer:
    """The agent, built once; each answer is a run of it with a model of its own."""

    def __init__(self, tools: Iterable[Callable[..., Awaitable[str]] | Tool[TurnContext]]) -> None:
        """`tools`: functions of a run's context and arguments, whose names and docstrings are what the model reads, and
        tools that say so themselves."""
        self._tools: FunctionToolset[TurnContext] = FunctionToolset(id="lorekeep")
        for tool in tools:
            if isinstance(tool, Tool):
                self._tools.add_tool(tool)
            else:
                self._tools.add_function(tool, takes_ctx=True)
        self._agent: Agent[TurnContext, Any] = Agent(
            deps_type=TurnContext,
            output_type=[str, NoneType, DeferredToolRequests],  # NoneType: an empty answer is an answer
            end_strategy="graceful",  # a call is carried out although text came before it
            retries=MOST_REQUESTS,  # wrong calls are told to the model for as long as it may ask
            name="lorekeep",
        )

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

    async def answer(self, turn: TurnContext, model: "EngineModel") -> AsyncIterator[AnswerEvent]:
        """Events as they come, `Finished` as the last. Closing the iterator cancels what runs. LoreError on any fault."""
        text: list[str] = []
        completions: list[Completion] = []
        run_of = self._agent.iter(
            turn.query,
            deps=turn,
            model=model,
            toolsets=self._offered(turn, model),
            usage_limits=UsageLimits(request_limit=MOST_REQUESTS),
        )
        try:
            async with run_of as run:
                async for node in run:
                    if not Agent.is_model_request_node(node):
                        continue
                    async with node.stream(run.ctx) as parts:
                        async for part in parts:
                            event = part.event if isinstance(part, EngineEvent) else None
                            if isinstance(event, Completion):
                                completions.append(event)
                            elif event is not None:
                                text += [event.delta] if isinstance(event, Text) else []
                                yield event
                for last in _concluded(run, "".join(text), tuple(completions)):
                    yield last
        except UsageLimitExceeded:
            raise LoreError(f"the model asked for tools {MOST_REQUESTS} times and gave no answer", LESS) from None
        except AgentRunError as fault:
            raise LoreError(f"the model's answer could not be used: {fault.message}", LESS) from fault

    def _offered(self, turn: TurnContext, model: "EngineModel") -> list[AbstractToolset[TurnContext]]:
        """Our tools and the client's own, which end the answer when they are called; on equal names the client's is
        meant."""
        theirs = turn.environment.client_tools
        if not theirs:
            return [GuardedTools(self._tools, model.limits, model.refuse)]
        names = {tool.name for tool in theirs}
        definitions = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters_json_schema) or {"type": "object", "properties": {}},
            )
            for tool in theirs
        ]
        ours = self._tools.filtered(lambda _, tool: tool.name not in names)
        return [GuardedTools(ours, model.limits, model.refuse), ExternalToolset(definitions, id="client")]


def _concluded(
    run: AgentRun[TurnContext, Any], text: str, completions: tuple[Completion, ...]
) -> list[ToolCall | Finished]:
    assert run.result is not None, "the run was driven to its end"
    output = run.result.output
    calls = output.calls if isinstance(output, DeferredToolRequests) else []
    wanted = [ToolCall(call.tool_call_id, call.tool_name, json.dumps(call.args_as_dict())) for call in calls]
    truncated = bool(completions) and completions[-1].reason is Reason.LENGTH
    reason = "tool_calls" if wanted else "length" if truncated else "stop"
    return [*wanted, Finished(reason, text, _running_of(run.result.all_messages(), wanted), completions)]


# -- pydantic-ai's model over our engine


@dataclass
class EngineEvent(CustomEvent):
    """An event of the answer that passes through the framework as it is: text and thoughts with what the engine reports."""

    event: Text | Thought | Admitted | PrefillProgress | Completion | None = None


class EngineModel(Model[None]):
    """One run's model. Cheap to make. `parser` makes one for the text of a job; `limits` and `refuse` are of the tools that
    its run calls."""

    _announces_lookalike_notes = False

    def __init__(
        self,
        name: str,
        inference: Inference,
        compose: Compose,
        learn: Learn,
        parser: Callable[[InferenceJob], AnswerParser | BoundParser],
        limits: TurnLimits,
        refuse: Refuse,
    ) -> None:
        super().__init__(settings=None, profile=_PROFILE)
        self._name = name
        self._inference = inference
        self._compose = compose
        self._learn = learn
        self._parser = parser
        self.limits = limits
        self.refuse = refuse

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def system(self) -> str:
        return PROVIDER

    def prepare_messages(self, messages: list[ModelMessage], *_: Any, **__: Any) -> list[ModelMessage]:
        """Unchanged: the framework's notes and rewritings are not for prompts in which content is never control."""
        return messages

    async def request(self, *_: Any, **__: Any) -> ModelResponse:
        raise AssertionError("every answer is streamed")

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        assert run_context is not None, "this model answers from the run's context: run it through an Agent"
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        turn: TurnContext = run_context.deps
        running = _running_of(messages)
        # The first context is taken as it is: formatters find what they wrote by its identity.
        turn = turn.model_copy(update={"running": (*turn.running, *running)}) if running else turn
        job = await self._compose(turn, asked_so_far(messages, self.limits))
        # Leaving this block must end the ticket: the framework does not close its iterators when a consumer stops early.
        async with aclosing(cast(AsyncGenerator[InferenceEvent], self._inference.infer(job))) as events:
            yield EngineResponse(
                parameters, name=self._name, parser=self._parser(job), events=events, learn=self._learn
            )


@dataclass
class EngineResponse(StreamedResponse):
    """One inference as the framework's stream of parts. What a reader gets of it is in `EngineEvent`s.

    It has no finish reason: at "length" the framework would refuse an empty answer, where we say that it was truncated.
    """

    name: str = field(kw_only=True)
    parser: AnswerParser | BoundParser = field(kw_only=True)
    events: AsyncGenerator[InferenceEvent] = field(kw_only=True)
    learn: Learn = field(kw_only=True)
    started: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)
    chosen: list[Chosen] = field(default_factory=list, init=False)  # of text that is still to come

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        generated: list[str] = []
        ids: list[Ids] = []
        cut = False
        async for event in self.events:
            if not isinstance(event, AnswerDelta):
                if isinstance(event, Completion):
                    cut, self._usage.output_tokens = event.reason is Reason.LENGTH, event.generated
                yield _passed(event)
                continue
            self.chosen += event.chosen
            generated.append(event.text)
            ids.append(event.ids)
            for part in self.parser.feed(event.text):
                yield self._event_of(part)
        for part in self.parser.end(cut=cut):
            yield self._event_of(part)
        text = "".join(generated)
        self.metadata = {_GENERATED: text}
        if text:
            self.learn(text, b"".join(ids))

    def _event_of(self, part: Text | Thought | ParsedCall) -> ModelResponseStreamEvent:
        """The framework assembles the response from what its parts manager has; texts are passed on beside it."""
        if isinstance(part, ParsedCall):
            return self._parts_manager.handle_tool_call_part(
                vendor_part_id=None,  # each is another
                tool_name=part.name,
                args=json.dumps(dict(part.arguments)),
                tool_call_id=f"call_{secrets.token_hex(12)}",
            )
        chosen, self.chosen = tuple(self.chosen), []
        if isinstance(part, Thought):
            list(self._parts_manager.handle_thinking_delta(vendor_part_id="thought", content=part.delta))
            return _passed(part)
        list(self._parts_manager.handle_text_delta(vendor_part_id="text", content=part.delta))
        return _passed(Text(part.delta, chosen))

    @property
    def model_name(self) -> str:
        return self.name

    @property
    def provider_name(self) -> str:
        return PROVIDER

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self.started


def _passed(event: Text | Thought | Admitted | PrefillProgress | Completion) -> ModelResponseStreamEvent:
    """The stream passes it through; only its declared type does not know the application's own events."""
    return cast(ModelResponseStreamEvent, EngineEvent(event=event))


def _running_of(messages: Sequence[ModelMessage], wanted: Sequence[ToolCall] = ()) -> tuple[TurnView, ...]:
    """What the running turn has said since the question: the model's texts to the letter, results as tools gave them.
    `wanted`: calls in the last text that a client answers."""
    turns: list[TurnView] = []
    made = dict[str, CallView]()
    for message in messages[1:]:
        if isinstance(message, ModelResponse):
            turns.append(TurnView(role=Role.ASSISTANT, text=(message.metadata or {}).get(_GENERATED, "")))
            made |= {one.tool_call_id: _view(one) for one in message.parts if isinstance(one, ToolCallPart)}
            continue
        results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        turns += [
            TurnView(role=Role.TOOL, text=one.model_response_str(), calls=(made[one.tool_call_id],)) for one in results
        ]
    calls = tuple(CallView(id=one.id, name=one.name, arguments=one.arguments) for one in wanted)
    last = next((at for at in reversed(range(len(turns))) if turns[at].role is Role.ASSISTANT), None)
    if calls and last is not None:
        turns[last] = turns[last].model_copy(update={"calls": calls})
    return tuple(turns)


def _view(call: ToolCallPart) -> CallView:
    arguments = json.dumps(call.args_as_dict(), ensure_ascii=False)  # for a model to read
    return CallView(id=call.tool_call_id, name=call.tool_name, arguments=arguments)
