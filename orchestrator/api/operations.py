"""Routes of codices, identities, local models and the daemon's own state."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from orchestrator.api.http import (
    ApiCall,
    ApiRoute,
    EventStream,
    Reply,
    closing,
    permitted,
    pieces_of,
    route,
    while_running,
)
from orchestrator.api.http import read as read_body
from orchestrator.errors import InvalidRequest, NotFound, NotReady
from orchestrator.reports.metrics import metrics
from orchestrator.settings.units import in_seconds
from orchestrator.wire.answers import StrategyState
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.identities import (
    DefaultIdentity,
    DefaultIdentityBody,
    IdentityBody,
    IdentityChange,
    IdentityReply,
    IdentityRows,
    ShortIdentity,
)
from orchestrator.wire.models import (
    ChangedEvent,
    ContextReply,
    KvLossEvent,
    KvLossProgress,
    MeasuredEvent,
    ModelChange,
    ModelReply,
    ModelRows,
)
from orchestrator.wire.openapi import QueryParameter, document
from orchestrator.wire.places import VERSION, is_url
from orchestrator.wire.replies import (
    Alive,
    Cancelled,
    CodexCosts,
    CodexMap,
    CodexReply,
    CodicesReply,
    Dropped,
    FileLines,
    FilesTaken,
    Health,
    ImportedFloor,
    LoadedEvent,
    OfferReply,
    ProgressEvent,
    Ready,
    SearchReply,
    SymbolsReply,
)
from orchestrator.wire.requests import (
    ContextBody,
    LoadBody,
    MeasureBody,
    ModelBody,
    OfferBody,
    PauseBody,
    ReadBody,
    SearchBody,
    StrategyBody,
    SymbolsBody,
)
from orchestrator.wire.status import (
    AwayEvent,
    CacheReply,
    ClientStats,
    EngineStateEvent,
    EngineWork,
    EvictedEvent,
    LevelEvent,
    LoadReportedEvent,
    NowEvent,
    PauseReply,
    PoolEvent,
    PrefillEvent,
    ResumeReply,
    StatusReply,
)

LONGEST_PAUSE_S = 30 * 86_400.0
# 30,000 characters: about 10,000 tokens, what a page of an agent may take
CHARACTERS = QueryParameter("most", "characters of all lines", usual=30_000, least=100, most=1_000_000)
FILES = QueryParameter("n", "files, those that cost most", usual=200, least=1, most=10_000)
MEMORIES = QueryParameter("memories", "1: the asking user's memories of it go, too")
PROMETHEUS = "text/plain; version=0.0.4"
LOADING = ("not_found", "conflict", "context_length_exceeded", "not_ready", "engine_failed")
TAKING = ("invalid_request", "conflict", "context_length_exceeded", "not_ready", "engine_failed")

# -- codices


@route("POST", "/v1/codices", "codex:write", events=(ProgressEvent, LoadedEvent), faults=LOADING)
async def load(call: ApiCall, body: LoadBody) -> EventStream:
    """Loads directories, files or a git URL; progress as server-sent events."""
    for path in (body.path, *body.more):
        if not path.startswith("/") and not is_url(path):
            raise InvalidRequest(f"path: {path} is not absolute", "the daemon does not know your working directory")
    return await call.stream(call.service.load(call.principal, body))


@route("POST", "/v1/sent", "codex:write")
async def offer(call: ApiCall, body: OfferBody) -> OfferReply:
    """What a client has read with its own rights and can send: which of these files the daemon does not have."""
    return await call.service.offer(call.principal, body)


@route("POST", "/v1/sent/{name}/files", "codex:write")
async def take_files(call: ApiCall) -> FilesTaken:
    """Files that were offered; the body is bytes: for each file its SHA-256 (32 bytes), its length (8 bytes, the highest
    first), and its content."""
    raw = await read_body(call.request, call.request.app.state.max_body)
    return FilesTaken(taken=await call.service.take_files(call.principal, call.name, raw))


@route("POST", "/v1/sent/{name}/changed", "codex:write", faults=("not_found", "conflict"))
async def sent_changed(call: ApiCall) -> CodexReply:
    """A loaded codex has the files of the last offer from now on, as if they had changed on disk."""
    return CodexReply(codex=await call.service.sent_changed(call.principal, call.name))


@route("POST", "/v1/codices/{name}/reload", "codex:write", events=(ProgressEvent, LoadedEvent), faults=LOADING)
async def reload_codex(call: ApiCall) -> EventStream:
    """Loads a codex anew; progress as server-sent events."""
    return await call.stream(call.service.reload(call.principal, call.name))


@route("POST", "/v1/codices/{name}/cancel", "codex:write", faults=("not_found", "conflict"))
async def cancel_load(call: ApiCall) -> Cancelled:
    """Stops a load in any of its phases: the codex is as it was before, and the next load continues from what was read. A
    first load leaves it listed as not loaded to the end. After a load, stops the computing of the floor."""
    return await call.service.cancel_load(call.principal, call.name)


@route("GET", "/v1/codices", "codex:read", "query")
async def codices(call: ApiCall) -> CodicesReply:
    """What is loaded."""
    return CodicesReply(codices=tuple(await call.service.codices(call.principal)))


@route("GET", "/v1/codices/{name}", "codex:read", "query", faults=("not_found", "not_ready"))
async def codex(call: ApiCall) -> CodexReply:
    """One codex."""
    return CodexReply(codex=await call.service.codex(call.principal, call.name))


@route("GET", "/v1/codices/{name}/map", "search", faults=("not_found",), query=(CHARACTERS,))
async def codex_map(call: ApiCall) -> CodexMap:
    """A line for each file of a codex, with what it defines; `?most=`: characters of all, from 100 to 1,000,000 (left out:
    30,000). Without room for all, files that tell least have none."""
    return await call.while_connected(call.service.codex_map(call.principal, call.name, call.number(CHARACTERS)))


@route("GET", "/v1/codices/{name}/files", "search", faults=("not_found", "not_ready"), query=(FILES,))
async def codex_costs(call: ApiCall) -> CodexCosts:
    """What the files of a codex take of its prefix, the dearest first; `?n=`: how many, from 1 to 10,000 (left out:
    200)."""
    return await call.while_connected(call.service.codex_costs(call.principal, call.name, call.number(FILES)))


@route("DELETE", "/v1/codices/{name}", "codex:write", faults=("not_found", "conflict"), query=(MEMORIES,))
async def drop_codex(call: ApiCall) -> Dropped:
    """Forgets a codex. Memories of it stay; `?memories=1`, with `memory:write`, deletes the asking user's for good, also
    those of a codex that was dropped before. Refused while it is being loaded."""
    if not call.request.query_params.get("memories"):
        await call.service.drop(call.principal, call.name)
        return Dropped(dropped=call.name)
    permitted(call.request, ("memory:write",))
    missing = None
    try:
        await call.service.drop(call.principal, call.name)
    except NotFound as fault:
        missing = fault
    forgotten = await call.service.records.forget_codex(call.principal, call.name)
    if missing is not None and not forgotten:
        raise missing
    return Dropped(dropped=call.name, memories=forgotten)


class FloorStream(StreamingResponse):
    """Where it breaks off, its end is missing: who reads it misses that."""

    media_type = "application/x-tar"


@route("GET", "/v1/codices/{name}/floor", "admin", faults=(*LOADING, "paused"))
async def export_floor(call: ApiCall) -> FloorStream:
    """The computed prefix of a codex, as a tar archive for another machine with the same model: a manifest and checkpoints.
    It is computed first where it is not there. Refused where files have changed since the prefix was laid out."""
    pieces = call.while_serving(call.service.export_floor(call.principal, call.name), silently=True)
    first = await call.while_connected(anext(pieces, b""))
    return FloorStream(following_first(first, pieces))


async def following_first(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with closing(pieces):
        yield first
        async for piece in pieces:
            yield piece


@route("POST", "/v1/floors", "admin", faults=(*TAKING, "paused"))
async def import_floor(call: ApiCall) -> ImportedFloor:
    """Keeps a prefix that was exported elsewhere; the body is the archive, of any size. Refused by name where anything that
    KV depends on is another one here. The next load of the same files under the same name finds it."""
    stopping = call.request.app.state.stopping
    return await while_running(stopping, call.service.import_floor(pieces_of(call.request)))


@route("POST", "/v1/search", "search", faults=("not_found", "not_ready"))
async def search(call: ApiCall, body: SearchBody) -> SearchReply:
    """The archive alone: places that match, with the parts of their scores; `notices`: what it may not have seen."""
    work = call.service.search(call.principal, body.query, body.codex, body.n, body.graph, body.cwd)
    return await call.while_connected(work)


@route("POST", "/v1/symbols", "search", faults=("not_found", "not_ready"))
async def symbols(call: ApiCall, body: SymbolsBody) -> SymbolsReply:
    """Definitions of a name, what calls it, what it calls, what implements it, its members; or the outline of a file. Of
    the codex as it answers now."""
    return await call.while_connected(call.service.symbols(call.principal, body))


@route("POST", "/v1/read", "search", faults=("not_found", "not_ready"))
async def read(call: ApiCall, body: ReadBody) -> FileLines:
    """Lines of a file of a codex, as the codex answers now; never of a file outside it."""
    return await call.while_connected(call.service.read(call.principal, body))


@route("POST", "/v1/strategy", "query", faults=("not_ready",))
async def consult(call: ApiCall, body: StrategyBody) -> StrategyState:
    """Whether a text of a size should be put into a prompt whole or searched, for a question; of any model's window."""
    return await call.while_connected(call.service.consult(call.principal, body))


