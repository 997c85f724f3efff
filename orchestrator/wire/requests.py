"""Requests of the chat route: what OpenAI's protocol defines, and beside it the `lore` object.

Unknown keys of the protocol are ignored and told of, because clients send many that mean nothing here. Unknown keys of
`lore` are refused: a misspelt `codex` would be answered from the wrong one.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from orchestrator.wire.base import Plain, RequestShape, StrictRequest, without_nul

Finite = Annotated[float, Field(allow_inf_nan=False)]
MostTokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Text = Annotated[str, Field(min_length=1)]
MOST_TOOLS = 128  # of a client; OpenAI's limit

# How tokens are drawn, in every body that has them.
Temperature = Annotated[
    Annotated[Finite, Field(ge=0, le=2)] | None,
    Field(description="0: the likeliest token; left out: 0.7, with a built-in model 0"),
]
TopP = Annotated[
    Annotated[Finite, Field(ge=1e-6, le=1)] | None, Field(description="least likely tokens beyond are left out")
]
TopK = Annotated[
    Annotated[int, Field(ge=0, le=2**31 - 1)] | None, Field(description="so many likeliest tokens; 0: all")
]
MinP = Annotated[Annotated[Finite, Field(ge=0, le=1)] | None, Field(description="of the likeliest token's probability")]
RepeatPenalty = Annotated[Annotated[Finite, Field(ge=0.1, le=10)] | None, Field(description="1: none")]
Seed = Annotated[
    Annotated[int, Field(ge=-(2**63), le=2**64 - 1)] | None, Field(description="of the chance in the answer")
]
Stop = Annotated[
    str | tuple[str, ...] | None, Field(description="texts that end the answer and are not in it; 16 at most")
]


class ContentPart(RequestShape):
    """One part of a message's content. Only text can be read by the models that run here."""

    type: str = Field(description="text; others are refused")
    text: str = Field("", description="the text")


class Function(RequestShape):
    """What was called."""

    name: str = Field(description="the tool")
    arguments: str = Field("", description="its arguments, as JSON")


class Call(RequestShape):
    """A tool call that the model made earlier in the conversation."""

    id: str = Field(description="as it was sent with the call")
    function: Function = Field(description="what was called")


class ChatMessage(RequestShape):
    """One message of the conversation, the newest last."""

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="system and developer are placed behind the cached prefix, so that no client breaks another's"
    )
    content: str | tuple[ContentPart, ...] | None = Field(None, description="the text, or its parts")
    tool_call_id: str = Field("", description="of a tool's result: the call that it answers")
    tool_calls: tuple[Call, ...] | None = Field(None, description="of an assistant's message: what it called")


class SchemaSpec(RequestShape):
    """OpenAI's wrapping of a JSON schema."""

    name: str = Field("", description="not looked at")
    definition: dict[str, Any] | None = Field(None, alias="schema", description="the JSON schema itself")


class ResponseFormat(RequestShape):
    """What the answer must parse as."""

    type: Literal["text", "json_object", "json_schema"] = Field(description="text, any object, or what fits the schema")
    json_schema: SchemaSpec | None = Field(None, description="with json_schema: the schema")


class StreamOptions(RequestShape):
    """OpenAI's."""

    include_usage: bool = Field(False, description="one more chunk at the end, with the usage and no choice")


class ClientState(StrictRequest):
    """Where the user is."""

    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is asked where none is named")
    file: Plain = Field("", description="the file that is open; its name is given to the model before the question")
    selection: str = Field(
        "", description="the text selected in it; where the codex holds it, it is given with its line numbers"
    )


class AttachedText(StrictRequest):
    """A file, or standard input, that precedes the question."""

    name: str = Field(description="as it is given to the model, and cited")
    text: str = Field(description="all of it; never cut silently")


