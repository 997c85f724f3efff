"""Tools by which a model reads memories and past conversations, and proposes memories. Their results go to State.

    recall_context   memories about a query, one line each
    expand_detail    one memory in full
    session_search   what was said in this user's conversations
    fact_store       proposes a fact
    fact_feedback    proposes that a memory is wrong

What a model writes is a proposal: no model is shown it until a person confirms it. Everything is of the user who asks.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic_ai import RunContext

from formatters.context import TurnContext
from orchestrator.answering.sessions import SessionStore
from orchestrator.karma.meaning import WORDS_ALONE, Nearness
from orchestrator.karma.records import HIDDEN, Kind, MemoryRecord, MemoryState, NewMemory
from orchestrator.karma.search import FLOOR, MemorySearch
from orchestrator.karma.sizes import in_line
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore

MOST_FOUND = 8
QUOTED = 100  # characters of a memory that a doubt names
MODEL = "model"  # the source of what a model proposed
PRIVATE = "refused: this conversation is private, so nothing of it is kept"
AnyKind = Literal["decision", "fact", "procedure", "episode", "censor", ""]
Context = RunContext[TurnContext]


@dataclass(frozen=True)
class MemoryTools:
    """Every method may raise LoreError."""

    store: MemoryStore
    sessions: SessionStore
    staleness: Staleness
    meaning: Nearness = WORDS_ALONE

    @property
    def functions(self) -> tuple[Any, ...]:
        return self.recall_context, self.expand_detail, self.session_search, self.fact_store, self.fact_feedback

    async def recall_context(self, ctx: Context, query: str, kind: AnyKind = "") -> str:
        """Recall what is remembered about a query: decisions, facts, procedures, past conversations.

        Args:
            query: what to recall.
            kind: only memories of this kind.
        """
        return await asyncio.to_thread(self._recalled, ctx.deps, query, kind)

    async def expand_detail(self, ctx: Context, id: str) -> str:  # noqa: A002 - the word of the tool's schema
        """Read one memory in full.

        Args:
            id: as recall_context gave it.
        """
        record = await asyncio.to_thread(self.store.get, ctx.deps.sigil.uid, id)
        return f"{id} is not to be shown" if record.state in HIDDEN else _in_full(record)

    async def session_search(self, ctx: Context, query: str) -> str:
        """Search what was said in earlier conversations with this user.

        Args:
            query: words that were said.
        """
        found = await asyncio.to_thread(self.sessions.find, ctx.deps.sigil.uid, query, MOST_FOUND)
        lines = (f"{one.session}, {_day(one.created)}, {one.role}: {one.snippet}" for one in found)
        return "\n".join(lines) or "nothing was said about it"

    async def fact_store(self, ctx: Context, text: str, subject: str = "", attribute: str = "") -> str:
        """Propose to remember a fact. The user confirms it before it counts.

        Args:
            text: the fact in one sentence.
            subject: what it is about.
            attribute: which property of the subject it states.
        """
        return await asyncio.to_thread(self._proposed, ctx.deps, text, subject, attribute)

    async def fact_feedback(self, ctx: Context, id: str, reason: str) -> str:  # noqa: A002
        """Propose that a memory is wrong. The user decides.

        Args:
            id: of the memory.
            reason: what shows that it is wrong.
        """
        record = await asyncio.to_thread(self.store.get, ctx.deps.sigil.uid, id)
        doubt = f'The memory {record.id} ("{record.micro[:QUOTED]}") is wrong: {reason}'
        return await asyncio.to_thread(self._proposed, ctx.deps, doubt)

    # -- in worker threads

    def _recalled(self, turn: TurnContext, query: str, kind: str) -> str:
        kinds = [kind] if kind else list(self.store.kinds)
        search = MemorySearch(self.store, self.meaning)
        found = search.find(turn.sigil.uid, _codex(turn), query, dict.fromkeys(kinds, MOST_FOUND))
        found = [one for one in found if one.similarity >= FLOOR][:MOST_FOUND]
        if turn.codex is not None:
            self.staleness.check(turn.codex.name, [one.record for one in found])
            found = search.reread(found)
        return "\n".join(_in_short(one.record) for one in found) or "nothing is remembered about it"

    def _proposed(self, turn: TurnContext, text: str, subject: str = "", attribute: str = "") -> str:
        if turn.private:
            return PRIVATE
        proposal = NewMemory(
            uid=turn.sigil.uid,
            kind=Kind.FACT,
            text=text,
            codex=_codex(turn),
            subject=subject,
            attribute=attribute,
            source=MODEL,
            sigil=turn.sigil.name,
            state=MemoryState.PROPOSED,
        )
        added = self.store.add(proposal)
        if added.state is MemoryState.PROPOSED:
            return f"proposed as {added.id}; the user may confirm it: lore memory confirm {added.id}"
        return f"it is remembered already, as {added.id}"


def _codex(turn: TurnContext) -> str | None:
    return turn.codex.name if turn.codex is not None else None


def _in_short(record: MemoryRecord) -> str:
    said = record.with_doubt(in_line(record.summary))
    return f"{record.id} {record.kind}, {_day(record.created)}, {record.state}: {said}"


def _in_full(record: MemoryRecord) -> str:
    cited = [one.place for one in record.evidence]
    about = f" about {', '.join(cited)}" if cited else ""
    head = record.with_doubt(f"{record.kind} of {_day(record.created)}, {record.state}{about}")
    return f"{head}:\n{record.text}"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
