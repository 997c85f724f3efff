"""What each route takes and gives, as shapes. For the reference, and for a test that holds the daemon's replies to it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from orchestrator.wire.completions import CompletionChunk, CompletionReply
from orchestrator.wire.lore import PlanReply
from orchestrator.wire.models import ChangedEvent, ModelCard, ModelCards, ModelChange, ModelReply, ModelRows
from orchestrator.wire.replies import (
    Alive,
    Cancelled,
    CodexReply,
    CodicesReply,
    Dropped,
    EmbeddingsReply,
    LoadedEvent,
    ProgressEvent,
    Ready,
    Renamed,
    SearchReply,
    SessionReply,
    SessionRows,
)
from orchestrator.wire.requests import ChatRequest, EmbeddingsBody, LoadBody, ModelBody, RenameBody, SearchBody
from orchestrator.wire.status import (
    CacheReply,
    EngineStateEvent,
    EvictedEvent,
    LevelEvent,
    NowEvent,
    PoolEvent,
    PrefillEvent,
    StatusReply,
)

Schema = type[BaseModel]


@dataclass(frozen=True)
class Contract:
    """`events` are those of a stream of server-sent events; `faults` what this route refuses beside what all do."""

    body: Schema | None = None
    reply: Schema | None = None
    events: tuple[Schema, ...] = ()
    faults: tuple[str, ...] = ()


FAULTS: Mapping[str, str] = {
    "invalid_request": "something in the request cannot be used; the message names it",
    "invalid_settings": "a setting cannot be used; the message names where it is from",
    "context_length_exceeded": "the prompt, or the coverage that was forced, does not fit; the message has the numbers",
    "unauthorized": "over TCP: no token, or an unknown one",
    "not_permitted": "the sigil of who asks does not permit this",
    "not_found": "nothing of that name; the hint names what there is",
    "model_not_found": "the same of a model id",
    "conflict": "it is under way already, or the name is taken",
    "codex_dropped": "its codex was dropped while the answer ran; asked again it is not found",
    "too_large": "the body is larger than serve.max_body",
    "full": "serve.queue questions wait already",
    "failed": "a fault of ours, a full disk, or a load that was cancelled; the daemon's log says more",
    "engine_failed": "the engine's process ended, or its model cannot be used; may be tried again",
    "not_ready": "model or floor is not there yet, and the request would not wait longer; or the daemon is stopping",
    "paused": "the GPU was given away",
}
EVERY = ("unauthorized", "not_permitted", "failed")  # any route
OF_BODIES = ("invalid_request", "too_large")  # any that takes one
ASKING = (
    "context_length_exceeded",
    "not_found",
    "model_not_found",
    "codex_dropped",
    "full",
    "not_ready",
    "engine_failed",
)
LOADING = ("not_found", "conflict", "context_length_exceeded", "not_ready", "engine_failed")

CONTRACTS: Mapping[tuple[str, str], Contract] = {
    ("POST", "/v1/chat/completions"): Contract(ChatRequest, CompletionReply, (CompletionChunk,), ASKING),
    ("POST", "/v1/plan"): Contract(ChatRequest, PlanReply, faults=ASKING),
    ("POST", "/v1/embeddings"): Contract(EmbeddingsBody, EmbeddingsReply, faults=("not_found", "engine_failed")),
    ("POST", "/v1/search"): Contract(SearchBody, SearchReply, faults=("not_found", "not_ready")),
    ("POST", "/v1/codices"): Contract(LoadBody, None, (ProgressEvent, LoadedEvent), LOADING),
    ("GET", "/v1/codices"): Contract(reply=CodicesReply),
    ("GET", "/v1/codices/{name}"): Contract(reply=CodexReply, faults=("not_found", "not_ready")),
    ("DELETE", "/v1/codices/{name}"): Contract(reply=Dropped, faults=("not_found", "conflict")),
    ("POST", "/v1/codices/{name}/reload"): Contract(None, None, (ProgressEvent, LoadedEvent), LOADING),
    ("POST", "/v1/codices/{name}/cancel"): Contract(reply=Cancelled, faults=("not_found", "conflict")),
    ("GET", "/v1/models"): Contract(reply=ModelCards),
    ("GET", "/v1/models/{name:path}"): Contract(reply=ModelCard, faults=("model_not_found",)),
    ("GET", "/v1/models/local"): Contract(reply=ModelRows),
    ("GET", "/v1/models/local/{name:path}"): Contract(reply=ModelReply, faults=("not_found",)),
    ("PUT", "/v1/model"): Contract(ModelBody, ModelChange, (ProgressEvent, ChangedEvent), ("not_found", "conflict")),
    ("GET", "/v1/sessions"): Contract(reply=SessionRows),
    ("GET", "/v1/sessions/{name}"): Contract(reply=SessionReply, faults=("not_found",)),
    ("PATCH", "/v1/sessions/{name}"): Contract(RenameBody, Renamed, faults=("not_found", "conflict")),
    ("DELETE", "/v1/sessions/{name}"): Contract(reply=Dropped, faults=("not_found",)),
    ("GET", "/v1/status"): Contract(reply=StatusReply),
    ("GET", "/v1/stats/cache"): Contract(reply=CacheReply),
    ("GET", "/v1/events"): Contract(
        None, None, (NowEvent, LevelEvent, EngineStateEvent, PoolEvent, EvictedEvent, PrefillEvent)
    ),
    ("GET", "/metrics"): Contract(),
    ("GET", "/healthz"): Contract(reply=Alive),
    ("GET", "/readyz"): Contract(reply=Ready),
}
