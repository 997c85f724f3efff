"""Faults as HTTP: the one table from codes to statuses, and the one shape of an error."""

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orchestrator.errors import LoreError
from orchestrator.wire.shapes import ReplyShape


class TooLarge(LoreError):
    """A body above the configured limit."""

    code = "too_large"


class Unauthorized(LoreError):
    """No token, or one that nobody was given. Only over TCP: a Unix socket's peer is known."""

    code = "unauthorized"


STATUS = {
    "invalid_request": 400,
    "invalid_settings": 400,
    "context_length_exceeded": 400,
    "unauthorized": 401,
    "not_permitted": 403,
    "not_found": 404,
    "model_not_found": 404,
    "conflict": 409,
    "codex_dropped": 409,
    "too_large": 413,
    "full": 429,
    "failed": 500,
    "engine_failed": 500,
    "not_ready": 503,
    "paused": 503,
}
TYPE = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    503: "unavailable_error",
}
RETRY_AFTER_S = {"full": 2, "engine_failed": 2, "not_ready": 5, "paused": 30}


def status_of(code: str) -> int:
    return STATUS.get(code, 500)


def body_of(code: str, message: str, hint: str = "", status: int | None = None) -> dict[str, Any]:
    kind = TYPE.get(status or status_of(code), "server_error")
    return {"error": {"type": kind, "code": code, "message": message, "hint": hint}}


def problem(error: LoreError, code: str | None = None) -> Response:
    name = code or error.code
    return Reply(body_of(name, error.message, error.hint), status_of(name), headers=retry_headers(name, error))


def retry_headers(code: str, error: LoreError) -> Mapping[str, str]:
    seconds = error.retry_after if error.retry_after is not None else RETRY_AFTER_S.get(code)
    return {} if seconds is None else {"Retry-After": str(math.ceil(seconds))}


async def on_lore_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, LoreError)
    return problem(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: an unknown route, a wrong method."""
    assert isinstance(error, HTTPException)
    code = {404: "unknown_route", 405: "wrong_method"}.get(error.status_code, "invalid_request")
    hint = hint_of(error.status_code, (error.headers or {}).get("Allow", ""))
    body = body_of(code, f"{request.method} {request.url.path}: {error.detail}", hint, error.status_code)
    return Reply(body, error.status_code, headers=error.headers)


def hint_of(status: int, allowed: str) -> str:
    if status == 405 and allowed:
        return f"this route takes {allowed}"
    return "`lore --help` has every command; GET /v1/status, /v1/codices and /v1/models are routes to begin with"


async def on_our_fault(_: Request, __: Exception) -> Response:
    """What nobody foresaw. The server logs the traceback, and closes the connection; the client is told only that."""
    headers = {"Connection": "close"}
    return Reply(body_of("failed", "the daemon made an error", "its log has the details"), 500, headers=headers)


def packed(value: Any) -> bytes:
    if isinstance(value, ReplyShape):
        value = value.model_dump(mode="json")
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


class Reply(JSONResponse):
    def render(self, content: Any) -> bytes:
        return packed(content)
