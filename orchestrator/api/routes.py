"""Every route, with what answers it."""

from starlette.routing import Route

from orchestrator.api import chat, codices, embeddings, operations

routes = [
    Route("/v1/chat/completions", chat.completions, methods=["POST"]),
    Route("/v1/embeddings", embeddings.embeddings, methods=["POST"]),
    Route("/v1/models", chat.models, methods=["GET"]),
    Route("/v1/models/local", operations.local_models, methods=["GET"]),
    Route("/v1/models/local/{name:path}", operations.local_model, methods=["GET"]),
    Route("/v1/model", operations.use_model, methods=["PUT"]),
    Route("/v1/models/{name:path}", chat.model, methods=["GET"]),
    Route("/v1/plan", chat.plan, methods=["POST"]),
    Route("/v1/codices", codices.load, methods=["POST"]),
    Route("/v1/codices", codices.listed, methods=["GET"]),
    Route("/v1/codices/{name}", codices.shown, methods=["GET"]),
    Route("/v1/codices/{name}", codices.drop, methods=["DELETE"]),
    Route("/v1/codices/{name}/reload", codices.reload, methods=["POST"]),
    Route("/v1/codices/{name}/cancel", codices.cancel, methods=["POST"]),
    Route("/v1/search", codices.search, methods=["POST"]),
    Route("/v1/sessions", operations.sessions, methods=["GET"]),
    Route("/v1/sessions/{name}", operations.session, methods=["GET"]),
    Route("/v1/sessions/{name}", operations.rename_session, methods=["PATCH"]),
    Route("/v1/sessions/{name}", operations.drop_session, methods=["DELETE"]),
    Route("/v1/status", operations.status, methods=["GET"]),
    Route("/v1/stats/cache", operations.cache, methods=["GET"]),
    Route("/v1/events", operations.events, methods=["GET"]),
    Route("/metrics", operations.prometheus, methods=["GET"]),
    Route("/healthz", operations.healthz, methods=["GET"]),
    Route("/readyz", operations.readyz, methods=["GET"]),
]