# -- identities


@route("GET", "/v1/identities", "query")
async def identities(call: ApiCall) -> IdentityRows:
    """The identities that questions can be asked under."""
    return IdentityRows(identities=await call.service.identities(call.principal))


@route("PUT", "/v1/identities", "admin", faults=("not_found", "invalid_request"))
async def use_identity(call: ApiCall, body: DefaultIdentityBody) -> DefaultIdentity:
    """From now on, questions that name no identity are asked under this one, until the daemon ends: the setting
    `identity.default` is the client's to write. Floors are computed in the background."""
    return await call.service.use_identity(call.principal, body.name, dry_run=body.dry_run)


@route("GET", "/v1/identities/{name}", "query", faults=("not_found", "invalid_request"))
async def identity(call: ApiCall) -> IdentityReply:
    """One identity: its text, its tokens, who is asked under it, and what it costs when it comes anew."""
    return IdentityReply(identity=await call.service.identity(call.principal, call.name))


@route("POST", "/v1/identities/{name}/condense", "admin", faults=("not_found", "invalid_request"))
async def condense_identity(call: ApiCall) -> ShortIdentity:
    """Has the loaded model shorten it. Every rule stays to the letter, or an extract takes the place of what the model
    wrote. Nothing is written: that is a PUT with the text."""
    return await call.service.condense_identity(call.principal, call.name)


