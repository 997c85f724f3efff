"""Identities as they meet codices in one model: which version answers, and the floor that it makes.

What stood in an earlier run is believed once its floor was found in the tiers: where it was deleted, the old version would
be computed like the new one, and nothing is won by it.
"""

import logging

from formatters.context import CodexView, IdentityView
from orchestrator.codices.building import floor_of
from orchestrator.codices.floors import Floors
from orchestrator.codices.serving import Served, Serving
from orchestrator.codices.state import FloorKey
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import LoreError, NotReady
from orchestrator.identities import DEFAULT, Identities
from orchestrator.model.chat_model import ChatModel
from orchestrator.prompt.assembly import Floor
from orchestrator.wire.lore import IdentityState

log = logging.getLogger("lorekeep.codices")


class Personas:
    """Raises NotReady before the model is known, but for `coming` and `forget`."""

    def __init__(self, identities: Identities, ledger: CodexStateStore, floors: Floors) -> None:
        self._identities = identities
        self._ledger = ledger
        self._floors = floors
        self._speaking: tuple[ChatModel, Serving] | None = None

    def speak(self, voice: ChatModel) -> None:
        """The model is known from now on."""
        self._speaking = voice, Serving(self._identities, self._ledger, voice.info.fingerprint, voice.tools)

    # -- what answers

    async def served(self, codex: CodexView | None, name: str | None = None) -> Served:
        """The version that answers now. Raises NotFound, InvalidRequest."""
        served = self._serving.now(codex, name)
        if codex is None or not served.doubted:
            return served
        if await self._is_kept(codex, served.view):
            self._serving.confirmed(codex.name, served.view.name)
        else:
            log.info("codex %s: the floor of identity %s was not kept", codex.name, served.view.name)
            self._serving.lost(codex.name, served.view.name)
        return self._serving.now(codex, name)

    def newest(self, codex: str) -> IdentityView:
        """The default identity as a new floor is made of it. Raises InvalidRequest."""
        return self._serving.newest(codex)

    async def tokens(self, codex: str) -> int:
        """Of that."""
        (size,) = await self._voice.tokens.count([self.newest(codex).text])
        return size

    def coming(self, codex: CodexView) -> IdentityView | None:
        """A version that waits for its floor."""
        return self._serving.coming(codex) if self._speaking else None

    def told(self, codex: CodexView) -> IdentityState:
        """What is told of the default identity of a codex."""
        try:
            return self._serving.now(codex).state()
        except LoreError as fault:
            return IdentityState(name=DEFAULT, version="", fault=fault.message)

    # -- floors

    async def floor(self, codex: CodexView) -> tuple[Floor, FloorKey]:
        """That of a codex under the version of the default identity that answers now."""
        identity = (await self.served(codex)).view
        return await self.under(codex, identity), FloorKey.of(codex, identity)

    async def under(self, codex: CodexView, identity: IdentityView) -> Floor:
        return await floor_of(codex, identity, self._voice)

    def stood(self, place: FloorKey) -> None:
        """A floor that was grown beside another stands: its version answers from now on."""
        self._serving.stood(place)

    def computed(self, codex: CodexView | None, place: FloorKey) -> None:
        """A floor was computed or asked on: its version is kept as that which stood, where it is the one that answers."""
        try:
            served = self._serving.now(codex, place.identity.name)
        except LoreError:
            return  # its file is gone meanwhile
        if place == FloorKey.of(codex, served.view):
            self._serving.stood(place)

    def forget(self, codex: str) -> None:
        """It was dropped."""
        if self._speaking is not None:
            self._serving.forget(codex)

    # -- inside

    @property
    def _voice(self) -> ChatModel:
        return self._spoken()[0]

    @property
    def _serving(self) -> Serving:
        return self._spoken()[1]

    def _spoken(self) -> tuple[ChatModel, Serving]:
        if self._speaking is None:
            raise NotReady("the model is loading", "ask again when it is ready", retry_after=2.0)
        return self._speaking

    async def _is_kept(self, codex: CodexView, identity: IdentityView) -> bool:
        try:
            return await self._floors.is_kept(await self.under(codex, identity), FloorKey.of(codex, identity))
        except EngineUnavailable:
            return True  # whoever asks waits for the engine, and finds out
