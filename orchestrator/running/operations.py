"""Everything but answering: loading, listing, searching, dropping; sessions; what the daemon says of itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.answering.sessions import SessionStore, report
from orchestrator.codices.archive import ArchiveSearch, ArchiveUpkeep
from orchestrator.codices.codices import Codices
from orchestrator.codices.faults import refusal, translated
from orchestrator.codices.freshness import FreshnessGauge
from orchestrator.codices.loading import CodexLoader
from orchestrator.codices.report import bare_report, codex_report
from orchestrator.codices.state import CodexState
from orchestrator.codices.watching import CodexWatchers
from orchestrator.engine.client.client import EngineClient
from orchestrator.errors import NotFound
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import ChatModel
from orchestrator.prompt.situation import choose_codex
from orchestrator.service import LoadEvent, LoadRequest, Principal, Report


@dataclass(frozen=True)
class Operations:
    shelf: Codices
    search_archive: ArchiveSearch
    sessions: SessionStore
    machine: Machine
    client: EngineClient
    watching: CodexWatchers
    tending: ArchiveUpkeep
    gauge: FreshnessGauge
    embedded: Callable[[str], Mapping[str, Any] | None]
    voice: Callable[[], "asyncio.Future[ChatModel]"]

    # -- loading

    def load(self, request: LoadRequest) -> AsyncIterator[LoadEvent]:
        """Loads or updates a codex. Leaving the stream leaves the load running. Raises LoreError."""
        return self._loading.load(request)

    def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        """Loads a codex again from where it came. Raises NotFound."""
        return self._loading.reload(principal, name)

    @property
    def _loading(self) -> CodexLoader:
        return CodexLoader(self.shelf, self.machine, self.client, self.watching, self.tending, self.gauge, self.voice)

    async def cancel_load(self, principal: Principal, name: str) -> Report:
        """Ends a load, or the computing of the floor that one left in the background. Raises NotFound, Conflict."""
        del principal
        if not self.shelf.loading(name) and await self.shelf.halt(name):
            return {"cancelled": name, "what": "floor"}
        await self.shelf.loads.cancel(name)
        return {"cancelled": name, "what": "load"}

    # -- codices

    def codex_report(self, standing: CodexState) -> dict[str, Any]:
        per_token = self.client.info.kv_bytes_per_token if self.client.info else 0.0
        name = standing.name
        told = codex_report(standing, per_token, self.gauge.of(name), self.shelf.floors.figures(name))
        identity = self.shelf.identity(standing).model_dump()
        return {**told, "identity": identity, "embedding": self.embedded(standing.name)}

    async def codices(self, principal: Principal) -> list[Report]:
        del principal
        found: list[Report] = []
        with translated():
            codices = await asyncio.to_thread(self.shelf.library.codices)
        for codex in codices:
            standing = self.shelf.seen(codex.name)
            bare = bare_report(codex, self.gauge.of(codex.name, stands=codex.newest is not None))
            found.append(self.codex_report(standing) if standing else bare)
        return found

    async def codex(self, principal: Principal, name: str) -> Report:
        del principal
        with translated():
            codex = await asyncio.to_thread(self.shelf.library.codex, name)
        if codex.newest is None:
            raise refusal(codex, self.shelf.loads.far(name))
        await asyncio.shield(self.voice())
        seen = self.shelf.seen(name)  # one that waits for its new generation is told as it is
        return self.codex_report(seen or await self.shelf.standing(name))

    async def drop(self, principal: Principal, name: str) -> None:
        del principal
        self.watching.forget(name)
        await self.shelf.drop(name)
        self.tending.forget(name)

    async def search(
        self, principal: Principal, query: str, codex: str | None, n: int, graph: bool, cwd: str
    ) -> Report:
        """Hits, and what the search may not have seen. Raises NotFound for a codex that is not loaded."""
        del principal
        name = choose_codex(codex, cwd, await self.shelf.candidates(codex, cwd))
        if name is None:
            raise NotFound("the bare model has no archive", "name a codex with -c")
        with translated():
            branch = await self._branch(name)
            found = await self.search_archive.report(query, name, n, graph=graph)
        return {**found, "hits": [{**hit, "branch": branch} for hit in found["hits"]]}

    async def _branch(self, name: str) -> str | None:
        """Of all that is indexed of a codex: a checkout moves it without a chunk being written again."""
        standing = self.shelf.seen(name)
        if standing is not None:
            return standing.now().state.branch
        return (await asyncio.to_thread(self.shelf.library.generation, name)).state.branch

    # -- sessions

    async def sessions_of(self, principal: Principal) -> list[Report]:
        return [report(one) for one in await asyncio.to_thread(self.sessions.all_of, principal.uid)]

    async def session(self, principal: Principal, name: str) -> Report:
        return await asyncio.to_thread(self.sessions.export, principal.uid, name)

    async def rename_session(self, principal: Principal, name: str, new: str) -> None:
        await asyncio.to_thread(self.sessions.rename, principal.uid, name, new)

    async def drop_session(self, principal: Principal, name: str) -> None:
        await asyncio.to_thread(self.sessions.drop, principal.uid, name)
