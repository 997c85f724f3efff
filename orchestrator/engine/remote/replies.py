"""What servers with OpenAI's routes answer, and what it means: models, events of a stream, usage, faults. Pure.

    kind           told by                      context                  cached tokens
    llama-server   owned_by "llamacpp"          meta.n_ctx, /props       usage, timings.cache_n
    vLLM           owned_by "vllm"              max_model_len            usage, with --enable-prompt-tokens-details
    SGLang         owned_by "sglang"            max_model_len            usage, with --enable-cache-report
    other          anything else                max_model_len, or none   usage

Read in llama.cpp 0c1e5709 (tools/server), SGLang 004c82e0 (entrypoints/openai/protocol.py) and vLLM's protocol.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.engine.messages import Reason, well_formed

Json = Mapping[str, Any]
MOST_WORDS = 300  # characters of what a server says of its fault
SHOWN_MODELS = 8
MOST_COUNT = 2**40  # of anything that a server counts: more is no count


class ServerKind(StrEnum):
    LLAMA = "llama-server"
    VLLM = "vLLM"
    SGLANG = "SGLang"
    OTHER = "OpenAI-compatible"


OWNERS = {"llamacpp": ServerKind.LLAMA, "vllm": ServerKind.VLLM, "sglang": ServerKind.SGLANG}
CACHE_TOLD = {
    ServerKind.VLLM: "start vLLM with --enable-prompt-tokens-details",
    ServerKind.SGLANG: "start SGLang with --enable-cache-report",
}


class ServerFault(Exception):
    """A server did not do what was asked. `reason`: what becomes of the ticket. `lasting`: asking again is no help.
    `elsewhere`: another server may do it."""

    def __init__(
        self, message: str, reason: Reason = Reason.ENGINE, *, lasting: bool = False, elsewhere: bool = True
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.lasting = lasting
        self.elsewhere = elsewhere


@dataclass(frozen=True)
class ServedModel:
    """`context`: tokens of the longest sequence; 0 where the server does not tell. `template`: '' where it tells none."""

    id: str
    kind: ServerKind
    context: int = 0
    parameters: int = 0
    template: str = ""
    bos: str = ""
    eos: str = ""


def served_model(reply: Json, wanted: str) -> ServedModel:
    """The model of this id in the reply of /v1/models, or the only one. Raises ServerFault with those that there are."""
    rows = [one for one in listed(reply.get("data")) if isinstance(one, Mapping) and one.get("id")]
    names = [harmless(str(one["id"])) for one in rows]
    shown = shortened(", ".join(names[:SHOWN_MODELS]))
    if not rows:
        what_to_do = "load one there, or name another server in engine.url"
        raise ServerFault(f"lists no model at /models: {what_to_do}")  # one may be loaded while it is asked again
    if wanted and wanted not in names:
        raise ServerFault(f"does not serve the model {wanted}; it serves {shown}", lasting=True)
    if not wanted and len({str(one.get("root") or one["id"]) for one in rows}) != 1:
        raise ServerFault(f"serves {len(rows)} models: name one in engine.model ({shown})", lasting=True)
    at = names.index(wanted) if wanted else 0
    row = rows[at]
    meta = table(row.get("meta"))
    return ServedModel(
        names[at],
        OWNERS.get(str(row.get("owned_by", "")), ServerKind.OTHER),
        context=whole(row.get("max_model_len")) or whole(meta.get("n_ctx")) or 0,
        parameters=whole(meta.get("n_params")) or 0,
    )


# -- a stream


@dataclass(frozen=True)
class TokenUsage:
    """Tokens as the server counted them; None where it does not tell."""

    prompt: int | None = None
    cached: int | None = None
    generated: int | None = None


@dataclass(frozen=True)
class StreamEvent:
    """One event of a stream. `thought`: text that the server itself took for one. `done`: prompt tokens in its cache by
    now, of `total`."""

    text: str = ""
    thought: str = ""
    finish: str = ""
    model: str = ""
    usage: TokenUsage | None = None
    done: int = 0
    total: int = 0


END = StreamEvent(finish="[DONE]")
GIVEN_UP = ("abort", "error")  # ends of an answer that is not whole: vLLM and SGLang say so where a request was aborted


def event_of(line: str) -> StreamEvent | None:
    """None for a line that says nothing. Raises ServerFault for one that is an error, or is none of the protocol."""
    name, _, data = line.partition(":")
    if name not in ("data", "error") or not data.strip():
        return None
    if data.strip() == "[DONE]":
        return END
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        raise ServerFault(f"sent what is no event: {shortened(data)}")
    if name == "error" or found.get("error"):
        raise fault_of(200, found.get("error") or found)
    choices = listed(found.get("choices"))
    first = table(choices[0] if choices else None)
    delta, progress = table(first.get("delta")), table(found.get("prompt_progress"))
    return StreamEvent(
        text=well_formed(str(first.get("text") or delta.get("content") or "")),
        thought=well_formed(str(delta.get("reasoning_content") or delta.get("reasoning") or "")),
        finish=str(first.get("finish_reason") or ""),
        model=harmless(str(found.get("model") or "")),
        usage=usage_of(found),
        done=whole(progress.get("processed")) or 0,
        total=whole(progress.get("total")) or 0,
    )


def usage_of(event: Json) -> TokenUsage | None:
    """llama-server's own timings where its usage says nothing of the cache."""
    usage, timings = table(event.get("usage")), table(event.get("timings"))
    if not usage and "cache_n" not in timings:
        return None
    details = usage.get("prompt_tokens_details")
    cached = whole(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    cached = cached if cached is not None else whole(timings.get("cache_n"))
    return TokenUsage(whole(usage.get("prompt_tokens")), cached, whole(usage.get("completion_tokens")))


def doubts_of(usage: TokenUsage | None, sent: int | None, kind: ServerKind) -> str:
    """What must be said of a usage that is missing or cannot be; '' where it is whole. `sent`: tokens of the prompt, where
    it went as tokens."""
    if usage is None:
        return "the server did not say how many tokens it computed: all count as computed"
    if usage.cached is None:
        tip = f": {CACHE_TOLD[kind]}" if kind in CACHE_TOLD else ""
        return f"the server does not say what was in its cache, so all counts as computed{tip}"
    if usage.prompt is not None and usage.cached > usage.prompt:
        return f"the server says that {usage.cached:,} of {usage.prompt:,} tokens were in its cache, which cannot be"
    if sent is not None and usage.prompt is not None and usage.prompt != sent:
        return f"the server counted {usage.prompt:,} tokens of a prompt of {sent:,}: part of it is not what was sent"
    return ""


def cached_of(usage: TokenUsage | None, tokens: int) -> int:
    """Of a prompt of so many tokens; none where the server does not say it, or says what cannot be."""
    if usage is None or usage.cached is None or usage.cached > (usage.prompt if usage.prompt is not None else tokens):
        return 0
    return max(0, min(usage.cached, tokens))


# -- faults


def fault_of(status: int, body: object, retry_after: str = "") -> ServerFault:
    """What an answer that is an error means. `body`: what it carries, in any of the shapes that servers have."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    kind = str(error.get("type") or "") if isinstance(error, Mapping) else ""
    said = error.get("message") if isinstance(error, Mapping) else error
    words = shortened(str(said or "no reason given"))
    status = (whole(error.get("code")) or status) if isinstance(error, Mapping) and status == 200 else status
    if status in (401, 403):
        return ServerFault(f"refuses the key ({status}): {words}; see engine.key_file", lasting=True)
    if status == 429 or status == 503:
        again = f"; it says to ask again after {shortened(retry_after)} s" if retry_after else ""
        return ServerFault(f"takes nothing more for now ({status}): {words}{again}", Reason.BUSY)
    if kind == "exceed_context_size_error" or "context length" in words or "context size" in words:
        return ServerFault(f"finds the prompt too long: {words}", Reason.WINDOW, elsewhere=False)
    if status == 404:
        return ServerFault(f"refuses the model or the route (404): {words}", lasting=True)
    if 400 <= status < 500:
        return ServerFault(f"refuses the request ({status}): {words}", Reason.SAMPLING, elsewhere=False)
    return ServerFault(f"failed ({status}): {words}")


def mistake(fault: Exception) -> str:
    return f"a mistake in lore itself: {type(fault).__name__}: {fault}"


def shortened(words: str) -> str:
    line = harmless(" ".join(words.split()))
    return line if len(line) <= MOST_WORDS else f"{line[: MOST_WORDS - 1]}…"


def harmless(words: str) -> str:
    """Without characters that drive a terminal, as our log may be one, and without halves of characters."""
    return words if words.isprintable() else "".join(one if one.isprintable() else "�" for one in words)


def table(value: object) -> Json:
    """An object; an empty one for what is none."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """A list; an empty one for what is none."""
    return value if isinstance(value, list) else []


def whole(value: object) -> int | None:
    """A count; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT else None
