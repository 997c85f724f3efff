"""Routes of plain text: OpenAI's completions, with what fits at a cursor, and what clients of llama-server and vLLM ask
of a server beside OpenAI's protocol.
"""

import secrets
import time
from collections.abc import AsyncIterator

from orchestrator.api.chat import ASKING, ignored, stops_of, usage_of
from orchestrator.api.http import ApiCall, EventStream, closing, comment, data, route, started, written
from orchestrator.api.names import NamedModel, named_model, refuse_missing
from orchestrator.errors import InvalidRequest
from orchestrator.service import Continued, Principal, SamplingOptions, Text, TextAsk, TextEvent
from orchestrator.wire.answers import BARE, Waiting, WaitingComment
from orchestrator.wire.names import ANY_CODEX
from orchestrator.wire.requests import CompletionBody
from orchestrator.wire.texts import (
    DetokenizeBody,
    Detokenized,
    PropsReply,
    TextChoice,
    TextNotes,
    TextReply,
    TokenizeBody,
    Tokenized,
)

DEFAULT_MAX_TOKENS = 16  # as OpenAI's protocol has it

# -- routes


@route("POST", "/v1/completions", "query", events=(TextReply,), faults=ASKING)
async def complete(call: ApiCall, body: CompletionBody) -> TextReply | EventStream:
    """OpenAI's completions, streaming and not: the model alone continues a text, or fills in between it and `suffix`."""
    named = await named_model(call, body.model)
    await refuse_missing(call, body.model)
    ask = text_ask_of(body, call.principal, named)
    writer = TextWriter(body.model or ANY_CODEX, body.stream_options is not None and body.stream_options.include_usage)
    events = call.request.app.state.queue.through(call.service.continued(ask))
    if not body.stream:
        return await call.while_connected(writer.whole(events))
    return await started(call.request.receive, written(events, writer.written))


@route("GET", "/props", "query", faults=("not_ready",))
async def props(call: ApiCall) -> PropsReply:
    """What the model is and how long a prompt may be, as llama-server tells it."""
    return await call.service.props()


@route("POST", "/tokenize", "query", faults=("not_ready", "engine_failed"))
async def tokenize(call: ApiCall, body: TokenizeBody) -> Tokenized:
    """A text as the loaded model's tokens: content, never control."""
    text = body.content if body.content is not None else body.prompt
    if text is None:
        raise InvalidRequest("content: is missing", "send the text as content, or as prompt")
    ids = tuple(await call.while_connected(call.service.tokens_of(text)))
    return Tokenized(tokens=ids, count=len(ids), max_model_len=await call.service.window())


@route("POST", "/detokenize", "query", faults=("not_ready", "engine_failed"))
async def detokenize(call: ApiCall, body: DetokenizeBody) -> Detokenized:
    """The text of tokens."""
    text = await call.while_connected(call.service.text_of(body.tokens))
    return Detokenized(content=text, prompt=text)


# -- a request as a TextAsk


def text_ask_of(body: CompletionBody, principal: Principal, named: NamedModel) -> TextAsk:
    """Raises InvalidRequest."""
    refuse_unsupported_text(body)
    alone = (
        "" if named.codex in (None, BARE) else f"a text is continued by the model alone, without codex {named.codex}"
    )
    return TextAsk(
        principal=principal,
        prompt=body.prompt if isinstance(body.prompt, str) else body.prompt[0],
        suffix=body.suffix,
        max_tokens=body.max_tokens or DEFAULT_MAX_TOKENS,
        sampling=SamplingOptions.of(body),
        stop=stops_of(body.stop),
        wait=body.lore.wait,
        timeout_s=body.lore.timeout_s,
        notices=tuple(filter(None, (named.notice, alone, ignored(body)))),
    )


def refuse_unsupported_text(body: CompletionBody) -> None:
    """What would be answered wrongly if it were ignored."""
    if body.n not in (None, 1) or body.best_of not in (None, 1):
        raise InvalidRequest("n, best_of: one answer a request is all there is", "ask again for another")
    if body.echo:
        raise InvalidRequest("echo: the prompt is not sent back", "put it before the answer yourself")
    if body.logprobs is not None:
        raise InvalidRequest("logprobs: only chat completions have them", "leave it out")


# -- its events in OpenAI's words


class TextWriter:
    """Writes one text that is continued. `include_usage`: OpenAI's extra event at the end of a stream."""

    def __init__(self, model: str, include_usage: bool) -> None:
        self.include_usage = include_usage
        self.frame = TextReply(
            id=f"cmpl-{secrets.token_hex(12)}",
            object="text_completion",
            created=int(time.time()),
            model=model,
            choices=(),
        )

    async def whole(self, events: AsyncIterator[TextEvent]) -> TextReply:
        text: list[str] = []
        async with closing(events):
            async for event in events:
                if isinstance(event, Text):
                    text.append(event.delta)
                elif isinstance(event, Continued):
                    return self.ended("".join(text), event)
        raise AssertionError("a text that is continued ends with Continued, or raises")

    def written(self, event: TextEvent) -> list[bytes]:
        match event:
            case Waiting():
                return [comment(WaitingComment(progress=event))]
            case Text():
                return [data(self.frame.model_copy(update={"choices": (choice(event.delta),)}))]
            case Continued() if self.include_usage:
                last = self.frame.model_copy(update={"choices": (choice("", event.finish_reason),)})
                return [data(last), data(self.ended("", event).model_copy(update={"choices": ()}))]
            case Continued():
                return [data(self.ended("", event))]

    def ended(self, text: str, event: Continued) -> TextReply:
        more = {"usage": usage_of(event), "lore": TextNotes(notices=event.notices)}
        return self.frame.model_copy(update={"choices": (choice(text, event.finish_reason),), **more})


def choice(text: str, reason: str | None = None) -> TextChoice:
    return TextChoice(index=0, text=text, finish_reason=reason)
