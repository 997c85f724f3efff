"""OpenAI's responses: a question, its answer as items, and the events of a stream."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from orchestrator.wire.answers import ChosenToken, Lore
from orchestrator.wire.base import ReplyShape, RequestShape
from orchestrator.wire.requests import (
    MOST_TOOLS,
    ContentPart,
    LoreOptions,
    MostTokens,
    QuestionBody,
    Temperature,
    TopP,
)


def absent(value: object) -> bool:
    """For `exclude_if`: a field that this kind of event does not have."""
    return value is None


# -- a question


class InputItem(RequestShape):
    """One item of a conversation: a message, a call of a tool, or its result."""

    type: str = Field(
        "message", description="message, function_call, function_call_output; reasoning is left out; others are refused"
    )
    role: str = Field("", description="of a message: user, assistant, system or developer")
    content: str | tuple[ContentPart, ...] | None = Field(None, description="of a message: the text, or its parts")
    call_id: str = Field("", description="of a call and of its result")
    name: str = Field("", description="of a call: the tool")
    arguments: str = Field("", description="of a call: JSON")
    output: str | tuple[ContentPart, ...] | None = Field(None, description="of a result: the text, or its parts")


class ResponseTool(RequestShape):
    """A tool of the client."""

    type: str = Field(description="function; others are refused")
    name: str = Field("", description="its name")
    description: str | None = Field(None, description="what it does, for the model")
    parameters: dict[str, Any] | None = Field(None, description="a JSON schema of its arguments")
    strict: bool | None = Field(
        None, description="a schema that cannot be enforced is refused; else its arguments may then be any object"
    )


class TextFormat(RequestShape):
    """What the answer must parse as. A reply has it as it came."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema"] = Field(
        "text", description="text, any object, or by the schema"
    )
    name: str | None = Field(None, exclude_if=absent, description="not looked at")
    definition: dict[str, Any] | None = Field(
        None, alias="schema", exclude_if=absent, description="with json_schema: the schema"
    )
    strict: bool | None = Field(None, exclude_if=absent, description="not looked at: a schema is always enforced")


class TextSettings(RequestShape):
    """How the answer is written."""

    format: TextFormat = Field(TextFormat(), description="what it must parse as")


class ReasoningSettings(RequestShape):
    """How the model thinks."""

    effort: str | None = Field(None, description="none or minimal: a model that thinks is asked not to")


class ResponseBody(QuestionBody):
    """OpenAI's responses."""

    model: str = Field("", description="as in chat completions")
    input: str | Annotated[tuple[InputItem, ...], Field(min_length=1, max_length=9_999)] = Field(
        description="the question, or the items of a conversation; with previous_response_id only what is new"
    )
    instructions: str | None = Field(None, description="of the system, for this response alone")
    previous_response_id: str | None = Field(None, description="goes on behind this response, the last of its session")
    store: bool | None = Field(
        True,
        description="keep it in a session, so that another can go on; one that holds a whole conversation is not kept",
    )
    stream: bool | None = Field(False, description="answer as server-sent events")
    max_output_tokens: MostTokens | None = Field(None, description="longest answer in tokens; left out: 2048")
    temperature: Temperature = None
    top_p: TopP = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="log-probabilities of so many likeliest tokens in each place"
    )
    include: tuple[str, ...] | None = Field(None, description="message.output_text.logprobs; others have no effect")
    text: TextSettings | None = Field(None, description="how the answer is written")
    reasoning: ReasoningSettings | None = Field(None, description="how the model thinks")
    tools: Annotated[tuple[ResponseTool, ...], Field(max_length=MOST_TOOLS)] | None = Field(
        None, description=f"tools of the client, at most {MOST_TOOLS}"
    )
    tool_choice: Any = Field(None, description="as in chat completions")
    parallel_tool_calls: bool | None = Field(None, description="false: an answer makes one call at most")
    metadata: dict[str, str] | None = Field(None, description="sent back as it came")
    background: bool | None = Field(False, description="refused")
    conversation: Any = Field(None, description="refused: previous_response_id goes on")
    prompt: Any = Field(None, description="refused: no templates of prompts are kept")
    lore: LoreOptions = Field(LoreOptions(), description="as in chat completions, without session and continue")


# -- an answer


class OutputText(ReplyShape):
    """The text of a message."""

    type: Literal["output_text"] = Field("output_text", description="OpenAI's word")
    text: str = Field(description="what was said")
    annotations: tuple[()] = Field((), description="none: lore.citations has them")
    logprobs: tuple[ChosenToken, ...] = Field((), description="of its tokens, where asked for")


class ReasoningText(ReplyShape):
    """What a thinking model thought."""

    type: Literal["reasoning_text"] = Field("reasoning_text", description="OpenAI's word")
    text: str = Field(description="the thought")


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputMessage(ReplyShape):
    """A message of the answer."""

    type: Literal["message"] = Field("message", description="what kind of item")
    id: str = Field(description="of the item")
    status: ItemStatus = Field(description="whether it is complete")
    role: Literal["assistant"] = Field("assistant", description="OpenAI's word")
    content: tuple[OutputText, ...] = Field(description="its text; none before it begins")


class OutputReasoning(ReplyShape):
    """A thought."""

    type: Literal["reasoning"] = Field("reasoning", description="what kind of item")
    id: str = Field(description="of the item")
    status: ItemStatus = Field(description="whether it is complete")
    summary: tuple[()] = Field((), description="none: the thought itself is told")
    content: tuple[ReasoningText, ...] = Field(description="the thought; none before it begins")


