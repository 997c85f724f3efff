"""pydantic-ai's model over our engine: a run's typed context in, parts of an answer out.

The prompt is composed from the run's dependency by our formatters; of pydantic-ai's messages only what the running turn
has said since the question is taken: calls and their results, which stand right of the Query. Nothing that the framework
would add to messages reaches a prompt. Knows no codex, no session and no HTTP.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import NoneType
from typing import Any, cast

from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai._run_context import get_current_run_context  # the one way to reach it from `request`
from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded
from pydantic_ai.messages import (
    CustomEvent,
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.run import AgentRun
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, FunctionToolset
from pydantic_ai.usage import RequestUsage, UsageLimits

from formatters.blocks import Role
from formatters.context import ToolView, TurnContext, TurnView
from orchestrator.answering.answer_text import AnswerParser, ParsedCall, ParsedPart, ParsedThought
from orchestrator.answering.inference import Finished, Inference, InferenceEvent, InferenceRequest
from orchestrator.engine.messages import Admitted, AnswerDelta, Chosen, Completion, Ids, PrefillProgress, Reason
from orchestrator.errors import LoreError
from orchestrator.prompt.evidence import Searcher, TokenCounter, gather, written
from orchestrator.prompt.situation import may_use
from orchestrator.prompt.strategy import SEARCH_TOOL
from orchestrator.service import Text, Thought, ToolCall

Compose = Callable[[RunContext[TurnContext]], Awaitable[InferenceRequest]]
"""The request for a context, whose `running` holds what was said since the question. May raise LoreError."""

Learn = Callable[[str, Ids], None]
"""Called with a generated text and its ids, so that encoding the text again gives the same ids."""

PROVIDER = "lorekeep"
_SAID = "said"  # metadata of a response: the whole text as it was generated, tags included


@dataclass
class EngineEvent(CustomEvent):
    """An event of the engine that is no text: admission, progress, the completion; and the log-probabilities of a text."""

    event: InferenceEvent | None = None


class EngineModel(Model[None]):
    """One run's model. Cheap to make; it keeps nothing between requests."""

    _announces_lookalike_notes = False

    def __init__(self, name: str, inference: Inference, compose: Compose, learn: Learn) -> None:
        super().__init__(settings=None, profile=_PROFILE)
        self._name = name
        self._inference = inference
        self._compose = compose
        self._learn = learn

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def system(self) -> str:
        return PROVIDER

    def prepare_messages(
        self,
        messages: list[ModelMessage],
        model_request_parameters: ModelRequestParameters | None = None,  # noqa: ARG002 - the framework's signature
    ) -> list[ModelMessage]:
        """Unchanged: the framework's notes and rewritings are not for prompts in which content is never control."""
        return messages

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        run_context = get_current_run_context()
        async with self.request_stream(messages, model_settings, model_request_parameters, run_context) as streamed:
            async for _ in streamed:
                pass
        return streamed.get()

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
        request = await self._compose(_with_running(run_context, messages))
        # Leaving this block must end the ticket: the framework does not close its iterators when a consumer stops early.
        async with aclosing(cast(AsyncGenerator[InferenceEvent], self._inference.infer(request))) as events:
            yield EngineResponse(parameters, name=self._name, request=request, events=events, learn=self._learn)


@dataclass
class EngineResponse(StreamedResponse):
    """One inference as the framework's stream of parts, and the engine's own events as `EngineEvent`."""

    name: str = field(kw_only=True)
    request: InferenceRequest = field(kw_only=True)
    events: AsyncGenerator[InferenceEvent] = field(kw_only=True)
    learn: Learn = field(kw_only=True)
    started: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        parser = AnswerParser(thinking=self.request.thinking, calls=self.request.calls)
        said: list[str] = []
        ids: list[Ids] = []
        async for event in self.events:
            if not isinstance(event, AnswerDelta):
                self._account(event)
                # The stream passes it through; only its declared type does not know the application's own events.
                yield cast(ModelResponseStreamEvent, EngineEvent(event=event))
                continue
            if event.chosen:
                yield cast(ModelResponseStreamEvent, EngineEvent(event=event))
            said.append(event.text)
            ids.append(event.ids)
            for part in parser.feed(event.text):
                for event_of_part in self._events_of(part):
                    yield event_of_part
            if parser.done:  # a call: what the model would say behind it belongs to nobody
                await self.events.aclose()
                break
        for part in parser.end():
            for event_of_part in self._events_of(part):
                yield event_of_part
        self._conclude("".join(said), b"".join(ids), parser.beyond)

    def _events_of(self, part: ParsedPart) -> Iterable[ModelResponseStreamEvent]:
        if isinstance(part, ParsedThought):
            return self._parts_manager.handle_thinking_delta(vendor_part_id="thought", content=part.text)
        if isinstance(part, ParsedCall):
            return [
                self._parts_manager.handle_tool_call_part(
                    vendor_part_id="call", tool_name=part.name, args=json.dumps(dict(part.arguments))
                )
            ]
        return self._parts_manager.handle_text_delta(vendor_part_id="text", content=part.text)

    def _account(self, event: InferenceEvent) -> None:
        if isinstance(event, Completion):
            self._usage = RequestUsage(
                input_tokens=event.prompt, cache_read_tokens=event.cached, output_tokens=event.generated
            )

    def _conclude(self, said: str, ids: Ids, beyond: int) -> None:
        self.metadata = {_SAID: said[: len(said) - beyond]}
        # Never "length": the framework would refuse an empty answer that was cut, where we say that it was cut.
        self.finish_reason = "stop"
        if said and not beyond:  # ids of a text that was cut within its last token would be another text's
            self.learn(said, ids)

    async def close_stream(self) -> None:
        await self.events.aclose()

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


