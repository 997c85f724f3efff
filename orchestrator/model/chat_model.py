"""The loaded model as prompts need it: its chat template, its tokens, its way of composing.

Made when the engine is first ready; a child that is started again has the same model, so it stays. Counting codices goes
through a store on disk, so that a restart tokenises nothing twice.
"""

import asyncio
from array import array
from collections.abc import Sequence

from codex.tokens import TokenStore
from formatters.context import ToolView
from formatters.conversation import Way
from formatters.probe import Placement, probe
from formatters.registry import Registry
from formatters.template import PLAIN_STOP, ChatTemplate, Literal
from orchestrator.answering.engine_port import EngineEncoder
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.model import ModelInfo
from orchestrator.prompt.assembly import Assembler
from orchestrator.prompt.composing import Composer
from orchestrator.prompt.tokens import TokenCache

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
    ) -> None:
        self.info = info
        self.tools = tools
        self.template = ChatTemplate(info.chat_template, info.bos, info.eos, info.add_bos)
        self.placement: Placement = probe(self.template)
        self.stop: tuple[str, ...] = (PLAIN_STOP,) if self.placement.way is Way.NONE else ()
        self.opens_thought = opens_thought(self.template, self.placement)
        self.tokens = TokenCache(EngineEncoder(client))
        self.composer = Composer(registry, self.template, self.placement, Assembler(self.tokens, info.fingerprint))
        self._store = store
        self._bridge = _Bridge(client, info.vocabulary, asyncio.get_running_loop())

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


def opens_thought(template: ChatTemplate, placement: Placement) -> bool:
    """Whether the template begins the answer inside a thought, as some thinking models' do."""
    last = template.layout(way=placement.way)[-1]
    return isinstance(last, Literal) and last.text.rstrip().endswith("<think>")


class _Bridge:
    """The engine's tokeniser for synchronous code in other threads."""

    def __init__(self, client: EngineClient, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._client = client
        self._loop = loop

    def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
        return asyncio.run_coroutine_threadsafe(self._client.encode(texts), self._loop).result()
