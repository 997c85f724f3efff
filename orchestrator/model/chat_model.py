"""The loaded model as prompts need it: its chat template, its tokens, its way of composing.

Made when the engine is first ready; a child that is started again has the same model, so it stays. Counting codices goes
through a store on disk, so that a restart tokenises nothing twice.
"""

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from codex.catalog.tokens import TokenStore
from formatters.blocks import BrokenPlugin
from formatters.context import ToolView
from formatters.registry import Registry
from formatters.template import PLAIN_STOP, ChatTemplate, Literal, Placement, Way, probe
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.messages import Ids
from orchestrator.engine.model import ModelInfo
from orchestrator.errors import EngineFailed, Paused
from orchestrator.machine.yielding import Away
from orchestrator.prompt.composing import Assembler, Composer, TokenCache

PAGE = 256


class ChatModel:
    """`stop` are the strings that end an answer where the template has no token for it; `tools` what Identity tells of."""

    def __init__(
        self,
        client: EngineClient,
        info: ModelInfo,
        registry: Registry,
        store: TokenStore,
        tools: tuple[ToolView, ...] = (),
        on_failure: Callable[[BrokenPlugin], None] = lambda _: None,
    ) -> None:
        self.info = info
        self.tools = tools
        self.template = ChatTemplate(info.chat_template, info.bos, info.eos, info.add_bos)
        self.placement: Placement = probe(self.template)
        self.stop: tuple[str, ...] = (PLAIN_STOP,) if self.placement.way is Way.NONE else ()
        self.opens_thought = opens_thought(self.template, self.placement)
        self.tokens = TokenCache(EngineEncoder(client))
        assembler = Assembler(self.tokens, info.fingerprint)
        self.composer = Composer(registry, self.template, self.placement, assembler, on_failure)
        self._store = store
        self._bridge = _Bridge(client, info.vocabulary, asyncio.get_running_loop())

    @property
    def calling(self) -> str:
        """A call of a tool as Identity shows it; '' where it tells of no tools."""
        return self.placement.calls.example if self.tools else ""

    async def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of a codex's texts, remembered on disk and at hand when the floor is assembled."""
        counts: list[int] = []
        for first in range(0, len(texts), PAGE):
            page = texts[first : first + PAGE]
            for text, ids in zip(page, await asyncio.to_thread(self._store.ids, self._bridge, page), strict=True):
                self.tokens.learn(text, ids.tobytes())
                counts.append(len(ids))
        return counts

    def count_in_thread(self, texts: Sequence[str]) -> list[int]:
        """The same for code that runs in a worker thread."""
        return self._store.counts(self._bridge, texts)


class EngineEncoder:
    """`composing.Encoder` over the engine."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine

    async def encode(self, texts: Sequence[str], control: bool) -> list[Ids]:
        with engine_faults():
            return [ids.tobytes() for ids in await self._engine.encode(texts, control=control)]


@contextmanager
def engine_faults() -> Iterator[None]:
    """Raises EngineFailed where the engine ends."""
    try:
        yield
    except EngineUnavailable as fault:
        if fault.broken:
            raise EngineFailed(str(fault), "see what is wrong with: lore doctor") from fault
        raise EngineFailed(str(fault) or "the engine cannot answer now", "ask again", retry_after=1.0) from fault


async def engine_ready(ready: "asyncio.Future[ChatModel]", client: EngineClient) -> ChatModel:
    """The chat model, once there is a process that has it. Raises EngineFailed, and the fault of `ready`."""
    chat_model = await asyncio.shield(ready)
    with engine_faults():
        await client.ensure_ready()
    return chat_model


def paused(away: Away) -> Paused:
    """For who would not wait until the end of a pause."""
    left = None if away.until is None else max(1.0, away.until - time.time())
    return Paused(away.words(), "ask again when the pause has ended", retry_after=left)


def opens_thought(template: ChatTemplate, placement: Placement) -> bool:
    """Whether the template begins the answer inside a thought, as some thinking models' do."""
    last = template.layout(way=placement.way)[-1]
    return isinstance(last, Literal) and last.text.rstrip().endswith("<think>")


class _Bridge:
    """The engine's tokenizer for synchronous code in worker threads."""

    def __init__(self, client: EngineClient, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._client = client
        self._loop = loop

    def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
        return asyncio.run_coroutine_threadsafe(self._client.encode(texts), self._loop).result()


WHOLE = 100  # percent
LOOK_SECONDS = 0.5  # as often as the engine tells


def why_waiting(client: EngineClient) -> str:
    """In words; also between the moment when the model is loaded and the one when its `ChatModel` is made."""
    return client.reason or "the model is loading"


async def arriving(
    ready: "asyncio.Future[Any]", client: EngineClient, until: float | None = None
) -> AsyncIterator[int]:
    """Yields how many percent of the model are loaded: at once and whenever they or the reason change.

    Ends when `ready` is done, with or without a model, and at `until`, a moment of the event loop's clock."""
    clock, yielded = asyncio.get_running_loop().time, (-1, "")
    while not ready.done() and (until is None or clock() < until):
        if (now := (int(WHOLE * client.loaded), client.reason)) != yielded:
            yielded = now
            yield now[0]
        await asyncio.wait([ready], timeout=LOOK_SECONDS if until is None else min(LOOK_SECONDS, until - clock()))
