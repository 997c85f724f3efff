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
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai._run_context import get_current_run_context  # the one way to reach it from `request`
from pydantic_ai.messages import (
    CustomEvent,
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from formatters.blocks import Role
from formatters.context import TurnContext, TurnView
from orchestrator.answering.answer_text import AnswerParser, ParsedCall, ParsedPart, ParsedThought
from orchestrator.answering.inference import Inference, InferenceEvent, InferenceRequest
from orchestrator.engine.messages import AnswerDelta, Completion
from orchestrator.engine.token_ids import Ids

Compose = Callable[[RunContext[TurnContext]], Awaitable[InferenceRequest]]
"""The request for a context, whose `running` holds what was said since the question. May raise LoreError."""

Learn = Callable[[str, Ids], None]
"""Told the ids that a generated text had, so that repeating it gives the same ones."""

PROVIDER = "lorekeep"
_SAID = "said"  # metadata of a response: the whole text as it was generated, tags included


@dataclass
class EngineEvent(CustomEvent):
    """An event of the engine that is no text: admission, progress, the completion; and what is told beside a text."""

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
    """One inference as the framework's stream of parts, and the engine's own events as `Told`."""

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
                for told in self._told(part):
                    yield told
            if parser.done:  # a call: what the model would say behind it belongs to nobody
                await self.events.aclose()
                break
        for part in parser.end():
            for told in self._told(part):
                yield told
        self._conclude("".join(said), b"".join(ids), parser.beyond)

    def _told(self, part: ParsedPart) -> Iterable[ModelResponseStreamEvent]:
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
