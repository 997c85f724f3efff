"""OpenAI's protocol: its routes, a request as an Ask, and an Ask's events as a stream or one completion. And the plan,
which takes the same body.
"""

import base64
import json
import re
import secrets
import struct
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.api.http import ApiCall, EventStream, closing, comment, data, permitted, route, started, written
from orchestrator.api.names import ModelNotFound, NamedModel, is_missing, named_model
from orchestrator.api.volatile import settled
from orchestrator.engine.messages import MOST_SCHEMA_BYTES, Chance, Chosen
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.service import (
    Answered,
    Ask,
    AskEvent,
    CallDelta,
    Continued,
    Embedded,
    Message,
    Principal,
    SamplingOptions,
    Text,
    Thought,
    ToolCall,
    ToolChoice,
)
from orchestrator.wire.answers import (
    AnswerFunction,
    AnswerMessage,
    AnswerToolCall,
    Choice,
    ChosenToken,
    ChunkChoice,
    CompletionChunk,
    CompletionReply,
    Delta,
    Logprobs,
    PlanReply,
    PromptDetails,
    StreamedCall,
    StreamedFunction,
    TokenChance,
    Usage,
    Waiting,
    WaitingComment,
)
from orchestrator.wire.base import RequestShape
from orchestrator.wire.names import ANY_CODEX
from orchestrator.wire.replies import EmbeddingCut, EmbeddingRow, EmbeddingsReply, EmbeddingUsage
from orchestrator.wire.requests import (
    AllowedNames,
    AllowedTools,
    AttachedText,
    ChatMessage,
    ChatRequest,
    ContentPart,
    EmbeddingsBody,
    LoreOptions,
    ResponseFormat,
)

DEFAULT_MAX_TOKENS = 2048
MOST_STOPS = 16
MOST_NAMED, LONGEST_NAME = 20, 40  # of fields that are ignored: a body holds any number of them
_PRODUCT = re.compile(r"[A-Za-z][\w.+@-]{0,30}(?:/[A-Za-z][\w.+@-]{0,30})?")  # what a User-Agent begins with
MOVED = "from the client's system message"
LEAST_LOGPROB = -9999.0  # OpenAI's word for impossible: JSON has no infinity
ASKING = (
    "context_length_exceeded",
    "not_found",
    "model_not_found",
    "codex_dropped",
    "full",
    "not_ready",
    "paused",
    "engine_failed",
)


# -- routes


@route("POST", "/v1/chat/completions", "query", events=(CompletionChunk,), faults=ASKING)
async def completions(call: ApiCall, body: ChatRequest) -> CompletionReply | EventStream:
    """OpenAI's chat completions, streaming and not; the `lore` object in and out."""
    model = body.model or ANY_CODEX
    try:
        ask = await asked(call, body)
        events = call.request.app.state.queue.through(call.service.ask(ask))
        if not body.stream:
            return await call.while_connected(completed(model, events))
        chunks = Chunks(model, body.stream_options is not None and body.stream_options.include_usage)
        return await started(call.request.receive, chunks.of(events))
    except NotFound as error:
        if await is_missing(call, body.model):
            raise ModelNotFound(error.message, error.hint) from error
        raise


@route("POST", "/v1/plan", "query", faults=ASKING)
async def plan(call: ApiCall, body: ChatRequest) -> PlanReply:
    """The same body; everything decided for that question, and nothing run."""
    return await call.while_connected(call.service.plan(await asked(call, body), prompt=body.prompt))


@route("POST", "/v1/embeddings", "query", faults=("not_found", "engine_failed"))
async def embeddings(call: ApiCall, body: EmbeddingsBody) -> EmbeddingsReply:
    """Vectors of texts, by the embedding model of the settings; `cut`: tokens of each text that did not fit its window."""
    texts = (body.input,) if isinstance(body.input, str) else body.input
    found = await call.while_connected(call.service.embed(texts))
    if body.dimensions not in (None, found.dimensions):
        raise InvalidRequest(
            f"{found.model} gives {found.dimensions} dimensions, not {body.dimensions}", "leave out `dimensions`"
        )
    return embedded(found, body.encoding_format)


