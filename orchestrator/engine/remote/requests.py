"""A job as a server gets it. Pure.

    way     the prompt is                            used where
    ids     token ids, at /completions               the server takes them: the seams are ours to the token
    text    the exact text, at /completions          it takes no ids, and has the template's text from us
    chat    messages, at /chat/completions           it has no /completions, or tells no chat template

Where messages are sent, our own template stands in for the server's: role marks that no text can hold. Ids behind MARKS are
such marks; the text between them is the messages.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, TypeAlias

from orchestrator.engine.messages import InferenceJob, Sampling
from orchestrator.engine.remote.replies import ServerKind

ROLES = ("system", "user", "assistant", "tool")
MARKS = 0xFFFF_0000  # above every id of a vocabulary
TEMPLATE = (
    "{% for message in messages %}{{ '\x1e' + message.role + '\x1f' + message.content }}{% endfor %}"
    "{{ '\x1eassistant\x1f' }}"
)
MARK_TEXTS = {f"\x1e{role}\x1f": MARKS + number for number, role in enumerate(ROLES)}
# Fields beyond OpenAI's own; others refuse what they do not know.
FIELDS = {
    ServerKind.LLAMA: {"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repeat_penalty"},
    ServerKind.VLLM: {"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty"},
    ServerKind.SGLANG: {"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty"},
    ServerKind.OTHER: {},
}
ALWAYS: Mapping[ServerKind, Mapping[str, Any]] = {
    ServerKind.LLAMA: {"cache_prompt": True, "return_progress": True},
}


class PromptWay(StrEnum):
    IDS = "ids"
    TEXT = "text"
    CHAT = "chat"


@dataclass(frozen=True)
class SentMessage:
    role: str
    content: str


Prompt: TypeAlias = list[int] | str | tuple[SentMessage, ...]


@dataclass(frozen=True)
class Request:
    """`path` below the server's URL."""

    path: str
    body: Mapping[str, Any]


def unsupported(job: InferenceJob, kind: ServerKind) -> str:
    """Why no server of this kind can do a job as it is wanted; '' where it can."""
    if job.sampling.logprobs is not None:
        return "a remote engine gives no log-probabilities; leave logprobs out"
    if job.uncached:
        return "a remote engine cannot be asked to leave its cache out"
    if job.sampling.schema and kind is ServerKind.OTHER:
        return "this server is none that is known to bind an answer to a JSON schema (llama-server, vLLM, SGLang are)"
    if job.sampling.calls is not None and job.sampling.calls.required:
        return "a remote engine cannot be bound to call a tool; let the model choose (tool_choice: auto)"
    return ""


def request_of(job: InferenceJob, prompt: Prompt, kind: ServerKind, model: str) -> Request:
    """Asks for at least one token: no server computes a prompt for nothing."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max(1, job.max_tokens),
        "stream": True,
        "stream_options": {"include_usage": True},
        **ALWAYS.get(kind, {}),
        **drawn(job.sampling, kind),
        **bound(job.sampling, kind),
    }
    if job.stop:
        body["stop"] = [*job.stop]
    if isinstance(prompt, tuple):
        return Request("chat/completions", {**body, "messages": [asdict(one) for one in prompt]})
    return Request("completions", {**body, "prompt": prompt})


def drawn(sampling: Sampling, kind: ServerKind) -> dict[str, Any]:
    if sampling.greedy:
        return {"temperature": 0}
    seed = {} if sampling.seed is None else {"seed": sampling.seed}
    own = {theirs: getattr(sampling, ours) for ours, theirs in FIELDS[kind].items()}
    return {"temperature": sampling.temperature, "top_p": sampling.top_p, **seed, **own}


def bound(sampling: Sampling, kind: ServerKind) -> dict[str, Any]:
    """What binds the answer to a schema, and keeps the control tokens that calls are written with in its text."""
    found: dict[str, Any] = {}
    if sampling.schema:
        schema = json.loads(sampling.schema)
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        found |= {"json_schema": schema} if kind is ServerKind.LLAMA else {"response_format": wanted}
    if sampling.calls is not None:
        marks = [sampling.calls.form.trigger, sampling.calls.form.close]
        kept = {"preserved_tokens": [mark.strip() for mark in marks if mark.strip()]}
        found |= {ServerKind.LLAMA: kept, ServerKind.OTHER: {}}.get(kind, {"skip_special_tokens": False})
    return found


def parts_of(prompt: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
    """The roles of a prompt's messages, and the ids between the marks. The mark at the end opens the answer, which is the
    server's own to open."""
    starts = [at for at, token in enumerate(prompt) if token >= MARKS]
    for start, end in pairwise([*starts, len(prompt)]):
        if start + 1 < len(prompt):
            yield ROLES[prompt[start] - MARKS], prompt[start + 1 : end]