class LoreOptions(StrictRequest):
    """The `lore` object of a request (`extra_body` in OpenAI's client)."""

    codex: Plain | None = Field(None, description="the codex by name; none: the bare model; left out: by client.cwd")
    session: Plain | None = Field(
        None,
        description="a conversation that the daemon keeps, begun where there is none of the name; empty: a new one",
    )
    continue_last: bool = Field(False, alias="continue", description="go on with your last conversation on this codex")
    identity: Plain | None = Field(None, description="the identity by name")
    strategy: str | None = Field(None, description="CAG, HYBRID, RAG, RAG+GRAPH or NONE; left out: decided, and why")
    verbatim: tuple[Text, ...] = Field(
        (),
        description="texts that the model shall have to the letter in this question and all later ones of the session",
    )
    frame: str | None = Field(
        None, description="what the question is about, where the client knows: it decides the task"
    )
    mode: str | None = Field(
        None,
        description="RESPOND, CLARIFY, ACT or ACKNOWLEDGE; of any other nothing is left out; left out: by its words",
    )
    variant: Plain | None = Field(
        None, description="of the rules of relevance; a session is pinned to the first one that it is asked under"
    )
    urgency: str | None = Field(
        None, description="high: facts, levels and turns are always taken; left out: by its words"
    )
    wait: bool = Field(
        True, description="false: refuse with not_ready instead of waiting for the model or computing the floor"
    )
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="seconds until the answer must have begun, else not_ready"
    )
    think: bool = Field(True, description="false: a model that thinks is asked not to")
    record: bool = Field(True, description="false: the answer has no identifier, and no session is saved")
    cache: bool = Field(
        True,
        description="false: compute the whole prompt anew, in a context of its own, and keep nothing of it; what the cache "
        "gives is checked against that; needs admin",
    )
    attachments: tuple[AttachedText, ...] = Field((), description="texts that precede the question")
    client: ClientState = Field(ClientState(), description="where the user is")


def of_one_line(name: str) -> str:
    """It is part of a line of the prompt."""
    if "\n" in name or "\r" in name:
        raise ValueError("holds a line break, which no name does")
    return name


class ToolFunction(RequestShape):
    """What the model may have called."""

    name: Annotated[Text, AfterValidator(of_one_line)] = Field(description="of one line")
    description: str | None = Field(None, description="what it does, for the model")
    parameters: dict[str, Any] | None = Field(None, description="a JSON schema of its arguments")
    strict: bool | None = Field(
        None, description="a schema that cannot be enforced is refused; else its arguments may then be any object"
    )


class ClientTool(RequestShape):
    """A tool of the client, in OpenAI's shape; also one whose `function` is not wrapped."""

    type: Literal["function"] = Field("function", description="OpenAI's word")
    function: ToolFunction = Field(description="what it is")

    @model_validator(mode="before")
    @classmethod
    def _wrapped(cls, given: Any) -> Any:
        bare = isinstance(given, dict) and "function" not in given and given.get("type", "function") == "function"
        return {"function": given} if bare else given


class ToolName(RequestShape):
    """Which tool."""

    name: Text = Field(description="of a tool that is offered")


class NamedTool(RequestShape):
    """OpenAI's way to name the tool that is to be called; also one whose `function` is not wrapped."""

    type: Literal["function"] = Field("function", description="OpenAI's word")
    function: ToolName = Field(description="the tool")

    @model_validator(mode="before")
    @classmethod
    def _wrapped(cls, given: Any) -> Any:
        return {"function": given} if isinstance(given, dict) and "name" in given else given


class AllowedNames(RequestShape):
    """Some of the tools that are offered."""

    mode: Literal["auto", "required"] = Field(
        description="auto: the answer calls them or none; required: one is called"
    )
    tools: Annotated[tuple[NamedTool, ...], Field(min_length=1, strict=False)] = Field(description="by their names")


class AllowedTools(RequestShape):
    """OpenAI's way to name the tools that alone may be called; also one whose `allowed_tools` is not wrapped."""

    type: Literal["allowed_tools"] = Field(description="OpenAI's word")
    allowed_tools: AllowedNames = Field(description="the tools")

    @model_validator(mode="before")
    @classmethod
    def _wrapped(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("type") != "allowed_tools" or "allowed_tools" in given:
            return given
        return {"type": "allowed_tools", "allowed_tools": given}


class QuestionBody(RequestShape):
    """Base of what asks a model. Keys that mean nothing here are kept, so that the answer can name them."""

    model_config = ConfigDict(extra="allow")


class TextOptions(StrictRequest):
    """The `lore` object of a text that is to be continued."""

    wait: bool = Field(True, description="false: refuse with not_ready instead of waiting for the model")
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="seconds until the answer must have begun, else not_ready"
    )


class CompletionBody(QuestionBody):
    """OpenAI's completions: a text that the model continues, or with `suffix` what fits between the two."""

    model: str = Field(
        "", description="the bare model; one that names a codex is taken, and the codex has no part in it"
    )
    prompt: str | Annotated[tuple[str, ...], Field(min_length=1, max_length=1)] = Field(
        description="the text, or what stands before the cursor; one written in the model's own tokens for filling in is "
        "taken apart; ids of tokens are not taken"
    )
    suffix: str | None = Field(
        None, description="what stands behind the cursor; refused where the model cannot fill in"
    )
    stream: bool = Field(False, description="answer as server-sent events")
    stream_options: StreamOptions | None = Field(None, description="what the stream ends with")
    max_tokens: MostTokens | None = Field(None, description="longest answer in tokens; left out: 16, as OpenAI has it")
    temperature: Temperature = None
    top_p: TopP = None
    top_k: TopK = None
    min_p: MinP = None
    repeat_penalty: RepeatPenalty = None
    seed: Seed = None
    stop: Stop = None
    n: int | None = Field(1, description="1; more are refused")
    best_of: int | None = Field(1, description="1; more are refused")
    echo: bool | None = Field(False, description="refused")
    logprobs: int | None = Field(None, description="refused: chat completions have them")
    lore: TextOptions = Field(TextOptions(), description="what the protocol has no words for")