def embedded(found: Embedded, encoding: str) -> EmbeddingsReply:
    rows = [found.vectors[at : at + 4 * found.dimensions] for at in range(0, len(found.vectors), 4 * found.dimensions)]
    return EmbeddingsReply(
        object="list",
        data=tuple(
            EmbeddingRow(object="embedding", index=number, embedding=encoded(row, encoding))
            for number, row in enumerate(rows)
        ),
        model=found.model,
        usage=EmbeddingUsage(prompt_tokens=sum(found.tokens), total_tokens=sum(found.tokens)),
        lore=EmbeddingCut(cut=found.cut),
    )


def encoded(row: bytes, encoding: str) -> str | list[float]:
    return base64.b64encode(row).decode() if encoding == "base64" else list(struct.unpack(f"<{len(row) // 4}f", row))


# -- a request as an Ask: what the protocol means here, and what is refused


async def asked(call: ApiCall, body: ChatRequest) -> Ask:
    """Raises InvalidRequest, ModelNotFound, NotPermitted."""
    if not body.lore.cache:
        permitted(call.request, ("admin",))  # a context of one's own is memory that others' floors may have to leave
    named = await named_model(call, body.model)
    ask = ask_of(body, call.principal, named, client_name(call.request.headers.get("user-agent", "")))
    return without_volatile(ask) if call.request.app.state.move_volatile else ask


def client_name(user_agent: str) -> str:
    """Its first word, without a version: `OpenAI/Python 3.1` is OpenAI/Python. '' where there is none."""
    found = _PRODUCT.match(user_agent)
    return found.group() if found is not None else ""


def without_volatile(ask: Ask) -> Ask:
    """The ask with the lines of its system messages that change by the minute in front of its question; see
    api.volatile."""
    found = settled([one.content for one in ask.messages if one.role == "system"])
    if not found.moved:
        return ask
    texts = iter(found.texts)
    messages = tuple(replace(one, content=next(texts)) if one.role == "system" else one for one in ask.messages)
    notice = f"moved in front of the question (clients.move_volatile): {'; '.join(found.moved)}"
    attached = AttachedText(name=MOVED, text="\n".join(found.moved))
    return replace(ask, messages=messages, attachments=(*ask.attachments, attached), notices=(*ask.notices, notice))


def ask_of(body: ChatRequest, principal: Principal, named: NamedModel, agent: str = "") -> Ask:
    """`named` is what the model id means, `agent` the client's name. Raises InvalidRequest."""
    refuse_unsupported(body)
    lore = body.lore
    return Ask(
        principal=principal,
        messages=tuple(map(message_of, body.messages)),
        codex=agreed(named.codex, lore.codex),
        session=lore.session,
        continue_last=lore.continue_last,
        identity=lore.identity,
        strategy=lore.strategy,
        max_tokens=body.max_completion_tokens or body.max_tokens or DEFAULT_MAX_TOKENS,
        sampling=SamplingOptions.of(body),
        logprobs=wanted_logprobs(body),
        stop=stops_of(body.stop),
        schema=schema_of(body.response_format),
        tools=tuple(tool.function for tool in body.tools or ()),
        tool_choice=tool_choice_of(body),
        parallel_calls=body.parallel_tool_calls is not False,
        attachments=lore.attachments,
        client=client_of(lore),
        agent=agent,
        wait=lore.wait,
        timeout_s=lore.timeout_s,
        think=lore.think,
        private=not lore.record,
        cache=lore.cache,
        verbatim=lore.verbatim,
        frame=lore.frame,
        mode=lore.mode,
        urgency=lore.urgency,
        variant=lore.variant,
        notices=tuple(filter(None, (named.notice, ignored(body)))),
    )


def refuse_unsupported(body: ChatRequest) -> None:
    """What would be answered wrongly if it were ignored."""
    if body.n not in (None, 1):
        raise InvalidRequest("n: one answer a request is all there is", "ask again for another")
    if body.lore.session is not None and body.lore.continue_last:
        raise InvalidRequest("lore: session and continue exclude each other", "give one of them")


