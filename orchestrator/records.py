"""What is kept of each user: conversations, memories, traces; and its deletion. No method gives another user's."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.answering.report import relevance_stats
from orchestrator.answering.sessions import SessionStore
from orchestrator.answering.traces import TraceKeeper
from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.karma.episodes import ANY_SESSION, source_of
from orchestrator.karma.learning import VotedAnswer
from orchestrator.karma.memories import Memories
from orchestrator.prompt.situation import around, choose_codex
from orchestrator.relevance.gate import GateRules
from orchestrator.reports.kept import drop_checkpoints, size_of_checkpoints
from orchestrator.service import Principal
from orchestrator.wire.answers import BARE
from orchestrator.wire.memories import (
    FoundMemories,
    MemoriesBody,
    MemoriesImported,
    MemoryBody,
    MemoryChange,
    MemorySearchBody,
    MemoryStats,
    MemoryView,
)
from orchestrator.wire.names import in_full, owned, owner_of
from orchestrator.wire.replies import DataName, KeptData, KeptReply, SessionExport, SessionHit, SessionRow
from orchestrator.wire.traces import FeedbackBody, FeedbackReply, RelevanceStats, TraceDiff, TraceReport, TraceRow

KEPT: Mapping[DataName, str] = {
    "traces": "what the model saw in your turns",
    "sessions": "your conversations, and the episodes made of them",
    "cache": "checkpoints of computed prompts, of all users",
}


@dataclass(frozen=True)
class UserRecords:
    """Every method may raise LoreError. `rules` of relevance: None where they cannot be used. `checkpoints`: their folder,
    which holds those of all users."""

    conversations: SessionStore
    learned: Memories
    traced: TraceKeeper
    codices: CodexLifecycle
    rules: GateRules | None
    checkpoints: Path

    # -- sessions

    async def sessions(self, principal: Principal) -> list[SessionRow]:
        return [SessionRow.of(one) for one in await asyncio.to_thread(self.conversations.all_of, principal.uid)]

    async def session(self, principal: Principal, name: str) -> SessionExport:
        return await asyncio.to_thread(self.conversations.export, principal.uid, name)

    async def search_sessions(self, principal: Principal, query: str, n: int) -> list[SessionHit]:
        """Messages of the asking user's conversations."""
        return await asyncio.to_thread(self.conversations.find, principal.uid, query, n)

    async def rename_session(self, principal: Principal, name: str, new: str) -> None:
        await asyncio.to_thread(self.conversations.rename, principal.uid, name, new)

    async def drop_session(self, principal: Principal, name: str) -> None:
        """Its episodes go with it; what was stated in it stays."""

        def dropped() -> None:
            session = self.conversations.get(principal.uid, name)
            self.conversations.drop(principal.uid, name)
            self.learned.store.forget_source(principal.uid, source_of(session.id))

        await asyncio.to_thread(dropped)

    # -- memories

    async def memories(
        self, principal: Principal, kind: str | None = None, codex: str | None = None, state: str | None = None
    ) -> tuple[MemoryView, ...]:
        whole = codex if codex in (None, BARE) else await self._codex_noted(principal, codex or "")
        return await asyncio.to_thread(self.learned.all_of, principal.uid, kind, whole, state)

    async def review_memories(self, principal: Principal) -> tuple[MemoryView, ...]:
        """What a person should look at: proposals, and what may be outdated."""
        return await asyncio.to_thread(self.learned.review, principal.uid)

    async def memory(self, principal: Principal, id: str) -> MemoryView:  # noqa: A002 - the record's own word
        return await asyncio.to_thread(self.learned.get, principal.uid, id)

    async def add_memory(self, principal: Principal, body: MemoryBody) -> MemoryView:
        """As it stands then: the same again confirms one, another value supersedes one."""
        named = None if body.codex == BARE else body.codex
        codex = named if body.imported else await self._codex_meant(principal, body.codex, body.cwd)
        return await asyncio.to_thread(self.learned.add, principal.uid, principal.sigil, codex, body)

    async def import_memories(self, principal: Principal, body: MemoriesBody) -> MemoriesImported:
        """All or nothing; what is here already stays as it is."""
        return await asyncio.to_thread(self.learned.add_all, principal.uid, principal.sigil, body.memories)

    async def change_memory(self, principal: Principal, id: str, body: MemoryChange) -> MemoryView:  # noqa: A002
        return await asyncio.to_thread(self.learned.change, principal.uid, id, body)

    async def forget_memory(self, principal: Principal, id: str) -> str:  # noqa: A002
        """Deletes it for good. Gives its whole id."""
        return await asyncio.to_thread(self.learned.forget, principal.uid, id)

    async def forget_codex(self, principal: Principal, name: str) -> int:
        """Deletes the asking user's memories of a codex, loaded or not, for good. Gives their number."""
        whole = await self._codex_noted(principal, name)
        return await asyncio.to_thread(self.learned.forget_codex, principal.uid, whole)

    async def search_memories(self, principal: Principal, body: MemorySearchBody) -> FoundMemories:
        codex = await self._codex_meant(principal, body.codex, body.cwd)
        search = self.learned.search
        return await asyncio.to_thread(search, principal.uid, codex, body.query, body.kind, body.n)

    async def memory_stats(self, principal: Principal) -> MemoryStats:
        """How well the asking user's memories work."""
        return await asyncio.to_thread(self.learned.figures, principal.uid)

    # -- traces

    async def traces(self, principal: Principal, most: int, before: str | None = None) -> list[TraceRow]:
        """The asking user's, the newest first; those older than the trace `before`. No method gives another user's. Raises
        NotFound for an unknown `before`."""
        return await self.traced.run(lambda store: store.all_of(principal.uid, most, before))

    async def trace(self, principal: Principal, name: str, *, prompt: bool = False) -> TraceReport:
        return await self.traced.run(lambda store: store.get(principal.uid, name, prompt=prompt))

    async def relevance_stats(self, principal: Principal, *, suggest: bool) -> RelevanceStats:
        """Whether the rules of relevance pay, by the asking user's turns."""
        figures = await self.traced.run(lambda store: store.relevance_figures(principal.uid))
        return relevance_stats(figures, self.rules if suggest else None)

    async def trace_difference(self, principal: Principal, before: str, after: str) -> TraceDiff:
        return await self.traced.run(lambda store: store.difference(principal.uid, before, after))

    async def vote(self, principal: Principal, name: str, body: FeedbackBody) -> FeedbackReply:
        """Keeps it, and moves the trust of the memories that the answer was shown."""
        before, trace = await self.traced.run(lambda store: store.vote(principal.uid, name, body.vote, body.note))
        voted = VotedAnswer(
            uid=principal.uid,
            trace=trace.id,
            question=trace.question,
            answer=trace.answer,
            up=body.vote == "up",
            note=body.note,
            codex=trace.codex,
            memories=trace.memories,
            sigil=principal.sigil,
            moved=body.vote != before,
            may_write=principal.may("memory:write"),
        )
        proposed = await asyncio.to_thread(self.learned.voted, voted)
        return FeedbackReply(trace=trace, proposed=proposed)

    # -- what is kept, and its deletion

    async def kept_data(self, principal: Principal) -> KeptReply:
        """The asking user's traces and sessions, and with `admin` the cache of all."""
        names: tuple[DataName, ...] = ("traces", "sessions", *(("cache",) if principal.may("admin") else ()))
        return KeptReply(kept=tuple([await self._kept_data(principal.uid, name) for name in names]))

    async def purge(self, principal: Principal, name: DataName) -> KeptData:
        """Deletes it for good. Gives it as it was."""
        before = await self._kept_data(principal.uid, name)
        if name == "traces":
            await self.traced.run(lambda store: store.purge(principal.uid))
        elif name == "sessions":
            await asyncio.to_thread(self.conversations.purge, principal.uid)
            await asyncio.to_thread(self.learned.store.forget_source, principal.uid, ANY_SESSION)
        else:
            await asyncio.to_thread(drop_checkpoints, self.checkpoints)
        return before

    async def _kept_data(self, uid: int, name: DataName) -> KeptData:
        if name == "traces":
            number, size = await self.traced.run(lambda store: store.kept(uid))
        elif name == "sessions":
            number, size = await asyncio.to_thread(self.conversations.kept, uid)
        else:
            number, size = await asyncio.to_thread(size_of_checkpoints, self.checkpoints)
        return KeptData(name=name, what=KEPT[name], count=number, bytes=size)

    # -- which codex is meant

    async def _codex_meant(self, principal: Principal, named: str | None, cwd: str) -> str | None:
        """The codex of this name or around this folder; None where neither is said or nothing is loaded there. Raises
        NotFound for an unknown name."""
        candidates = await self.codices.candidates(principal, named, cwd)
        if named is None and not around(cwd, candidates):
            return None
        return choose_codex(named, cwd, candidates)[0]

    async def _codex_noted(self, principal: Principal, name: str) -> str:
        """The whole name of a codex, also of one that was dropped and whose memories are kept."""
        readable = [one.name for one in await self.codices.readable(principal)]
        own = name if principal.owns(name) or owner_of(name) is not None else owned(name, principal.uid)
        return in_full(name, readable) or own