class ChatRequest(QuestionBody):
    """Body of POST /v1/chat/completions and /v1/plan."""

    model: str = Field("", description="lore/NAME: a codex; lore or empty: the one of client.cwd; or the bare model")
    messages: tuple[ChatMessage, ...] = Field(
        min_length=1, max_length=10_000, description="the conversation, at most 10,000; the last is the question"
    )
    stream: bool = Field(False, description="answer as server-sent events")
    stream_options: StreamOptions | None = Field(None, description="what the stream ends with")
    max_tokens: MostTokens | None = Field(None, description="longest answer in tokens; left out: 2048")
    max_completion_tokens: MostTokens | None = Field(None, description="the same, and goes before it")
    temperature: Temperature = None
    top_p: TopP = None
    top_k: TopK = None
    min_p: MinP = None
    repeat_penalty: RepeatPenalty = None
    seed: Seed = None
    stop: Stop = None
    n: int | None = Field(1, description="1; more are refused")
    logprobs: bool | None = Field(False, description="report the log-probabilities of the answer's tokens")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="and of so many likeliest at each"
    )
    n_probs: Annotated[int, Field(ge=0, le=20)] | None = Field(None, description="llama-server's word for both")
    response_format: ResponseFormat | None = Field(None, description="what the answer must parse as")
    tools: Annotated[tuple[ClientTool, ...], Field(max_length=MOST_TOOLS)] | None = Field(
        None, description=f"tools of the client, at most {MOST_TOOLS}"
    )
    tool_choice: Literal["auto", "none", "required"] | NamedTool | AllowedTools | None = Field(
        None, description="auto; none: no tool is called; required: one is; or the tool that is, or those that may be"
    )
    parallel_tool_calls: bool | None = Field(None, description="false: an answer makes one call at most")
    lore: LoreOptions = Field(LoreOptions(), description="what the protocol has no words for")
    prompt: bool = Field(False, description="/v1/plan only: report the exact text that the engine would get")


class LoadBody(StrictRequest):
    """What to load, and how."""

    path: Plain = Field(description="a directory or file by its absolute path, or a git URL")
    name: Plain | None = Field(None, description="the codex's name; left out: the path's last part")
    more: tuple[Plain, ...] = Field((), description="further roots of the same codex")
    revision: Plain | None = Field(None, description="a branch, tag or commit instead of the files on disk")
    secrets: bool = Field(False, description="load also what holds or looks like keys and tokens")
    replace: bool = Field(False, description="take the name from the source that has it now")
    watch: bool | None = Field(None, description="follow changes on disk; left out: as wished before, else codex.watch")
    include: tuple[Plain, ...] = Field((), description="take only files that match one of these globs")
    exclude: tuple[Plain, ...] = Field((), description="leave out files that match one of these globs")
    tier: Plain | None = Field(
        None, description="force the coverage: full, skeleton+hot, map or none; auto takes that back"
    )
    dry_run: bool = Field(False, description="count and decide, load nothing")
    wait: bool = Field(False, description="hold the stream until the floor is resident in the cache")
    sent: bool = Field(False, description="take the files that were sent; path is where the client has them")


class OfferedFile(StrictRequest):
    """A file that a client can send."""

    path: Plain = Field(description="its name in the codex: relative")
    size: int = Field(description="bytes")
    sha256: Plain = Field(description="of its bytes, in hex")
    volatility: int = Field(0, ge=0, le=99, description="how often it changes, in few steps; such files come last")


class OfferBody(StrictRequest):
    """What a client has of a codex: all its files, also those that were sent before."""

    name: Plain = Field(description="the codex's name, without its owner")
    files: tuple[OfferedFile, ...] = Field(description="each once")
    skipped: dict[str, int] = Field({}, description="files that the client left out, by reason")
    branch: Plain | None = Field(None, description="git's")
    revision: Plain | None = Field(None, description="git's")
    dirty: int = Field(0, description="files that differ from the revision")


