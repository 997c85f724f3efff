"""Requests of the chat route: what OpenAI's protocol defines, and beside it the `lore` object.

Unknown keys of the protocol are ignored, because clients send many that mean nothing here. Unknown keys of `lore` are
refused: a misspelt `codex` would be answered from the wrong one.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Request(BaseModel):
    """Base of what clients send."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Strict(BaseModel):
    """Base of what only our own clients send: typing errors are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Part(Request):
    """One part of a message's content. Only text can be read by the models that run here."""

    type: str
    text: str = ""


class Function(Request):
    name: str
    arguments: str = ""


class Call(Request):
    """A tool call that the model made earlier in the conversation."""

    id: str
    function: Function


class ChatMessage(Request):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[Part, ...] | None = None
    tool_call_id: str = ""
    tool_calls: tuple[Call, ...] | None = None


class SchemaSpec(Request):
    name: str = ""
    definition: dict[str, Any] = Field(default_factory=dict, alias="schema")


class ResponseFormat(Request):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaSpec | None = None


class StreamOptions(Request):
    include_usage: bool = False


class ClientState(Strict):
    """Where the asking person stands: working directory, open file, selected text."""

    cwd: str = ""
    file: str = ""
    selection: str = ""


class AttachedText(Strict):
    name: str
    text: str


class LoreOptions(Strict):
    """The `lore` object of a request (`extra_body` in OpenAI's client)."""

    codex: str | None = None
    session: str | None = None
    continue_last: bool = Field(False, alias="continue")
    identity: str | None = None
    strategy: str | None = None
    verbatim: bool = False
    frame: str | None = None
    mode: str | None = None
    urgency: str | None = None
    wait: bool = True
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    think: bool = True
    record: bool = True
    attachments: tuple[AttachedText, ...] = ()
    client: ClientState = ClientState()


class ChatRequest(Request):
    """Body of POST /v1/chat/completions and /v1/plan."""

    model: str = ""
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[Finite, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    min_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[Finite, Field(gt=0, le=10)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**64 - 1)] | None = None
    stop: str | tuple[str, ...] | None = None
    n: int | None = 1
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    n_probs: Annotated[int, Field(ge=0, le=20)] | None = None  # llama-server's word for both
    response_format: ResponseFormat | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    tool_choice: Any = None
    lore: LoreOptions = LoreOptions()
    prompt: bool = False  # /v1/plan only: print the exact text as well
