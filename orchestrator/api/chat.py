"""Routes of OpenAI's protocol: chat completions and models; and the plan, which takes the same body."""

import base64
import struct

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.api.asks import CODEX_PREFIX, ask_of, codex_of, leaves_choice
from orchestrator.api.completions import Chunks, completed
from orchestrator.api.problems import Reply, problem
from orchestrator.api.requests import parsed, permitted, service_of
from orchestrator.api.streams import started, while_connected
from orchestrator.errors import InvalidRequest, NotFound, instead
from orchestrator.service import Ask, Embedded, Principal, Service
from orchestrator.wire.lore import BARE
from orchestrator.wire.models import ModelCard, ModelCards
from orchestrator.wire.replies import EmbeddingCut, EmbeddingRow, EmbeddingsReply, EmbeddingUsage
from orchestrator.wire.requests import ChatRequest, EmbeddingsBody


async def completions(request: Request) -> Response:
    """OpenAI's chat completions, streaming and not; the `lore` object in and out."""
    principal = permitted(request, "query")
    body = await parsed(request, ChatRequest)
    model = body.model or "lore"
    try:
        ask = await asked(service_of(request), body, principal)
        events = request.app.state.line.through(service_of(request).ask(ask))
        if not body.stream:
            whole = completed(model, events)
            return Reply(await while_connected(request.receive, whole))
        chunks = Chunks(model, body.stream_options is not None and body.stream_options.include_usage)
        return await started(request.receive, chunks.of(events))
    except NotFound as error:
        known = not codex_of(body.model) or body.model in await ids(service_of(request), principal)
        return problem(error, None if known else ModelNotFound.code)


async def plan(request: Request) -> Response:
    """The same body; everything decided for that question, and nothing run."""
    principal = permitted(request, "query")
    body = await parsed(request, ChatRequest)
    ask = await asked(service_of(request), body, principal)
    work = service_of(request).plan(ask, prompt=body.prompt)
    return Reply(await while_connected(request.receive, work))


async def asked(service: Service, body: ChatRequest, principal: Principal) -> Ask:
    codex = codex_of(body.model)
    if codex is None and not leaves_choice(body.model):
        codex = await bare(service, body.model, principal)
    return ask_of(body, principal, codex)


class ModelNotFound(NotFound):
    code = "model_not_found"


async def bare(service: Service, model: str, principal: Principal) -> str:
    """The codex of a model id without prefix: the bare model's own name, or else a codex's. Raises ModelNotFound with
    those there are."""
    known = await ids(service, principal)
    if model in known:
        return BARE
    if f"{CODEX_PREFIX}{model}" in known:
        return model
    raise ModelNotFound(f"no model {model}", instead(model, known, "`lore load` makes one", "GET /v1/models"))


async def ids(service: Service, principal: Principal) -> list[str]:
    codices = [f"{CODEX_PREFIX}{codex.name}" for codex in await service.codices(principal)]
    return codices + [model.id for model in await service.models(principal) if model.loaded]


async def models(request: Request) -> Response:
    """OpenAI's list of models: a codex is `lore/NAME`, the bare model its own name."""
    known = await ids(service_of(request), permitted(request, "query", "codex:read"))
    return Reply(ModelCards(object="list", data=tuple(map(card, known))))


async def model(request: Request) -> Response:
    """One of them."""
    wanted = request.path_params["name"]
    known = await ids(service_of(request), permitted(request, "query", "codex:read"))
    if wanted not in known and f"{CODEX_PREFIX}{wanted}" not in known:
        raise ModelNotFound(f"no model {wanted}", "GET /v1/models lists them")
    return Reply(card(wanted))


def card(name: str) -> ModelCard:
    return ModelCard(id=name, object="model", created=0, owned_by="lorekeep")


async def embeddings(request: Request) -> Response:
    """Vectors of texts, by the embedding model of the settings; `cut`: tokens of each text that did not fit its window."""
    principal = permitted(request, "query")
    body = await parsed(request, EmbeddingsBody)
    texts = (body.input,) if isinstance(body.input, str) else body.input
    found = await while_connected(request.receive, service_of(request).embed(principal, texts))
    if body.dimensions not in (None, found.dimensions):
        raise InvalidRequest(
            f"{found.model} gives {found.dimensions} dimensions, not {body.dimensions}", "leave out `dimensions`"
        )
    return Reply(written(found, body.encoding_format))


def written(found: Embedded, encoding: str) -> EmbeddingsReply:
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