class OutputCall(ReplyShape):
    """A tool that the client is to call."""

    type: Literal["function_call"] = Field("function_call", description="what kind of item")
    id: str = Field(description="of the item")
    status: ItemStatus = Field(description="whether it is complete")
    call_id: str = Field(description="to be named with the result")
    name: str = Field(description="the tool")
    arguments: str = Field(description="JSON, as the model wrote it")


OutputItem = OutputMessage | OutputReasoning | OutputCall


class InputDetails(ReplyShape):
    """OpenAI's place for it."""

    cached_tokens: int = Field(description="of the prompt: needed no computing")
    cache_write_tokens: int = Field(0, description="0: nothing is charged for")


class OutputDetails(ReplyShape):
    """OpenAI's place for it."""

    reasoning_tokens: int = Field(0, description="0: thoughts are counted with the answer")


class ResponseUsage(ReplyShape):
    """Tokens of one response."""

    input_tokens: int = Field(description="of the prompt")
    input_tokens_details: InputDetails = Field(description="how many were cached")
    output_tokens: int = Field(description="of the answer")
    output_tokens_details: OutputDetails = Field(OutputDetails(), description="of thoughts")
    total_tokens: int = Field(description="both")


class CutResponse(ReplyShape):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = Field(description="the answer was cut")


class FailedResponse(ReplyShape):
    """Why a response failed after its stream had begun."""

    code: Literal["server_error"] = Field("server_error", description="OpenAI's word")
    type: str = Field(description="one of the codes of errors")
    message: str = Field(description="what is wrong, and what to do")


class ResponseReply(ReplyShape):
    """A whole response."""

    id: str = Field(description="previous_response_id of the next one, where it is kept")
    object: Literal["response"] = Field("response", description="OpenAI's word")
    created_at: float = Field(description="seconds since 1970")
    status: Literal["in_progress", "completed", "incomplete", "failed"] = Field(description="how far it is")
    error: FailedResponse | None = Field(None, description="where it failed")
    incomplete_details: CutResponse | None = Field(None, description="where the answer was cut")
    instructions: str | None = Field(description="as they came")
    max_output_tokens: int | None = Field(description="as it came")
    metadata: dict[str, str] = Field(description="as it came")
    model: str = Field(description="as it was asked for")
    output: tuple[OutputItem, ...] = Field(description="items of the answer, in order")
    parallel_tool_calls: bool = Field(False, description="OpenAI's")
    previous_response_id: str | None = Field(description="as it came")
    temperature: float | None = Field(description="as it came")
    text: TextSettings = Field(description="as it came")
    tool_choice: Any = Field(description="as it came; auto")
    tools: tuple[ResponseTool, ...] = Field(description="as they came")
    top_p: float | None = Field(description="as it came")
    truncation: Literal["disabled"] = Field("disabled", description="what must not be cut and does not fit is refused")
    usage: ResponseUsage | None = Field(None, description="in tokens; null before the end")
    lore: Lore | None = Field(None, exclude_if=absent, description="what the answer says of itself; at the end")


# -- the events of a stream


class NumberedEvent(ReplyShape):
    """An event of a stream, as OpenAI's client reads it."""

    sequence_number: int = Field(description="from 0")


class ResponseEvent(NumberedEvent):
    """The response as a whole: two at the beginning, one at the end."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ] = Field(description="what kind of event")
    response: ResponseReply = Field(description="as it is now")


class ItemEvent(NumberedEvent):
    """An item begins or ends."""

    type: Literal["response.output_item.added", "response.output_item.done"] = Field(description="what kind of event")
    output_index: int = Field(description="which item, from 0")
    item: OutputItem = Field(description="as it is now")


class PartEvent(NumberedEvent):
    """The text of a message, or a thought, begins or ends."""

    type: Literal["response.content_part.added", "response.content_part.done"] = Field(description="what kind of event")
    item_id: str = Field(description="of the item")
    output_index: int = Field(description="which item, from 0")
    content_index: int = Field(0, description="0")
    part: OutputText | ReasoningText = Field(description="as it is now")


class PieceEvent(NumberedEvent):
    """A piece of a text, of a thought, or of a call's arguments, which are sent whole."""

    type: Literal[
        "response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta"
    ] = Field(description="what kind of event")
    item_id: str = Field(description="of the item")
    output_index: int = Field(description="which item, from 0")
    content_index: int | None = Field(None, exclude_if=absent, description="0; not of arguments")
    delta: str = Field(description="what is added")
    logprobs: tuple[ChosenToken, ...] | None = Field(None, exclude_if=absent, description="of a text's tokens")


class WholeEvent(NumberedEvent):
    """The same at its end."""

    type: Literal[
        "response.output_text.done", "response.reasoning_text.done", "response.function_call_arguments.done"
    ] = Field(description="what kind of event")
    item_id: str = Field(description="of the item")
    output_index: int = Field(description="which item, from 0")
    content_index: int | None = Field(None, exclude_if=absent, description="0; not of arguments")
    text: str | None = Field(None, exclude_if=absent, description="of a text or a thought")
    name: str | None = Field(None, exclude_if=absent, description="of a call: the tool")
    arguments: str | None = Field(None, exclude_if=absent, description="of a call")
    logprobs: tuple[ChosenToken, ...] | None = Field(None, exclude_if=absent, description="of a text's tokens")


StreamedEvent = ResponseEvent | ItemEvent | PartEvent | PieceEvent | WholeEvent