def running_of(messages: Sequence[ModelMessage]) -> tuple[TurnView, ...]:
    """What the running turn has said since the question: the model's texts to the letter, results as tools gave them."""
    turns: list[TurnView] = []
    for message in messages[1:]:
        if isinstance(message, ModelResponse):
            turns.append(TurnView(role=Role.ASSISTANT, text=(message.metadata or {}).get(_SAID, "")))
            continue
        results = [part.model_response_str() for part in message.parts if isinstance(part, ToolReturnPart)]
        turns += [TurnView(role=Role.TOOL, text=result) for result in results]
    return tuple(turns)


def _with_running(run_context: RunContext[Any], messages: Sequence[ModelMessage]) -> RunContext[TurnContext]:
    """The context of this request. The first one is taken as it is: formatters find what they wrote by its identity."""
    turn = run_context.deps
    assert isinstance(turn, TurnContext), "the run's dependency is the turn's context"
    running = running_of(messages)
    if not running:
        return run_context
    return replace(run_context, deps=turn.model_copy(update={"running": (*turn.running, *running)}))


_PROFILE = ModelProfile(
    supports_json_schema_output=False,
    supports_image_input=False,
    supports_inline_system_prompts=True,
    default_structured_output_mode="tool",
    supported_native_tools=frozenset(),
)


RESULT_TOKENS = 2_000  # of one search: a few whole functions


class SearchArchive:
    """`search_archive`: passages of the turn's codex that say something about a query."""

    def __init__(self, searcher: Searcher, tokens: TokenCounter, budget: int = RESULT_TOKENS) -> None:
        self._searcher = searcher
        self._tokens = tokens
        self._budget = budget

    async def search_archive(self, ctx: RunContext[TurnContext], query: str) -> str:
        """Search the codebase for passages about a query: words, names of functions, text of an error message.

        Args:
            query: what to look for.
        """
        turn = ctx.deps
        if not may_use(turn.sigil, SEARCH_TOOL):
            return f"refused: the sigil {turn.sigil.name} lacks the scope tools:{SEARCH_TOOL}"
        if turn.codex is None:
            return "refused: no codex was chosen for this conversation"
        known = (*turn.state.evidence, *(one for earlier in turn.state.turns for one in earlier.evidence))
        found = await gather(self._searcher, self._tokens, turn.codex.name, query, self._budget, known)
        if found.failed:
            return f"failed: {'; '.join(found.notices)}"
        return "".join(written(one) for one in found.evidence) or "nothing found that was not told before"


def toolset_of(search: SearchArchive) -> FunctionToolset[TurnContext]:
    """Our own tools, made once."""
    tools: FunctionToolset[TurnContext] = FunctionToolset(id="lorekeep")
    tools.add_function(search.search_archive, name=SEARCH_TOOL, takes_ctx=True)
    return tools


def views_of(tools: FunctionToolset[TurnContext]) -> tuple[ToolView, ...]:
    """The tools as Identity tells the model of them."""
    definitions = (tool.tool_def for tool in tools.tools.values())
    return tuple(
        ToolView(
            name=definition.name,
            description=definition.description or "",
            parameters_json_schema=definition.parameters_json_schema,
        )
        for definition in definitions
    )


