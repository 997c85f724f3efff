"""One answer as a run of an agent: the model is asked, its tool calls are carried out, its text is passed on.

Everything that an answer rests on comes in as the run's dependency, a `TurnContext`. Knows no prompt, session or HTTP.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import UsageLimits

from formatters.context import ToolView, TurnContext, TurnView
from orchestrator.answering.model import EngineEvent, EngineModel, running_of
from orchestrator.answering.tools import SearchArchive, offered, toolset_of, views_of
from orchestrator.engine.choice import Chosen
from orchestrator.engine.messages import Admitted, AnswerDelta, Completion, PrefillProgress, Reason
from orchestrator.errors import LoreError
from orchestrator.service import Text, Thought, ToolCall

MOST_REQUESTS = 8  # to the model for one answer: seven rounds of tools, then it has to say something


@dataclass(frozen=True)
class Finished:
    """The last event. `text`: what was said to the user, without thoughts and calls.

    `running`: what the turn said since the question, the last text included, as it was generated; what becomes State.
    `completions`: one for each request that ran to its end.
    """

    finish_reason: str  # stop, length, tool_calls
    text: str
    running: tuple[TurnView, ...]
    completions: tuple[Completion, ...]


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
        return _told(part, heard)
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


def _told(part: EngineEvent, heard: _Heard) -> AnswerEvent | None:
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