def tool_choice_of(body: ChatRequest) -> ToolChoice:
    """Raises InvalidRequest."""
    choice, names = body.tool_choice or "auto", [tool.function.name for tool in body.tools or ()]
    if choice in ("auto", "none"):
        return ToolChoice("none" if choice == "none" else "auto")
    if not names:
        raise InvalidRequest("tool_choice: no tools are offered", "send `tools`, or leave out `tool_choice`")
    if isinstance(choice, str):
        return ToolChoice("required")
    allowed = (
        choice.allowed_tools if isinstance(choice, AllowedTools) else AllowedNames(mode="required", tools=(choice,))
    )
    wanted = tuple(tool.function.name for tool in allowed.tools)
    if unknown := [name for name in wanted if name not in names]:
        offered = ", ".join(names[:MOST_NAMED])
        raise InvalidRequest(f"tool_choice: the tool {unknown[0]} is not offered", f"name one of: {offered}")
    return ToolChoice(allowed.mode, wanted)


def ignored(body: RequestShape) -> str:
    """What a client sent that means nothing here, in one line. What is empty asks for nothing."""
    names = sorted(name for name, value in (body.model_extra or {}).items() if value)
    shown = ", ".join(name[:LONGEST_NAME] for name in names[:MOST_NAMED])
    return f"ignored, because it means nothing here: {shown}" if names else ""


def message_of(message: ChatMessage) -> Message:
    role = "system" if message.role == "developer" else message.role
    calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    return Message(role, text_of(message.content), message.tool_call_id, calls)


def text_of(content: str | tuple[ContentPart, ...] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type != "text":
            raise InvalidRequest(f"messages: a part of type {part.type} cannot be read here", "send text")
    return "\n".join(part.text for part in content)


def agreed(from_model: str | None, from_lore: str | None) -> str | None:
    if from_model is not None and from_lore is not None and from_model != from_lore:
        raise InvalidRequest(f"model names codex {from_model}, lore.codex names {from_lore}", "name one of them")
    return from_lore if from_lore is not None else from_model


def wanted_logprobs(body: ChatRequest) -> int | None:
    if body.n_probs:
        return body.n_probs
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("top_logprobs: only together with logprobs", "set logprobs to true")
    return (body.top_logprobs or 0) if body.logprobs else None


def stops_of(stop: str | tuple[str, ...] | None) -> tuple[str, ...]:
    given = (stop,) if isinstance(stop, str) else stop or ()
    if len(given) > MOST_STOPS:
        raise InvalidRequest(f"stop: more than {MOST_STOPS} texts", "give fewer")
    return tuple(text for text in given if text)


def schema_of(wanted: ResponseFormat | None) -> Mapping[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "object"}
    if wanted.json_schema is None or (schema := wanted.json_schema.definition) is None:
        raise InvalidRequest("response_format: json_schema.schema is missing", "put the schema there")
    if (size := len(json.dumps(schema))) > MOST_SCHEMA_BYTES:
        words = f"the schema has {size:,} bytes, and at most {MOST_SCHEMA_BYTES:,} are taken"
        raise InvalidRequest(f"response_format: {words}", "send a smaller one")
    return schema


def client_of(lore: LoreOptions) -> dict[str, str]:
    return {key: value for key, value in lore.client.model_dump().items() if value}


# -- an Ask's events in OpenAI's words


def usage_of(answered: Answered | Continued) -> Usage:
    return Usage(
        prompt_tokens=answered.prompt_tokens,
        completion_tokens=answered.completion_tokens,
        total_tokens=answered.prompt_tokens + answered.completion_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=answered.cached_tokens),
    )


def called(call: ToolCall) -> AnswerToolCall:
    function = AnswerFunction(name=call.name, arguments=call.arguments)
    return AnswerToolCall(id=call.id, type="function", function=function)


def logprobs_of(chosen: Sequence[Chosen]) -> Logprobs:
    content = (
        ChosenToken(**dict(chance_of(each.token)), top_logprobs=tuple(map(chance_of, each.likeliest)))
        for each in chosen
    )
    return Logprobs(content=tuple(content), refusal=None)


def chance_of(one: Chance) -> TokenChance:
    """`bytes` are exact; a token may end within a character."""
    text = one.text.decode("utf-8", "replace")
    return TokenChance(token=text, logprob=max(one.logprob, LEAST_LOGPROB), bytes=tuple(one.text))


