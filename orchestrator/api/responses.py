"""OpenAI's responses: a body as the question that chat asks, and its answer's events in the protocol's order and shapes.

    created  in_progress  [added  part  delta…  done  part  done]…  completed | incomplete | failed

A response that is stored is an answer of a session: SESSION.NUMBER, where the number counts what was saved of the session,
each answer at once. The next one goes on behind the last, with a message or with the results of its calls; what a session
has gone on from is refused, because sessions do not branch.
"""

import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError

from orchestrator.api.chat import ASKING, asked, ignored, logprobs_of
from orchestrator.api.http import ApiCall, EventStream, closing, comment, named_data, route, started
from orchestrator.api.names import refuse_missing
from orchestrator.engine.messages import Chosen
from orchestrator.errors import InvalidRequest, LoreError, NotFound
from orchestrator.service import Answered, Ask, AskEvent, CallDelta, Text, Thought, ToolCall
from orchestrator.wire.answers import ChosenToken, Waiting, WaitingComment
from orchestrator.wire.names import ANY_CODEX
from orchestrator.wire.requests import (
    AllowedTools,
    Call,
    ChatMessage,
    ChatRequest,
    ClientTool,
    ContentPart,
    Function,
    NamedTool,
    ResponseFormat,
    SchemaSpec,
    ToolFunction,
)
from orchestrator.wire.responses import (
    CutResponse,
    FailedResponse,
    InputDetails,
    InputItem,
    ItemEvent,
    ItemStatus,
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    PartEvent,
    PieceEvent,
    ReasoningText,
    ResponseBody,
    ResponseEvent,
    ResponseReply,
    ResponseTool,
    ResponseUsage,
    StreamedEvent,
    TextSettings,
    WholeEvent,
)

LOGPROBS = "message.output_text.logprobs"
LONGEST_NUMBER = 9  # digits; Python reads no number of more than 4,300
UNTHINKING = ("none", "minimal")  # efforts
PARTS = {"input_text": "text", "output_text": "text"}
NOT_KEPT = "this response is not stored: its input holds a whole conversation, so the next one sends it again"
CHOSEN: TypeAdapter[Any] = TypeAdapter(
    cast(Any, NamedTool | AllowedTools)
)  # mypy takes the union with a cold cache alone
EVENTS = (ResponseEvent, ItemEvent, PartEvent, PieceEvent, WholeEvent)


class PreviousResponseNotFound(LoreError):
    """By OpenAI's code and status clients know to send the whole conversation."""

    code = "previous_response_not_found"


@route("POST", "/v1/responses", "query", events=EVENTS, faults=(*ASKING, "previous_response_not_found"))
async def respond(call: ApiCall, body: ResponseBody) -> ResponseReply | EventStream:
    """OpenAI's responses, streaming and not: the question that chat completions ask, and sessions for what is stored."""
    refuse_unsupported_fields(body)
    await refuse_missing(call, body.model)
    place = await place_of(call, body)
    ask = response_ask(await asked(call, chat_request(body)), body, place)
    writer = ResponseWriter(place.id, body)
    events = call.request.app.state.queue.through(call.service.ask(ask))
    if body.previous_response_id is not None:
        events = going_on(call, body, (call.principal.uid, place.session), events)
    if not body.stream:
        return await call.while_connected(writer.whole(events))
    return await started(call.request.receive, writer.chunks(events))


# -- a request as the question that chat asks


class ResponsePlace(NamedTuple):
    """A response's own id, and its session; None where it is not kept."""

    id: str
    session: str | None


