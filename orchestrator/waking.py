"""What everybody waits for while a daemon starts, and who follows the machine once it runs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.codices.serving_identities import FloorModel
from orchestrator.errors import LoreError, NotReady
from orchestrator.machine.yielding import Yielding
from orchestrator.model.chat_model import ChatModel
from orchestrator.model.meaning import Meaning


class AwaitedModel:
    """The chat model that everybody waits for: a future of the running event loop that is done when the model is first
    ready, or is given up."""

    def __init__(self) -> None:
        self._future: asyncio.Future[ChatModel] = asyncio.get_running_loop().create_future()

    def __call__(self) -> "asyncio.Future[ChatModel]":
        return self._future

    def succeed(self, chat_model: ChatModel) -> None:
        if not self._future.done():
            self._future.set_result(chat_model)

    def now(self) -> ChatModel:
        """Raises NotReady before it is loaded."""
        if not self._future.done() or self._future.exception() is not None:
            raise NotReady("the model is loading", "ask again when it is ready", retry_after=2.0)
        return self._future.result()

    def identifying(self) -> FloorModel:
        """The model's fingerprint, and the tools that identities name. Raises NotReady before it is loaded."""
        loaded = self.now()
        return FloorModel(loaded.info.fingerprint, loaded.tools, loaded.calling)

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text; waits for the model."""
        return await (await self()).tokens.count(texts)

    def fail(self, error: LoreError) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # seen here: whether anybody waits is not known


@dataclass
class WakeProgress:
    """How many codices of all have been built since the start. The start alone writes it, and ends it once, also where
    there is no model."""

    done: int = 0
    total: int = 0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def at(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def end(self) -> None:
        self._ended.set()
        self.at(self.done, self.total)

    async def follow(self, report: Callable[[int, int], None]) -> None:
        """Reports how far it is, now and whenever that changes, until its end."""
        while True:
            report(self.done, self.total)
            if self._ended.is_set():
                return
            await self._moved.wait()


@dataclass(frozen=True)
class PartsFollowing:
    """Codices, embedding model and engine as they follow the machine: implements `MachineFollower`."""

    lifecycle: CodexLifecycle
    meaning: Meaning
    yielding: Yielding

    async def changed(self) -> float | None:
        return await self.lifecycle.reconsider()

    def rest(self, why: str) -> None:
        self.meaning.rest(why)

    def save_power(self, why: str) -> None:
        """What nobody waits for is put off until there is no reason any more."""
        self.lifecycle.save_power(on=bool(why))
        self.meaning.pause(why)

    def scarce(self, why: str, *, calm: bool) -> None:
        self.yielding.memory_read(why, calm)
