"""How a fault's code reads at the command line's edge. Standard library only; the daemon's edge has its own table."""

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
OVER_BUDGET = 4
NOT_FOUND = 5
NOT_PERMITTED = 6
PAUSED = 7
NOT_READY = 8
INTERRUPTED = 130

EXIT_BY_CODE = {
    "invalid_request": USAGE,
    "invalid_settings": USAGE,
    "conflict": FAILED,
    "context_length_exceeded": OVER_BUDGET,
    "too_large": OVER_BUDGET,
    "not_found": NOT_FOUND,
    "codex_dropped": NOT_FOUND,
    "model_not_found": NOT_FOUND,
    "not_permitted": NOT_PERMITTED,
    "unauthorized": NOT_PERMITTED,
    "paused": PAUSED,
    "not_ready": NOT_READY,
}


def exit_status(code: str) -> int:
    return EXIT_BY_CODE.get(code, FAILED)
