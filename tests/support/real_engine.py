"""The engine's real child process on the real quoting model, and a small codebase of vault codes to ask it about."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from support.vaults import code, line

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.messages import AnswerDelta, Completion, Grant, InferenceJob, Sampling, ids_to_bytes
from orchestrator.engine.model import EngineSpec

GIB = 1 << 30


TEXT = "".join(f"{line(vault)}{code(vault)}\n" for vault in range(10, 40))


@asynccontextmanager
async def engine(model: Path, cache: Path | None = None, **settings: Any) -> AsyncIterator[EngineClient]:
    settings = {"threads": 1, "gpu_layers": 0, "batch": 128, **settings}
    if cache is not None:
        settings |= {"cache_folder": str(cache), "disk_budget": GIB}
    client = EngineClient(EngineSpec(model=str(model), **settings))
    client.start()
    client.grant(Grant(1, 16_384, 8192))
    try:
        yield client
    finally:
        await client.stop()


async def load(client: EngineClient) -> None:
    (ids,) = await client.encode([TEXT])
    client.put_floor("codex", ids_to_bytes(ids))


async def question(client: EngineClient, vault: int, *, stop: tuple[str, ...] = (), **sampling: Any) -> InferenceJob:
    (tail,) = await client.encode([line(vault)])
    return InferenceJob(0, "codex", ids_to_bytes(tail), 1, 20, Sampling(**sampling), stop)


async def ask(client: EngineClient, vault: int, **sampling: Any) -> tuple[str, Completion]:
    messages = [message async for message in client.run(await question(client, vault, **sampling))]
    assert isinstance(messages[-1], Completion)
    return said(messages), messages[-1]


async def long_answer(client: EngineClient) -> InferenceJob:
    """An answer of 300 tokens, one a step, from a floor in a pool of its own."""
    floor, tail = await client.encode([TEXT[:500], "\n" + "tick tock " * 6 + "tick"])
    client.put_floor("second", ids_to_bytes(floor))
    return InferenceJob(0, "second", ids_to_bytes(tail), 1, 300, Sampling(logprobs=0))


def said(messages: list[Any]) -> str:
    return "".join(message.text for message in messages if isinstance(message, AnswerDelta))


async def next_child(client: EngineClient) -> None:
    """Waits until the end of the present child was noticed and another one answers."""
    while client.restarts == 0:
        with suppress(EngineUnavailable):
            await client.encode(["x"])
    await client.ensure_ready()


async def collected(stream: AsyncIterator[Any]) -> list[Any]:
    return [message async for message in stream]
