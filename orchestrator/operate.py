"""Everything but answering: loading, listing, searching, dropping; sessions; what the daemon says of itself."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from codex.ignore import Globs
from codex.progress import Progress
from codex.sources import LoadRequest as Wanted
from orchestrator.context.codex_choice import choose_codex
from orchestrator.context.tier import TierSizes, decide_tier
from orchestrator.engine.client import EngineClient
from orchestrator.errors import Conflict, NotFound, NotPermitted
from orchestrator.machine import Machine
from orchestrator.model_file import ModelFile
from orchestrator.searching import ArchiveSearch
from orchestrator.service import LoadEvent, LoadRequest, Principal, Report
from orchestrator.sessions.store import SessionStore, report
from orchestrator.shelf.faults import translated
from orchestrator.shelf.loads import Emit, RunningLoad
from orchestrator.shelf.shelf import Shelf
from orchestrator.shelf.standing import Standing
from orchestrator.shelf.watching import Watching
from orchestrator.voice import Voice

BYTES_PER_TOKEN = 4  # before anything is counted


@dataclass(frozen=True)
class Operations:
    shelf: Shelf
    search_archive: ArchiveSearch
    sessions: SessionStore
    machine: Machine
    client: EngineClient
    model: ModelFile
    watching: Watching
    voice: Callable[[], "asyncio.Future[Voice]"]
    version: str

    # -- loading

    async def load(self, request: LoadRequest) -> AsyncIterator[LoadEvent]:
        """Loads or updates a codex. Leaving the stream leaves the load running. Raises LoreError."""
        wanted = Wanted(
            sources=(readable(request.principal, request.path),),
            name=request.name,
            globs=Globs(include=request.include, exclude=request.exclude),
        )
        if request.dry_run:
            yield await self._survey(wanted)
            return
        key = request.name or os.path.basename(request.path.rstrip("/")) or "root"  # noqa: PTH119 - a name, not a file
        if self.shelf.loads.find(key) is not None:
            raise Conflict(
                f"a load of {key!r} is running", f"watch it with `lore status`, or stop it: lore load --cancel {key}"
            )
        load = self.shelf.loads.begin(key, lambda load, emit: self._load(wanted, request, load, emit))
        async for event in load.watch():
            yield event

    async def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        """Loads a codex again from where it came. Raises NotFound."""
        with translated():
            wanted = await asyncio.to_thread(self.shelf.library.request, name)
        request = LoadRequest(principal, wanted.sources[0], name)
        if self.shelf.loads.find(name) is not None:
            raise Conflict(f"a load of {name!r} is running", f"stop it with: lore load --cancel {name}")
        load = self.shelf.loads.begin(name, lambda load, emit: self._load(wanted, request, load, emit))
        async for event in load.watch():
            yield event

    async def _load(self, wanted: Wanted, request: LoadRequest, load: RunningLoad, emit: Emit) -> None:
        loop = asyncio.get_running_loop()

        def told(progress: Progress) -> None:
            loop.call_soon_threadsafe(emit, progress_event(progress))

        with translated():
            loaded = await asyncio.to_thread(self.shelf.library.load, wanted, told, load.cancelled.is_set)
        name = loaded.codex.name
        self.shelf.force(name, request.tier)
        if not self.voice().done():
            emit({"event": "progress", "phase": "model", "done": 0, "total": 1, "rate": 0.0, "eta_s": None})
        await asyncio.shield(self.voice())
        standing = await self.shelf.raise_codex(name, lambda progress: emit(progress_event(progress)))
        self.watching.follow(name, request.watch)
        if request.wait:
            await self.shelf.floors.stands(name, lambda done, total: emit(prefill_event(done, total)))
        emit({"event": "loaded", "codex": self.codex_report(standing)})

    async def _survey(self, wanted: Wanted) -> LoadEvent:
        with translated():
            found = await asyncio.to_thread(self.shelf.library.survey, wanted)
        sizes = TierSizes(found.bytes // BYTES_PER_TOKEN)
        decision = decide_tier(sizes, self.machine.room(0))
        codex = {
            "name": found.name,
            "root": wanted.sources[0],
            "generation": 0,
            "files": found.files,
            "skipped": found.skipped,
            "tokens": {"full": sizes.full, "skeleton": None, "map": None},
            "tier": decision.tier.value,
            "reason": f"estimated from {found.bytes:,} bytes: {decision.reason}",
            "hint": decision.hint,
            "kv_bytes": 0,
            "indexed_chunks": 0,
        }
        return {"event": "loaded", "codex": codex}

    async def cancel_load(self, principal: Principal, name: str) -> None:
        del principal
        self.shelf.loads.cancel(name)

    # -- codices

    def codex_report(self, standing: Standing) -> dict[str, Any]:
        per_token = self.client.info.kv_bytes_per_token if self.client.info else 0.0
        decision = standing.decision
        return {
            "name": standing.name,
            "root": standing.roots[0],
            "roots": list(standing.roots),
            "generation": standing.generation.number,
            "branch": standing.generation.state.branch,
            "revision": standing.generation.state.revision,
            "state": standing.generation.label(),
            "files": len(standing.generation.entries),
            "skipped": dict(standing.generation.skipped),
            "notices": list(standing.notices),
            "tokens": {
                "full": standing.sizes.full,
                "skeleton": standing.sizes.skeleton,
                "map": standing.sizes.map,
            },
            "tier": decision.tier.value,
            "tier_tokens": standing.tokens,
            "reason": decision.reason,
            "hint": decision.hint,
            "kv_bytes": round(standing.tokens * per_token),
            "disk_bytes": standing.generation.bytes,
            "indexed_chunks": standing.chunks,
            "amendments": len(standing.log),
            "fresh": self.watching.state(standing.name),
            "prefill": prefill_of(self.shelf.floors.progress(standing.name)),
        }

    async def codices(self, principal: Principal) -> list[Report]:
        del principal
        found: list[Report] = []
        for codex in await asyncio.to_thread(self.shelf.library.codices):
            standing = self.shelf.seen(codex.name)
            plain = {"name": codex.name, "root": codex.roots[0], "generation": codex.newest, "tier": None}
            found.append(self.codex_report(standing) if standing else plain)
        return found

    async def codex(self, principal: Principal, name: str) -> Report:
        del principal
        with translated():
            await asyncio.to_thread(self.shelf.library.codex, name)
        await asyncio.shield(self.voice())
        return self.codex_report(await self.shelf.standing(name))

    async def drop(self, principal: Principal, name: str) -> None:
        del principal
        self.watching.forget(name)
        await self.shelf.drop(name)

    async def search(
        self, principal: Principal, query: str, codex: str | None, n: int, graph: bool, cwd: str
    ) -> list[Report]:
        """Raises NotFound for a codex that is not loaded."""
        del principal, graph
        name = choose_codex(codex, cwd, await self.shelf.candidates())
        if name is None:
            raise NotFound("the bare model has no archive", "name a codex with -c")
        with translated():
            return list(await self.search_archive.report(query, name, n))

    # -- sessions

    async def sessions_of(self, principal: Principal) -> list[Report]:
        return [report(one) for one in await asyncio.to_thread(self.sessions.all_of, principal.uid)]

    async def session(self, principal: Principal, name: str) -> Report:
        return await asyncio.to_thread(self.sessions.export, principal.uid, name)

    async def rename_session(self, principal: Principal, name: str, new: str) -> None:
        await asyncio.to_thread(self.sessions.rename, principal.uid, name, new)

    async def drop_session(self, principal: Principal, name: str) -> None:
        await asyncio.to_thread(self.sessions.drop, principal.uid, name)


def readable(principal: Principal, path: str) -> str:
    """A daemon reads a path only with the peer's rights. Raises NotPermitted."""
    if principal.uid == os.geteuid():
        return path
    raise NotPermitted(
        f"uid {principal.uid} may not have the daemon of uid {os.geteuid()} read {path}", "load it as the daemon's user"
    )


def progress_event(progress: Progress) -> LoadEvent:
    return {
        "event": "progress",
        "phase": progress.phase,
        "done": progress.done,
        "total": progress.total,
        "rate": round(progress.rate, 1),
        "eta_s": None if progress.eta_s is None else round(progress.eta_s, 1),
    }


def prefill_event(done: int, total: int) -> LoadEvent:
    return {"event": "progress", "phase": "prefill", "done": done, "total": total, "rate": 0.0, "eta_s": None}


def prefill_of(progress: tuple[int, int] | None) -> Mapping[str, int] | None:
    return {"done": progress[0], "total": progress[1]} if progress else None
