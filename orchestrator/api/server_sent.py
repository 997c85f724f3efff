"""Server-sent events as bytes, and the streams that they come from."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from orchestrator.api.replies import packed

DONE = b"data: [DONE]\n\n"


def data(value: Any) -> bytes:
    return b"data: " + packed(value) + b"\n\n"


def comment(value: Any) -> bytes:
    """A line that clients of server-sent events ignore by their standard; our command line reads it."""
    return b": " + packed(value) + b"\n\n"


def closing(events: AsyncIterator[Any]) -> Any:
    """Streams of the port are async generators: what runs behind them ends when they are closed."""
    return aclosing(events)