async def place_of(call: ApiCall, body: ResponseBody) -> ResponsePlace:
    """Raises PreviousResponseNotFound for a response that is not kept, or that its session has gone on from."""
    if body.previous_response_id is None:
        session = f"resp_{secrets.token_hex(12)}"
        return ResponsePlace(f"{session}.1", session) if stored(body) and is_new(body) else ResponsePlace(session, None)
    session, _, number = body.previous_response_id.rpartition(".")
    what = f"previous_response_id: no response {body.previous_response_id}"
    missing = PreviousResponseNotFound(what, "send the whole conversation")
    if not session or not number.isdecimal() or len(number) > LONGEST_NUMBER:
        raise missing
    try:
        turns = (await call.service.records.session(call.principal, session)).turns
    except NotFound:
        raise missing from None
    answers = len({turn.created for turn in turns})
    if answers != int(number):
        last = f"go on from {session}.{answers}, or send the whole conversation"
        raise PreviousResponseNotFound(f"previous_response_id: its session has {answers} answers by now", last)
    return ResponsePlace(f"{session}.{answers + 1}", session)


async def going_on(
    call: ApiCall, body: ResponseBody, session: tuple[int, str | None], events: AsyncIterator[AskEvent]
) -> AsyncIterator[AskEvent]:
    """The events, while no other response goes on in this session: two would have one id. Raises
    PreviousResponseNotFound before the first of them."""
    taken: set[tuple[int, str | None]] = call.request.app.state.going_on
    async with closing(events):
        if session in taken:
            what = f"previous_response_id: another response goes on from {body.previous_response_id}"
            raise PreviousResponseNotFound(what, "send the whole conversation")
        taken.add(session)
        try:
            await place_of(call, body)  # again: another may have gone on from it since, and ended
            async for event in events:
                yield event
        finally:
            taken.discard(session)


def stored(body: ResponseBody) -> bool:
    """Whether the client wants it kept; `lore.record` says so beside the protocol's own word."""
    return bool(body.store) and body.lore.record


def is_new(body: ResponseBody) -> bool:
    """Whether the input is one message, or results of calls alone: a session would not keep what came before."""
    if isinstance(body.input, str):
        return True
    said = [item for item in body.input if item.role not in ("system", "developer")]
    return len(said) == 1 or (bool(said) and all(item.type == "function_call_output" for item in said))


def refuse_unsupported_fields(body: ResponseBody) -> None:
    """What would be answered wrongly if it were ignored."""
    if body.background:
        raise InvalidRequest("background: a response is answered while its client waits", "leave it out, or stream")
    for name, given in (("conversation", body.conversation), ("prompt", body.prompt)):
        if given is not None:
            raise InvalidRequest(f"{name}: is not offered", "go on with previous_response_id, or send the whole input")
    if body.lore.session is not None or body.lore.continue_last:
        raise InvalidRequest("lore: a response has a session of its own", "go on with previous_response_id")
    if body.previous_response_id is not None and (not stored(body) or not is_new(body)):
        words = "with it, input is one message or results of calls, and the response is stored"
        raise InvalidRequest(f"previous_response_id: {words}", "send only what is new, or the whole conversation alone")
    for tool in body.tools or ():
        if tool.type != "function":
            raise InvalidRequest(f"tools: one of type {tool.type} cannot be called here", "offer functions")


def response_ask(ask: Ask, body: ResponseBody, place: ResponsePlace) -> Ask:
    """The question in its session."""
    unkept = NOT_KEPT if stored(body) and place.session is None else ""
    think = ask.think and (body.reasoning is None or body.reasoning.effort not in UNTHINKING)
    notices = tuple(filter(None, (*ask.notices, ignored(body), unkept)))
    return replace(ask, session=place.session, think=think, notices=notices)