@route("PUT", "/v1/identities/{name}", "admin", faults=("invalid_request",))
async def put_identity(call: ApiCall, body: IdentityBody) -> IdentityChange:
    """Writes an identity's file, and tells what the new floors cost. They are computed in the background, and the ones
    before answer until then."""
    return await call.service.put_identity(call.principal, call.name, body.text, dry_run=body.dry_run, keep=body.keep)


# -- models


@route("GET", "/v1/models/local", "query", "codex:read")
async def local_models(call: ApiCall) -> ModelRows:
    """Models at hand, and whether they fit."""
    return ModelRows(models=tuple(await call.service.models()))


@route("GET", "/v1/models/local/{name:path}", "query", "codex:read", faults=("not_found",))
async def local_model(call: ApiCall) -> ModelReply:
    """One model: what it is, what it costs, whether it fits, and whether the settings suit it."""
    return ModelReply(model=await call.service.model(call.principal, call.name))


@route("PUT", "/v1/model", "admin", events=(ProgressEvent, ChangedEvent), faults=("not_found", "conflict"))
async def use_model(call: ApiCall, body: ModelBody) -> ModelChange | EventStream:
    """Changes the running daemon to another model; answers when that is loaded, or says why the old one goes on."""
    events = call.service.use_model(body.model)
    if body.stream:
        return await call.stream(events)
    async with closing(call.while_serving(events)) as changes:
        async for event in changes:
            if isinstance(event, ChangedEvent):
                return ModelChange(**dict(event))
    raise AssertionError("a change ends with what it changed, or raises")


@route("POST", "/v1/model/measure", "query", events=(KvLossProgress, KvLossEvent), faults=LOADING)
async def measure_kv(call: ApiCall, body: MeasureBody) -> EventStream:
    """Measures on the end of a codex's prefix what q8_0, or the type in use, changes of the model's predictions against
    f16. Only while nobody asks; leaving the stream ends it."""
    return await call.stream(call.service.measure_kv(call.principal, body.codex, body.cwd))


@route("GET", "/v1/model/context", "query", "codex:read", faults=("engine_failed",))
async def context(call: ApiCall) -> ContextReply:
    """How long a text the loaded model follows, as far as it was measured, and what measuring the rest would take."""
    return ContextReply(context=await call.while_connected(call.service.context()))


MEASURING = ("conflict", "invalid_request", "engine_failed")


@route("POST", "/v1/model/context", "admin", events=(ProgressEvent, MeasuredEvent), faults=MEASURING)
async def measure_context(call: ApiCall, body: ContextBody) -> EventStream:
    """Measures what is missing, in the background; progress as server-sent events. Leaving it keeps what was measured."""
    return await call.stream(call.service.measure_context(again=body.again))


# -- the daemon itself


@route("GET", "/v1/status")
async def status(call: ApiCall) -> StatusReply:
    """One page about now."""
    return await call.service.status(call.principal)


@route("GET", "/v1/engine")
async def engine_work(call: ApiCall) -> EngineWork:
    """What the engine works at, and what its live caches hold. Nothing, at once, while no model is loaded."""
    return await call.while_connected(call.service.engine_work(call.principal))


