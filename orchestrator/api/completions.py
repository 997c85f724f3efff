"""An ask's events in OpenAI's words: chunks of a stream, or one completion.

A chunk of text is two constants around one JSON string: at hundreds of tokens a second, building and validating objects
for each costs more than all the rest of the way.
"""

import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.api.streams import DONE, closing, comment, data
from orchestrator.engine.messages import Chance, Chosen
from orchestrator.service import Answered, AskEvent, Text, Thought, ToolCall, Waiting

LEAST_LOGPROB = -9999.0  # OpenAI's word for impossible: JSON has no infinity


def usage_of(answered: Answered) -> dict[str, Any]:
    return {
        "prompt_tokens": answered.prompt_tokens,
        "completion_tokens": answered.completion_tokens,
        "total_tokens": answered.prompt_tokens + answered.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answered.cached_tokens},
    }


def call_of(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def logprobs_of(chosen: Sequence[Chosen]) -> dict[str, Any]:
    likeliest = [{"top_logprobs": [chance_of(one) for one in each.likeliest]} for each in chosen]
    content = [{**chance_of(each.token), **others} for each, others in zip(chosen, likeliest, strict=True)]
    return {"content": content, "refusal": None}


def chance_of(one: Chance) -> dict[str, Any]:
    """`bytes` are exact; a token may end within a character."""
    text = one.text.decode("utf-8", "replace")
    return {"token": text, "logprob": max(one.logprob, LEAST_LOGPROB), "bytes": list(one.text)}


class Chunks:
    """Writes one answer's stream. `include_usage`: OpenAI's extra chunk at the end, with the usage and no choice."""

    def __init__(self, model: str, include_usage: bool) -> None:
        self.include_usage = include_usage
        self.calls = 0
        self.frame = {
            "id": new_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        empty = {"index": 0, "delta": {"content": "\0"}, "finish_reason": None}
        whole = data({**self.frame, "choices": [empty]})
        self.before, self.after = whole.split(b'"\\u0000"')

    async def of(self, events: AsyncIterator[AskEvent]) -> AsyncIterator[bytes]:
        """Closing this closes `events`, which cancels what they run."""
        async with closing(events):
            opened = False
            async for event in events:
                if not opened and not isinstance(event, Waiting):
                    opened = True
                    yield self.choice({"role": "assistant", "content": ""})
                for chunk in self.written(event):
                    yield chunk
        yield DONE

    def written(self, event: AskEvent) -> list[bytes]:
        match event:
            case Text():
                if event.chosen:
                    return [self.choice({"content": event.delta}, logprobs_of(event.chosen))]
                return [self.before + json.dumps(event.delta).encode() + self.after]
            case Thought():
                return [self.choice({"reasoning_content": event.delta})]
            case Waiting():
                return [comment({"progress": asdict(event)})]
            case ToolCall():
                self.calls += 1
                return [self.choice({"tool_calls": [{"index": self.calls - 1, **call_of(event)}]})]
            case Answered():
                return self.end(event)

    def choice(self, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> bytes:
        about = {"logprobs": logprobs} if logprobs else {}
        return data({**self.frame, "choices": [{"index": 0, "delta": delta, **about, "finish_reason": None}]})

    def end(self, answered: Answered) -> list[bytes]:
        """The last chunk carries the lore object and the usage beside it."""
        last = [{"index": 0, "delta": {}, "finish_reason": answered.finish_reason}]
        about = {"lore": answered.lore.model_dump(mode="json")}
        usage = {"usage": usage_of(answered)}
        if not self.include_usage:
            return [data({**self.frame, "choices": last, **usage, **about})]
        return [
            data({**self.frame, "choices": last, "usage": None, **about}),
            data({**self.frame, "choices": [], **usage, **about}),
        ]


@dataclass
class Whole:
    """All that an ask told."""

    text: list[str] = field(default_factory=list)
    chosen: list[Chosen] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    answered: Answered | None = None

    def take(self, event: AskEvent) -> None:
        match event:
            case Text():
                self.text.append(event.delta)
                self.chosen += event.chosen
            case Thought():
                self.thoughts.append(event.delta)
            case ToolCall():
                self.calls.append(call_of(event))
            case Answered():
                self.answered = event
            case Waiting():
                pass

    def message(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self.text) if self.text or not self.calls else None,
        }
        if self.thoughts:
            said["reasoning_content"] = "".join(self.thoughts)
        if self.calls:
            said["tool_calls"] = self.calls
        return said


async def completed(model: str, events: AsyncIterator[AskEvent]) -> dict[str, Any]:
    """The whole answer as one object."""
    whole = Whole()
    async with closing(events):
        async for event in events:
            whole.take(event)
    answered = whole.answered
    assert answered is not None, "an ask ends with Answered or raises"
    about = {"logprobs": logprobs_of(whole.chosen)} if whole.chosen else {}
    return {
        "id": new_id(),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": whole.message(), **about, "finish_reason": answered.finish_reason}],
        "usage": usage_of(answered),
        "lore": answered.lore.model_dump(mode="json"),
    }


def new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"
