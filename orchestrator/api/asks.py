"""From a chat request to an Ask. Pure: what the protocol means here, and what is refused."""

from collections.abc import Mapping
from typing import Any

from orchestrator.errors import InvalidRequest
from orchestrator.service import Ask, Attachment, Message, Principal, ToolCall
from orchestrator.wire.requests import ChatMessage, ChatRequest, ContentPart, LoreOptions, ResponseFormat

ANY_CODEX = "lore"  # the model id that leaves the choice to the daemon
CODEX_PREFIX = "lore/"
DEFAULT_MAX_TOKENS = 2048
MOST_STOPS = 16


def ask_of(body: ChatRequest, principal: Principal, codex: str | None) -> Ask:
    """`codex` is what the model id named. Raises InvalidRequest."""
    refuse_unsupported(body)
    lore = body.lore
    messages = tuple(message_of(message) for message in body.messages)
    check_last(messages)
    return Ask(
        principal=principal,
        messages=messages,
        codex=agreed(codex, lore.codex),
        session=lore.session,
        continue_last=lore.continue_last,
        identity=lore.identity,
        strategy=lore.strategy,
        max_tokens=body.max_completion_tokens or body.max_tokens or DEFAULT_MAX_TOKENS,
        temperature=body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        min_p=body.min_p,
        repeat_penalty=body.repeat_penalty,
        seed=body.seed,
        logprobs=logprobs_of(body),
        stop=stops_of(body.stop),
        schema=schema_of(body.response_format),
        tools=() if body.tool_choice == "none" else (body.tools or ()),
        attachments=tuple(Attachment(given.name, given.text) for given in lore.attachments),
        client=client_of(lore),
        wait=lore.wait,
        timeout_s=lore.timeout_s,
        think=lore.think,
        private=not lore.record,
        verbatim=lore.verbatim,
        frame=lore.frame,
        mode=lore.mode,
        urgency=lore.urgency,
    )


def refuse_unsupported(body: ChatRequest) -> None:
    """What would be answered wrongly if it were ignored."""
    if body.n not in (None, 1):
        raise InvalidRequest("n: one answer a request is all there is", "ask again for another")
    if body.tool_choice not in (None, "auto", "none"):
        raise InvalidRequest("tool_choice: only auto and none are offered", "name the tool in the question")
    if body.lore.session is not None and body.lore.continue_last:
        raise InvalidRequest("lore: session and continue exclude each other", "give one of them")


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


def check_last(messages: tuple[Message, ...]) -> None:
    last = messages[-1]
    if last.role not in ("user", "tool"):
        raise InvalidRequest(f"messages: the last one is from {last.role}", "end with what the user asks")
    if last.role == "user" and not last.content.strip():
        raise InvalidRequest("the question is empty", "write one")


def agreed(from_model: str | None, from_lore: str | None) -> str | None:
    if from_model is not None and from_lore is not None and from_model != from_lore:
        raise InvalidRequest(f"model names codex {from_model}, lore.codex names {from_lore}", "name one of them")
    return from_lore if from_lore is not None else from_model


def logprobs_of(body: ChatRequest) -> int | None:
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
    if wanted.json_schema is None:
        raise InvalidRequest("response_format: json_schema is missing", "put the schema under json_schema.schema")
    return wanted.json_schema.definition


def client_of(lore: LoreOptions) -> dict[str, str]:
    return {key: value for key, value in lore.client.model_dump().items() if value}


def codex_of(model: str) -> str | None:
    """The codex that a model id names; None where it names none. Other models are looked up by the route."""
    return model.removeprefix(CODEX_PREFIX) if model.startswith(CODEX_PREFIX) else None


def leaves_choice(model: str) -> bool:
    return model in ("", ANY_CODEX)
