"""Plain text in front of the model, without chat, codex and memory: what its tokens are, and what it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.messages import ids_to_bytes
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import ChatModel, engine_failed
from orchestrator.wire.texts import GenerationDefaults, PropsReply


@dataclass(frozen=True)
class PlainTexts:
    """`model_now` raises NotReady before the model is loaded; `setting` and `sequences` are the settings' own."""

    client: EngineClient
    machine: Machine
    model_now: Callable[[], ChatModel]
    setting: str
    sequences: int
    version: str

    @property
    def window(self) -> int | None:
        """Tokens of prompt and answer together; None before that is known."""
        return self.machine.grant.window or None

    def props(self) -> PropsReply:
        """Raises NotReady."""
        info = self.model_now().info
        return PropsReply(
            default_generation_settings=GenerationDefaults(n_ctx=self.machine.grant.window),
            total_slots=self.sequences - 1,
            model_path=self.setting,
            model_alias=info.name,
            chat_template=info.chat_template,
            bos_token=info.bos,
            eos_token=info.eos,
            build_info=f"lorekeep {self.version}",
        )

    async def tokens_of(self, text: str) -> Sequence[int]:
        """Ids of a text; none is a control token's. Raises NotReady, EngineFailed."""
        self.model_now()
        try:
            (ids,) = await self.client.encode([text])
        except EngineUnavailable as fault:
            raise engine_failed(fault) from fault
        return ids

    async def text_of(self, ids: Sequence[int]) -> str:
        """The text that ids stand for; an id that no token has, and a control token, stand for none. Raises NotReady,
        EngineFailed."""
        self.model_now()
        try:
            return await self.client.decode(ids_to_bytes(ids))
        except EngineUnavailable as fault:
            raise engine_failed(fault) from fault