def chat_request(body: ResponseBody) -> ChatRequest:
    """The same question in the words of chat completions. Raises InvalidRequest."""
    messages = tuple(messages_of(body))
    if not messages:
        raise InvalidRequest("input: holds thoughts alone", "send a message with role user")
    wants_logprobs = LOGPROBS in (body.include or ()) or bool(body.top_logprobs)
    return ChatRequest(
        model=body.model,
        messages=messages,
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        logprobs=wants_logprobs,
        top_logprobs=body.top_logprobs,
        response_format=format_of(body.text),
        tools=tuple(map(tool_of, body.tools)) if body.tools else None,
        tool_choice=choice_of(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        lore=body.lore,
    )


def messages_of(body: ResponseBody) -> Iterator[ChatMessage]:
    if body.instructions:
        yield ChatMessage(role="system", content=body.instructions)
    if isinstance(body.input, str):
        yield ChatMessage(role="user", content=body.input)
        return
    calls: list[Call] = []
    for item in body.input:
        if item.type == "function_call":
            calls.append(Call(id=item.call_id, function=Function(name=item.name, arguments=item.arguments)))
            continue
        if calls:
            yield ChatMessage(role="assistant", tool_calls=tuple(calls))
            calls = []
        if item.type != "reasoning":  # thoughts are never part of a conversation
            yield message_in(item)
    if calls:
        yield ChatMessage(role="assistant", tool_calls=tuple(calls))


def message_in(item: InputItem) -> ChatMessage:
    """Raises InvalidRequest."""
    if item.type == "function_call_output":
        return ChatMessage(role="tool", content=plain(item.output), tool_call_id=item.call_id)
    if item.type != "message":
        hint = "send the item itself, as clients do with store false" if item.type == "item_reference" else "send text"
        raise InvalidRequest(f"input: an item of type {item.type} cannot be read here", hint)
    match item.role:
        case "system" | "developer" | "user" | "assistant" as role:
            return ChatMessage(role=role, content=plain(item.content))
    raise InvalidRequest(f"input: no message has the role {item.role!r}", "user, assistant, system or developer")


def plain(content: str | tuple[ContentPart, ...] | None) -> str | tuple[ContentPart, ...] | None:
    """Parts by the words of chat, which refuses those that are no text."""
    if content is None or isinstance(content, str):
        return content
    return tuple(part.model_copy(update={"type": PARTS.get(part.type, part.type)}) for part in content)


def format_of(text: TextSettings | None) -> ResponseFormat | None:
    if text is None:
        return None
    spec = SchemaSpec(definition=text.format.definition) if text.format.type == "json_schema" else None
    return ResponseFormat(type=text.format.type, json_schema=spec)


def tool_of(tool: ResponseTool) -> ClientTool:
    """Raises InvalidRequest."""
    if not tool.name or "\n" in tool.name or "\r" in tool.name:
        raise InvalidRequest("tools: a function has no name of one line", "name it")
    function = ToolFunction(
        name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
    )
    return ClientTool(function=function)


def choice_of(given: Any) -> Any:
    """In the words of chat. Raises InvalidRequest."""
    if given is None or given in ("auto", "none", "required"):
        return given
    try:
        return CHOSEN.validate_python(given)
    except ValidationError:
        words = (
            "tool_choice: neither auto, none, required, a function of the client nor allowed_tools with such functions"
        )
        raise InvalidRequest(words, "name the function, or the functions") from None


# -- an answer's events in the protocol's words


class ItemKind(NamedTuple):
    """An item that comes in pieces: what its id begins with, and the types of its events."""

    prefix: str
    piece: Literal["response.output_text.delta", "response.reasoning_text.delta"]
    whole: Literal["response.output_text.done", "response.reasoning_text.done"]


TEXT = ItemKind("msg", "response.output_text.delta", "response.output_text.done")
THOUGHT = ItemKind("rs", "response.reasoning_text.delta", "response.reasoning_text.done")


class OpenItem:
    """An item as far as it is said. `place`: which one of the response it is, from 0."""

    def __init__(self, kind: ItemKind, place: int) -> None:
        self.kind = kind
        self.id = f"{kind.prefix}_{secrets.token_hex(12)}"
        self.where: dict[str, Any] = {"item_id": self.id, "output_index": place}
        self.said: list[str] = []
        self.chosen: list[Chosen] = []

    def logprobs(self, chosen: Sequence[Chosen]) -> tuple[ChosenToken, ...] | None:
        """Of tokens of a text; a thought has none."""
        return logprobs_of(chosen).content if self.kind is TEXT else None

    def part(self) -> OutputText | ReasoningText:
        text = "".join(self.said)
        if self.kind is THOUGHT:
            return ReasoningText(text=text)
        return OutputText(text=text, logprobs=logprobs_of(self.chosen).content)

    def begun(self) -> OutputMessage | OutputReasoning:
        """Before its part."""
        item = OutputMessage if self.kind is TEXT else OutputReasoning
        return item(id=self.id, status="in_progress", content=())

    def ended(self, status: ItemStatus) -> OutputMessage | OutputReasoning:
        part = self.part()
        if isinstance(part, OutputText):
            return OutputMessage(id=self.id, status=status, content=(part,))
        return OutputReasoning(id=self.id, status=status, content=(part,))


class ResponseWriter:
    """Writes one response. An item is open until another kind of event comes."""

    def __init__(self, id: str, body: ResponseBody) -> None:  # noqa: A002 - the protocol's word
        self.sent = 0
        self.done: list[OutputItem] = []
        self.open: OpenItem | None = None
        self.calling: OutputCall | None = None  # the call that comes in pieces
        self.pieces: list[str] = []  # of its arguments
        self.reply = ResponseReply(
            id=id,
            created_at=int(time.time()),
            status="in_progress",
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata or {},
            model=body.model or ANY_CODEX,
            output=(),
            previous_response_id=body.previous_response_id,
            temperature=body.temperature,
            text=body.text or TextSettings(),
            tool_choice=body.tool_choice or "auto",
            tools=body.tools or (),
            top_p=body.top_p,
        )

    async def whole(self, events: AsyncIterator[AskEvent]) -> ResponseReply:
        async with closing(events):
            async for event in events:
                if not isinstance(event, CallDelta):
                    list(self.written(event))
        return self.reply

    async def chunks(self, events: AsyncIterator[AskEvent]) -> AsyncIterator[bytes]:
        """Closing this closes `events`. Raises LoreError before the first event alone; later it is the last event."""
        async with closing(events):
            try:
                async for event in events:
                    for one in self.written(event):
                        yield named_data(one.type, one)
                    if isinstance(event, Waiting):
                        yield comment(WaitingComment(progress=event))
            except LoreError as fault:
                if not self.sent:
                    raise
                yield named_data("response.failed", self.failed(fault))

    def written(self, event: AskEvent) -> Iterator[StreamedEvent]:
        if not self.sent:
            yield self.state("response.created")
            yield self.state("response.in_progress")
        match event:
            case Text():
                yield from self.piece(TEXT, event.delta, event.chosen)
            case Thought():
                yield from self.piece(THOUGHT, event.delta, ())
            case CallDelta():
                yield from self.call(event)
            case ToolCall():
                if event.id not in {one.call_id for one in (*self.done, self.calling) if isinstance(one, OutputCall)}:
                    yield from self.call(CallDelta(event.id, event.name, event.arguments))
                if self.calling is None or self.calling.call_id == event.id:  # another one was cut off
                    yield from self.closed("completed")
            case Answered():
                yield from self.ended(event)

    # -- items

    def piece(self, kind: ItemKind, delta: str, chosen: Sequence[Chosen]) -> Iterator[StreamedEvent]:
        if self.open is None or self.open.kind is not kind:
            yield from self.closed("completed")
            yield from self.opened(kind)
        item = self.open
        assert item is not None, "it was opened"
        item.said.append(delta)
        item.chosen += chosen
        told: dict[str, Any] = {"delta": delta, "logprobs": item.logprobs(chosen)}
        yield PieceEvent(type=kind.piece, sequence_number=self.number(), content_index=0, **item.where, **told)

    def opened(self, kind: ItemKind) -> Iterator[StreamedEvent]:
        self.open = OpenItem(kind, len(self.done))
        yield self.item("response.output_item.added", self.open.begun())
        yield self.part("response.content_part.added", self.open)

    def closed(self, status: Literal["completed", "incomplete"]) -> Iterator[StreamedEvent]:
        yield from self.called(status)
        if (item := self.open) is None:
            return
        told: dict[str, Any] = {"text": "".join(item.said), "logprobs": item.logprobs(item.chosen)}
        yield WholeEvent(type=item.kind.whole, sequence_number=self.number(), content_index=0, **item.where, **told)
        yield self.part("response.content_part.done", item)
        ended = item.ended(status)
        yield self.item("response.output_item.done", ended)
        self.done.append(ended)
        self.open = None

    def call(self, call: CallDelta) -> Iterator[StreamedEvent]:
        """A piece of a call; the first one of another call opens it."""
        if self.calling is None or self.calling.call_id != call.id:
            yield from self.closed("completed")
            name = f"fc_{secrets.token_hex(12)}"
            self.calling = OutputCall(id=name, status="in_progress", call_id=call.id, name=call.name, arguments="")
            self.pieces = []
            yield self.item("response.output_item.added", self.calling)
        self.pieces.append(call.delta)
        kind: Literal["response.function_call_arguments.delta"] = "response.function_call_arguments.delta"
        at: dict[str, Any] = {"item_id": self.calling.id, "output_index": len(self.done)}
        yield PieceEvent(type=kind, sequence_number=self.number(), delta=call.delta, **at)

    def called(self, status: Literal["completed", "incomplete"]) -> Iterator[StreamedEvent]:
        """The end of the call that is open."""
        if (item := self.calling) is None:
            return
        whole = item.model_copy(update={"status": status, "arguments": "".join(self.pieces)})
        yield WholeEvent(
            type="response.function_call_arguments.done",
            sequence_number=self.number(),
            item_id=item.id,
            output_index=len(self.done),
            name=item.name,
            arguments=whole.arguments,
        )
        yield self.item("response.output_item.done", whole)
        self.done.append(whole)
        self.calling = None

    # -- the end

    def ended(self, answered: Answered) -> Iterator[StreamedEvent]:
        """The last event; an answer without a word is an empty message."""
        cut = answered.finish_reason == "length"
        if self.open is None and self.calling is None and not self.done:
            yield from self.opened(TEXT)
        yield from self.closed("incomplete" if cut else "completed")
        self.reply = self.reply.model_copy(
            update={
                "status": "incomplete" if cut else "completed",
                "incomplete_details": CutResponse(reason="max_output_tokens") if cut else None,
                "output": tuple(self.done),
                "usage": response_usage(answered),
                "lore": answered.lore,
            }
        )
        yield self.state("response.incomplete" if cut else "response.completed")

    def failed(self, fault: LoreError) -> StreamedEvent:
        message = "; ".join(filter(None, (fault.message, fault.hint)))
        error = FailedResponse(type=fault.code, message=message)
        self.reply = self.reply.model_copy(update={"status": "failed", "error": error, "output": tuple(self.done)})
        return self.state("response.failed")

    # -- parts of events

    def number(self) -> int:
        self.sent += 1
        return self.sent - 1

    def state(self, kind: Any) -> ResponseEvent:
        return ResponseEvent(type=kind, sequence_number=self.number(), response=self.reply)

    def item(self, kind: Any, item: OutputItem) -> ItemEvent:
        return ItemEvent(type=kind, sequence_number=self.number(), output_index=len(self.done), item=item)

    def part(self, kind: Any, item: OpenItem) -> PartEvent:
        return PartEvent(type=kind, sequence_number=self.number(), part=item.part(), **item.where)


def response_usage(answered: Answered) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=answered.prompt_tokens,
        input_tokens_details=InputDetails(cached_tokens=answered.cached_tokens),
        output_tokens=answered.completion_tokens,
        total_tokens=answered.prompt_tokens + answered.completion_tokens,
    )
