"""What a question itself asks: its words, the client's tools, how the answer is drawn. Pure; knows no codex, no model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from formatters.context import ToolView
from orchestrator.engine.messages import Sampling
from orchestrator.errors import InvalidRequest
from orchestrator.service import Ask, Message

TEMPERATURE = 0.7  # of a user's model, where the client names none


def split(messages: Sequence[Message]) -> tuple[str, tuple[Message, ...], tuple[str, ...]]:
    """The question, the messages before it, and what the client's system messages say. Raises InvalidRequest."""
    system = tuple(one.content for one in messages if one.role in ("system", "developer") and one.content)
    said = [one for one in messages if one.role not in ("system", "developer")]
    if not said or said[-1].role != "user":
        raise InvalidRequest("the last message must be the user's question", "send a message with role user last")
    if not said[-1].content.strip():
        raise InvalidRequest("the question is empty", "say what you want to know")
    return said[-1].content, tuple(said[:-1]), system


def tool_view(tool: Mapping[str, Any]) -> ToolView:
    """A client's own tool in OpenAI's shape. Raises InvalidRequest."""
    function = tool.get("function", tool)
    try:
        return ToolView(
            name=function["name"],
            description=function.get("description") or "",
            parameters_json_schema=function.get("parameters") or {},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(f"a tool is not described as it should be: {error}", "see OpenAI's tools") from error


def sampling_of(ask: Ask, greedy: bool) -> Sampling:
    """As the client wants it; `greedy`: what it leaves open is not drawn by chance."""
    usual = Sampling(temperature=0.0 if greedy else TEMPERATURE)
    given: dict[str, Any] = {
        "temperature": ask.temperature,
        "top_k": ask.top_k,
        "top_p": ask.top_p,
        "min_p": ask.min_p,
        "repeat_penalty": ask.repeat_penalty,
        "seed": ask.seed,
        "logprobs": ask.logprobs,
        "schema": json.dumps(ask.schema) if ask.schema else None,
    }
    return replace(usual, **{key: value for key, value in given.items() if value is not None})