def offered(ours: FunctionToolset[TurnContext], turn: TurnContext) -> list[AbstractToolset[TurnContext]]:
    """Our tools and the client's own, which end the answer when they are called; on equal names the client's is meant."""
    theirs = turn.environment.client_tools
    if not theirs:
        return [ours]
    names = {tool.name for tool in theirs}
    definitions = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.parameters_json_schema) or {"type": "object", "properties": {}},
        )
        for tool in theirs
    ]
    return [ours.filtered(lambda _, tool: tool.name not in names), ExternalToolset(definitions, id="client")]


MOST_REQUESTS = 8  # to the model for one answer: seven rounds of tools, then it has to say something


AnswerEvent = Text | Thought | ToolCall | Admitted | PrefillProgress | Finished
_Output = str | DeferredToolRequests | None


@dataclass
class _Heard:
    """What was passed on so far."""

    text: list[str] = field(default_factory=list)
    chosen: list[Chosen] = field(default_factory=list)  # of text that is still to come
    completions: list[Completion] = field(default_factory=list)

    def taken(self) -> tuple[Chosen, ...]:
        chosen, self.chosen = tuple(self.chosen), []
        return chosen


class Answerer:
    """The agent, built once; each answer is a run of it with a model of its own."""

    def __init__(self, search: SearchArchive) -> None:
        self._tools = toolset_of(search)
        self._agent: Agent[TurnContext, Any] = Agent(
            deps_type=TurnContext,
            output_type=[str, NoneType, DeferredToolRequests],  # NoneType: an empty answer is an answer
            end_strategy="graceful",  # a call is carried out although text came before it
            retries=2,
            name="lorekeep",
        )

    @property
    def tools(self) -> tuple[ToolView, ...]:
        """What Identity tells a model that can call tools."""
        return views_of(self._tools)

    async def answer(self, turn: TurnContext, model: EngineModel) -> AsyncIterator[AnswerEvent]:
        """Events as they come, `Finished` as the last. Closing the iterator cancels what runs. LoreError on any fault."""
        heard = _Heard()
        run_of = self._agent.iter(
            turn.query,
            deps=turn,
            model=model,
            toolsets=offered(self._tools, turn),
            usage_limits=UsageLimits(request_limit=MOST_REQUESTS),
        )
        try:
            async with run_of as run:
                async for node in run:
                    if not Agent.is_model_request_node(node):
                        continue
                    async with node.stream(run.ctx) as parts:
                        async for part in parts:
                            event = _heard(part, heard)
                            if event is not None:
                                yield event
                for event in _concluded(run, heard):
                    yield event
        except UsageLimitExceeded:
            raise LoreError(f"the model asked for tools {MOST_REQUESTS} times and gave no answer", _LESS) from None
        except AgentRunError as fault:
            raise LoreError(f"the model's answer could not be used: {fault.message}", _LESS) from fault


_LESS = "ask again, or ask something narrower"


def _heard(part: object, heard: _Heard) -> AnswerEvent | None:
    """What of a part is passed on."""
    if isinstance(part, EngineEvent):
        return _engine_event(part, heard)
    delta = part.part if isinstance(part, PartStartEvent) else part.delta if isinstance(part, PartDeltaEvent) else None
    if isinstance(delta, TextPart | TextPartDelta):
        text = delta.content if isinstance(delta, TextPart) else delta.content_delta
        heard.text.append(text)
        return Text(text, heard.taken()) if text else None
    if isinstance(delta, ThinkingPart | ThinkingPartDelta):
        heard.taken()
        thought = delta.content if isinstance(delta, ThinkingPart) else delta.content_delta or ""
        return Thought(thought) if thought else None
    return None


def _engine_event(part: EngineEvent, heard: _Heard) -> AnswerEvent | None:
    if isinstance(part.event, AnswerDelta):
        heard.chosen += part.event.chosen
        return None
    if isinstance(part.event, Completion):
        heard.completions.append(part.event)
        return None
    return part.event if isinstance(part.event, Admitted | PrefillProgress) else None


def _concluded(run: AgentRun[TurnContext, _Output], heard: _Heard) -> list[AnswerEvent]:
    assert run.result is not None, "the run was driven to its end"
    output = run.result.output
    calls = output.calls if isinstance(output, DeferredToolRequests) else []
    wanted = [ToolCall(call.tool_call_id, call.tool_name, json.dumps(call.args_as_dict())) for call in calls]
    cut = bool(heard.completions) and heard.completions[-1].reason is Reason.LENGTH
    reason = "tool_calls" if wanted else "length" if cut else "stop"
    running = running_of(run.result.all_messages())
    return [*wanted, Finished(reason, "".join(heard.text), running, tuple(heard.completions))]