@route("GET", "/v1/stats/cache")
async def cache(call: ApiCall) -> CacheReply:
    """What the caches held, gave back and saved since the engine started."""
    return await call.service.cache()


@route("GET", "/v1/stats/clients", "query")
async def client_stats(call: ApiCall) -> ClientStats:
    """What clients of the asking user that send whole conversations made of the cache, and what leaving it cost."""
    return await call.service.client_stats(call.principal)


@route("POST", "/v1/pause", "admin", events=(AwayEvent,))
async def pause(call: ApiCall, body: PauseBody) -> PauseReply | EventStream:
    """Takes the model out of the memory until `/v1/resume`, for a time, or with `hold` while the connection is open.
    Answers when none of the memory is ours. Several pauses add up."""
    seconds = None if body.duration is None else pause_seconds(body.duration)
    why = body.why or f"a request of uid {call.principal.uid}"
    if body.hold:
        return await call.stream(holding(call, why, seconds, body.name))
    return await call.while_connected(call.service.pause(why, seconds))


async def holding(call: ApiCall, why: str, seconds: float | None, name: str) -> AsyncIterator[AwayEvent]:
    """The pause ends with the connection. Not with the daemon: the next one waits for the client to come back."""
    begun: AwayEvent | None = None
    try:
        async with closing(call.service.hold(why, seconds, name)) as events:
            async for event in events:
                begun = begun or event
                yield event
    finally:
        if begun is not None and not call.request.app.state.stopping.is_set():
            call.service.resume(begun.name)


def pause_seconds(given: str | float) -> float:
    """Raises InvalidRequest."""
    try:
        seconds = in_seconds(given)
    except ValueError as error:
        raise InvalidRequest(f"for: {given!r} {error}", "2h, 30min or seconds") from error
    if not 0 < seconds <= LONGEST_PAUSE_S:
        raise InvalidRequest(f"for: {given!r} is not between 0 and 30 days", "leave it out to pause until lore resume")
    return seconds


@route("POST", "/v1/resume", "admin")
async def resume(call: ApiCall) -> ResumeReply:
    """Ends all pauses and loads the model again. Answers at once; `/readyz` says when it is there."""
    return call.service.resume()


@route(
    "GET",
    "/v1/events",
    events=(
        NowEvent,
        LevelEvent,
        EngineStateEvent,
        AwayEvent,
        PoolEvent,
        EvictedEvent,
        LoadReportedEvent,
        PrefillEvent,
    ),
)
async def events(call: ApiCall) -> EventStream:
    """Levels, engine, pauses, pools, evictions, loads and prefill as they change, as server-sent events; never ends by
    itself."""
    return await call.stream(following(call), silently=True)


async def following(call: ApiCall) -> AsyncIterator[ReplyShape]:
    """The events of whatever is behind the routes, also of what takes its place."""
    service = None
    while service is not call.service:
        service = call.service
        async with closing(service.events(call.principal)) as events:
            async for event in events:
                yield event
        await call.request.app.state.gate.opened()


@route("GET", "/metrics")
async def prometheus(call: ApiCall) -> Response:
    """[Metrics](metrics.md) in Prometheus' text format: of all users together, but for those of memories, which are the
    asking user's, with `memory:read`."""
    ready, _ = await call.service.ready()
    status, cache = await call.service.status(call.principal), await call.service.cache()
    memory = await call.service.records.memory_stats(call.principal) if call.principal.may("memory:read") else None
    counted = call.request.app.state.turns.metrics()
    return PlainTextResponse(metrics(status, cache, memory, counted, ready=ready), media_type=PROMETHEUS)


@route("GET", "/openapi.json")
async def openapi(call: ApiCall) -> JSONResponse:
    """All routes as an OpenAPI 3.1 document, for generators of clients; `lore schema openapi` prints the same."""
    declared = [one for one in call.request.app.routes if isinstance(one, ApiRoute)]
    made = await asyncio.to_thread(document, declared, VERSION)  # a fifth of a second, and once in a client's life
    return JSONResponse(made)


@route("GET", "/health", anybody=True, faults=("not_ready",))
async def health(call: ApiCall) -> Health:
    """As llama-server has it: 200 when an answer can be given, else 503."""
    ready, detail = await call.service.ready()
    if not ready:
        raise NotReady(detail, "ask again when it is ready")
    return Health(status="ok")


@route("GET", "/healthz", anybody=True)
async def healthz(_: ApiCall) -> Alive:
    """200 while the daemon runs."""
    return Alive(ok=True)


@route("GET", "/readyz", anybody=True, also=(503,))
async def readyz(call: ApiCall) -> Ready | Reply:
    """200 when an answer can be given, else 503 with what it waits for."""
    ready, detail = await call.service.ready()
    return Reply(Ready(ready=ready, detail=detail), 200 if ready else 503)
