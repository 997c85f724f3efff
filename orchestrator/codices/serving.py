"""Which version of an identity a codex is asked under: the newest whose floor stands.

    a file, the shipped text or the tools change ─▶ the old version answers ─▶ the new floor is computed when nobody asks
                                                                             ─▶ the new version answers

What stood is kept over restarts, text and tools, so that the old floor can be taken up again. Knows no engine: it is told
what stands.
"""

import logging
from dataclasses import dataclass

from codex.errors import CodexError
from formatters.context import CodexView, IdentityView, ToolView
from orchestrator.codices.state import FloorKey
from orchestrator.codices.state_store import CodexStateStore, ResidentIdentity
from orchestrator.errors import InvalidRequest, LoreError
from orchestrator.identities import DEFAULT, Identities
from orchestrator.wire.lore import IdentityState

log = logging.getLogger("lorekeep.codices")


@dataclass(frozen=True)
class Served:
    """`view` answers now. `coming`: the newest version, while its floor does not stand; `fault`: why the newest cannot be
    read. `doubted`: it stood in an earlier run, and nobody has looked whether that was kept."""

    view: IdentityView
    coming: IdentityView | None = None
    fault: str = ""
    doubted: bool = False

    @property
    def notice(self) -> str:
        """What whoever reads an answer should know of it."""
        if self.fault:
            return f"{self.fault}; version {self.view.version} of it, which could be read last, answers"
        if self.coming is not None:
            return (
                f"identity {self.view.name} has changed: version {self.view.version} answers until the prefix of "
                f"{self.coming.version} is computed"
            )
        return ""

    def state(self) -> IdentityState:
        coming = self.coming.version if self.coming else None
        return IdentityState(name=self.view.name, version=self.view.version, preparing=coming, fault=self.fault)


class Serving:
    """`model` names all that a floor depends on beside identity and codex; `tools` are those that the model is told of."""

    def __init__(
        self, identities: Identities, ledger: CodexStateStore, model: str, tools: tuple[ToolView, ...]
    ) -> None:
        self._identities = identities
        self._ledger = ledger
        self._model = model
        self._tools = tools
        self._stood: dict[
            tuple[str, str], ResidentIdentity | None
        ] = {}  # by codex and identity; the bare identity's codex is ''
        self._sure: set[tuple[str, str]] = set()  # stood in this run

    # -- what answers

    def now(self, codex: CodexView | None, name: str | None = None) -> Served:
        """Table, first match wins:

        1  the newest version cannot be read         what stood last, on whatever it stood; raises InvalidRequest without
        2  the bare identity, or nothing stood       the newest: there is nothing to wait for
        3  the newest itself stood last              the newest
        4  it stood on another generation or model   the newest: a floor must be computed in any case
        5  otherwise                                 what stood last, and the newest is coming

        Raises NotFound.
        """
        wanted = name or DEFAULT
        key = codex.name if codex else "", wanted
        stood = self._last(*key)
        try:
            newest = self._identities.get(wanted, self._tools)
        except InvalidRequest as fault:
            if stood is None:
                raise
            return Served(stood.view, fault=fault.message)
        if codex is None or stood is None or stood.view.version == newest.version or stood.base != self._base(codex):
            return Served(newest)
        return Served(stood.view, newest, doubted=key not in self._sure)

    def newest(self, codex: str) -> IdentityView:
        """The default identity, whatever stands; where it cannot be read, what stood last. Raises InvalidRequest."""
        try:
            return self._identities.get(DEFAULT, self._tools)
        except InvalidRequest:
            stood = self._last(codex, DEFAULT)
            if stood is None:
                raise
            return stood.view

    def coming(self, codex: CodexView) -> IdentityView | None:
        """A version that waits for its floor: of the default identity before those that were asked by name."""
        named = [identity for of_codex, identity in self._stood if of_codex == codex.name and identity != DEFAULT]
        for name in (DEFAULT, *named):
            try:
                served = self.now(codex, name)
            except LoreError:
                continue  # its file is gone, or cannot be read: whoever asks for it is told
            if served.coming is not None:
                return served.coming
        return None

    # -- what stands

    def stood(self, place: FloorKey) -> None:
        """A floor stands here: from now on this version answers, until the next one stands."""
        key = place.codex, place.identity.name
        stood = ResidentIdentity(self._base_of(place.generation, place.tier), place.identity)
        self._sure.add(key)
        if self._last(*key) != stood:
            self._stood[key] = stood
            if place.codex:
                self._ledger.stood(place.codex, stood)

    def lost(self, codex: str, name: str) -> None:
        """Its checkpoints are gone: nothing is won by the old version."""
        self._stood[codex, name] = None

    def confirmed(self, codex: str, name: str) -> None:
        """What stood in an earlier run stands again."""
        self._sure.add((codex, name))

    def forget(self, codex: str) -> None:
        for key in [key for key in self._stood if key[0] == codex]:
            del self._stood[key]
            self._sure.discard(key)

    # -- inside

    def _last(self, codex: str, name: str) -> ResidentIdentity | None:
        key = codex, name
        if key not in self._stood:
            self._stood[key] = self._kept(*key) if codex else None
        return self._stood[key]

    def _kept(self, codex: str, name: str) -> ResidentIdentity | None:
        try:
            return self._ledger.last_stood(codex, name)
        except CodexError as fault:
            log.warning("which identity the floor of %s was made of cannot be read: %s", codex, fault)
            return None

    def _base(self, codex: CodexView) -> str:
        return self._base_of(codex.generation, codex.tier)

    def _base_of(self, generation: int, tier: str) -> str:
        return f"{generation} {tier} {self._model}"
