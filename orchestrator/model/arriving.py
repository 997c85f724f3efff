"""The wait for a model that is loading: how far it is, and why nobody is answered yet."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from orchestrator.engine.client.client import EngineClient

WHOLE = 100  # percent
LOOK_SECONDS = 0.5  # as often as the engine tells


def why_waiting(client: EngineClient) -> str:
    """In words; also for the moment between a loaded model and its voice."""
    return client.reason or "the model is loading"


async def arriving(
    voice: "asyncio.Future[Any]", client: EngineClient, until: float | None = None
) -> AsyncIterator[int]:
    """How many percent of it are loaded, at once and whenever they or the reason change, until its voice is there, or it
    is known that there is none; no longer than `until`, a moment of the event loop's clock."""
    clock, told = asyncio.get_running_loop().time, (-1, "")
    while not voice.done() and (until is None or clock() < until):
        if (now := (int(WHOLE * client.loaded), client.reason)) != told:
            told = now
            yield now[0]
        await asyncio.wait([voice], timeout=LOOK_SECONDS if until is None else min(LOOK_SECONDS, until - clock()))