class SearchBody(StrictRequest):
    """What to look for, and where."""

    query: Annotated[str, Field(min_length=1, max_length=10_000)] = Field(
        description="words, names, or a question; 10,000 characters at most"
    )
    codex: Plain | None = Field(None, description="the codex by name; left out: by cwd")
    n: Annotated[int, Field(ge=1, le=1000)] = Field(10, description="most hits")
    graph: bool = Field(False, description="add the neighbourhood of what was found: callers, callees, bases")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is searched")


USUAL_LINES = 200  # of a file, where no end is named: three screens


class ReadBody(StrictRequest):
    """Which lines of a file."""

    path: Annotated[Plain, Field(min_length=1, max_length=4_096)] = Field(
        description="the file, as its codex names it; one that was not taken in cannot be read, wherever it lies"
    )
    start: Annotated[int, Field(ge=1, lt=2**31)] = Field(1, description="first line, from 1")
    end: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description=f"last line; 0: {USUAL_LINES} lines")
    codex: Plain | None = Field(None, description="the codex by name; left out: by cwd")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is asked")


class StrategyBody(StrictRequest):
    """A text that somebody might read whole or search."""

    query: Annotated[str, Field(max_length=10_000)] = Field("", description="what is to be answered")
    char_count: Annotated[int, Field(ge=0, lt=2**53)] = Field(
        0, description="characters of the text; 0: those of file_paths, or without any as one of 64,000 tokens"
    )
    file_paths: Annotated[tuple[Plain, ...], Field(max_length=1_000)] = Field(
        (), description="files of a codex that are the text, where char_count is left out"
    )
    codex: Plain | None = Field(None, description="whose files, by name; left out: by cwd")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is meant")
    model_context_length: Annotated[int, Field(ge=1, lt=2**53)] | None = Field(
        None, description="window of the model that is to read it, in tokens; left out: of the loaded one"
    )
    used_tokens: Annotated[int, Field(ge=0, lt=2**53)] = Field(0, description="of that window, taken already")


class SymbolsBody(StrictRequest):
    """Which definitions to name."""

    name: Annotated[str, Field(min_length=1, max_length=1_000)] = Field(
        description="as in the code; `Session.get` or `sessions.py:Session.get` chooses among several; of outline a path"
    )
    what: Literal["definition", "callers", "callees", "implementors", "members", "outline"] = Field(
        "definition", description="of the name; the last gives all definitions of a file"
    )
    codex: Plain | None = Field(None, description="the codex by name; left out: by cwd")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is asked")


class ModelBody(StrictRequest):
    """The model to change to."""

    model: Annotated[str, Field(min_length=1), AfterValidator(without_nul)] = Field(
        description="a name of GET /v1/models/local, a built-in one's, or the absolute path of a GGUF file"
    )
    stream: bool = Field(False, description="report the steps as server-sent events")


class MeasureBody(StrictRequest):
    """On which codex to measure."""

    codex: Plain | None = Field(None, description="by name; left out: by cwd")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is taken")


class ContextBody(StrictRequest):
    """What to measure of the loaded model's context."""

    again: bool = Field(False, description="everything, also what is known")


class PauseBody(StrictRequest):
    """How long the model is out of the memory."""

    duration: str | float | None = Field(
        None, alias="for", description='"2h", "30 min" or seconds; left out: until POST /v1/resume'
    )
    hold: bool = Field(False, description="until this request's connection closes; reports server-sent events")
    why: Annotated[str, Field(max_length=200), AfterValidator(without_nul)] = Field(
        "", description="what for; whoever may read the status reads it"
    )
    name: Annotated[str, Field(max_length=100), AfterValidator(without_nul)] = Field(
        "", description="with hold: of a pause that a daemon before began for this client"
    )


class SessionSearchBody(StrictRequest):
    """What to look for in your conversations."""

    query: Annotated[str, Field(min_length=1, max_length=10_000)] = Field(description="words that were said")
    n: Annotated[int, Field(ge=1, le=1000)] = Field(10, description="most messages")


class RenameBody(StrictRequest):
    """A conversation's new name."""

    name: Annotated[str, Field(min_length=1), AfterValidator(without_nul)] = Field(description="free among your own")


class EmbeddingsBody(RequestShape):
    """OpenAI's, with texts; ids of tokens are another model's and not taken."""

    input: Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=2048)] = Field(
        description="a text, or up to 2048"
    )
    model: str = Field("", description="not looked at: the settings name the one that embeds")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="numbers, or little-endian float32 in base64"
    )
    dimensions: int | None = Field(None, description="the model's own; another number is refused")
    user: str = Field("", description="not looked at")
