"""Routes of plain text: what clients of llama-server and vLLM ask of a server beside OpenAI's protocol."""

from orchestrator.api.http import ApiCall, route
from orchestrator.errors import InvalidRequest
from orchestrator.wire.texts import DetokenizeBody, Detokenized, PropsReply, TokenizeBody, Tokenized


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
