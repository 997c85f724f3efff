"""Every fault's code, in one table: what HTTP and the command line make of it. Standard library only."""

from collections.abc import Mapping
from typing import NamedTuple

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
OVER_BUDGET = 4
NOT_FOUND = 5
NOT_PERMITTED = 6
PAUSED = 7
NOT_READY = 8


class FaultCode(NamedTuple):
    """`status` of HTTP; `exit_status` of the command line; seconds until asking again may help."""

    status: int
    exit_status: int
    meaning: str
    retry_after_s: int | None = None


CODES: Mapping[str, FaultCode] = {
    "invalid_request": FaultCode(400, USAGE, "something in the request cannot be used; the message names it"),
    "invalid_settings": FaultCode(400, USAGE, "a setting cannot be used; the message names where it is from"),
    "context_length_exceeded": FaultCode(
        400, OVER_BUDGET, "the prompt, or the coverage that was forced, does not fit; the message has the numbers"
    ),
    "unauthorized": FaultCode(401, NOT_PERMITTED, "over TCP: no token, or an unknown one"),
    "not_permitted": FaultCode(403, NOT_PERMITTED, "the sigil of who asks does not permit this"),
    "files_wanted": FaultCode(
        403, NOT_PERMITTED, "the daemon opens no path for another user: the client reads the files and sends them"
    ),
    "not_found": FaultCode(404, NOT_FOUND, "nothing of that name; the hint names what there is"),
    "model_not_found": FaultCode(404, NOT_FOUND, "the same of a model id"),
    "previous_response_not_found": FaultCode(
        400, NOT_FOUND, "no response of that id goes on; the client sends the whole conversation"
    ),
    "unknown_route": FaultCode(404, FAILED, "no route has this path"),
    "wrong_method": FaultCode(405, FAILED, "a route has this path, and takes another method"),
    "conflict": FaultCode(409, FAILED, "it is under way already, or the name is taken"),
    "codex_dropped": FaultCode(
        409, NOT_FOUND, "its codex was dropped while the answer ran; asked again it is not found"
    ),
    "too_large": FaultCode(413, OVER_BUDGET, "the body is larger than serve.max_body"),
    "full": FaultCode(429, FAILED, "serve.queue questions wait already", 2),
    "failed": FaultCode(
        500, FAILED, "a fault of ours, a full disk, or a load that was cancelled; the daemon's log says more"
    ),
    "engine_failed": FaultCode(
        500, FAILED, "the engine's process ended, or its model cannot be used; may be tried again", 2
    ),
    "not_ready": FaultCode(
        503,
        NOT_READY,
        "model or floor is not there yet, and the request would not wait longer; or the daemon is stopping",
        5,
    ),
    "paused": FaultCode(503, PAUSED, "the model is paused, and the request would not wait", 30),
}


def fault_code(code: str) -> FaultCode:
    """Its row; one that a newer peer knows counts as `failed`."""
    return CODES.get(code, CODES["failed"])