class Chunks:
    """Writes one answer's stream. `include_usage`: OpenAI's extra chunk at the end, with the usage and no choice.

    A chunk of text or of a thought is two constants around one JSON string: at hundreds of tokens a second, building
    and validating a shape for each costs more than all the rest of the way.
    """

    def __init__(self, model: str, include_usage: bool) -> None:
        self.include_usage = include_usage
        self.calls: dict[str, int] = {}  # their places, by id
        self.opened = False
        self.frame = CompletionChunk(
            id=new_id(), object="chat.completion.chunk", created=int(time.time()), model=model, choices=()
        )
        self.text = self.choice(Delta(content="\0")).split(b'"\\u0000"')
        self.thought = self.choice(Delta(reasoning_content="\0")).split(b'"\\u0000"')

    def of(self, events: AsyncIterator[AskEvent]) -> AsyncIterator[bytes]:
        """Closing this closes `events`, which cancels what they run."""
        return written(events, self.written)

    def written(self, event: AskEvent) -> list[bytes]:
        """Its chunks; the answer opens with one of its own."""
        chunks = self._written(event)
        if self.opened or isinstance(event, Waiting):
            return chunks
        self.opened = True
        return [self.choice(Delta(role="assistant", content="")), *chunks]

    def _written(self, event: AskEvent) -> list[bytes]:
        match event:
            case Text():
                if event.chosen:
                    return [self.choice(Delta(content=event.delta), logprobs_of(event.chosen))]
                return [json.dumps(event.delta).encode().join(self.text)]
            case Thought():
                return [json.dumps(event.delta).encode().join(self.thought)]
            case Waiting():
                return [comment(WaitingComment(progress=event))]
            case CallDelta():
                return self.call(event.id, event.name, event.delta)
            case ToolCall():
                return [] if event.id in self.calls else self.call(event.id, event.name, event.arguments)
            case Answered():
                return self.end(event)

    def call(self, id: str, name: str, arguments: str) -> list[bytes]:  # noqa: A002 - the protocol's word
        """As OpenAI streams it: first what is called, then the arguments."""
        begun, parts = id in self.calls, list[StreamedCall]()
        place = self.calls.setdefault(id, len(self.calls))
        if not begun:
            function = StreamedFunction(name=name, arguments="")
            parts.append(StreamedCall(index=place, id=id, type="function", function=function))
        parts.append(StreamedCall(index=place, function=StreamedFunction(arguments=arguments)))
        return [self.choice(Delta(tool_calls=(part,))) for part in parts]

    def choice(self, delta: Delta, logprobs: Logprobs | None = None) -> bytes:
        return self.chunk(choices=(ChunkChoice(index=0, delta=delta, logprobs=logprobs, finish_reason=None),))

    def end(self, answered: Answered) -> list[bytes]:
        """The last chunk carries the lore object and the usage beside it."""
        last = (ChunkChoice(index=0, delta=Delta(), finish_reason=answered.finish_reason),)
        usage, lore = usage_of(answered), answered.lore
        if not self.include_usage:
            return [self.chunk(choices=last, usage=usage, lore=lore)]
        return [self.chunk(choices=last, usage=None, lore=lore), self.chunk(choices=(), usage=usage, lore=lore)]

    def chunk(self, **given: Any) -> bytes:
        return data(self.frame.model_copy(update=given))


async def completed(model: str, events: AsyncIterator[AskEvent]) -> CompletionReply:
    """The whole answer as one object."""
    text: list[str] = []
    thoughts: list[str] = []
    chosen: list[Chosen] = []
    calls: list[AnswerToolCall] = []
    answered: Answered | None = None
    async with closing(events):
        async for event in events:
            match event:
                case Text():
                    text.append(event.delta)
                    chosen += event.chosen
                case Thought():
                    thoughts.append(event.delta)
                case ToolCall():
                    calls.append(called(event))
                case Answered():
                    answered = event
                case Waiting() | CallDelta():
                    pass
    assert answered is not None, "an ask ends with Answered or raises"
    said = "".join(text)
    message = AnswerMessage(
        role="assistant",
        content=said if said.strip() or not calls else None,
        reasoning_content="".join(thoughts),
        tool_calls=tuple(calls),
    )
    logprobs = logprobs_of(chosen) if chosen else None
    choice = Choice(index=0, message=message, logprobs=logprobs, finish_reason=answered.finish_reason)
    return CompletionReply(
        id=new_id(),
        object="chat.completion",
        created=int(time.time()),
        model=model,
        choices=(choice,),
        usage=usage_of(answered),
        lore=answered.lore,
    )


def new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"
