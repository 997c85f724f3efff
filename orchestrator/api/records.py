"""Routes of what is kept of each user: conversations, memories, traces; and its deletion. No route gives another user's."""

from typing import get_args

from orchestrator.api.http import ApiCall, permitted, route
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.wire.memories import (
    Forgotten,
    FoundMemories,
    MemoriesBody,
    MemoriesImported,
    MemoryBody,
    MemoryChange,
    MemoryReply,
    MemoryRows,
    MemorySearchBody,
    MemoryStats,
)
from orchestrator.wire.openapi import QueryParameter
from orchestrator.wire.replies import (
    DataName,
    Dropped,
    KeptReply,
    Purged,
    Renamed,
    SessionHits,
    SessionReply,
    SessionRows,
)
from orchestrator.wire.requests import RenameBody, SessionSearchBody
from orchestrator.wire.traces import FeedbackBody, FeedbackReply, RelevanceStats, TraceDiff, TraceReply, TraceRows

CHOICE = (
    QueryParameter("kind", "only those of this kind"),
    QueryParameter("codex", "only those of this codex; none: of no codex"),
    QueryParameter("state", "only those in this state"),
    QueryParameter("review", "1: what a person should look at"),
)
HOW_MANY = QueryParameter("n", "how many", usual=20, least=1, most=1000)
BEFORE = QueryParameter("before", "only those that are older than this one")
PROMPT = QueryParameter("prompt", "1: with the exact prompt")
OTHER = QueryParameter("to", "the other turn, by its id, the beginning of it, or `last`", needed=True)
SUGGEST = QueryParameter("suggest", "1: with what should be changed")

# -- conversations


@route("GET", "/v1/sessions", "query")
async def sessions(call: ApiCall) -> SessionRows:
    """The asking user's conversations."""
    return SessionRows(sessions=tuple(await call.service.records.sessions(call.principal)))


@route("POST", "/v1/sessions/search", "query")
async def search_sessions(call: ApiCall, body: SessionSearchBody) -> SessionHits:
    """Messages of the asking user's conversations that hold words of the query."""
    return SessionHits(hits=tuple(await call.service.records.search_sessions(call.principal, body.query, body.n)))


@route("GET", "/v1/sessions/{name}", "query", faults=("not_found",))
async def session(call: ApiCall) -> SessionReply:
    """One conversation with its turns."""
    return SessionReply(session=await call.service.records.session(call.principal, call.name))


@route("PATCH", "/v1/sessions/{name}", "query", faults=("not_found", "conflict"))
async def rename_session(call: ApiCall, body: RenameBody) -> Renamed:
    """Gives a conversation another name."""
    await call.service.records.rename_session(call.principal, call.name, body.name)
    return Renamed(renamed=call.name, name=body.name)


@route("DELETE", "/v1/sessions/{name}", "query", faults=("not_found",))
async def drop_session(call: ApiCall) -> Dropped:
    """Forgets a conversation."""
    await call.service.records.drop_session(call.principal, call.name)
    return Dropped(dropped=call.name)


# -- memories


@route("GET", "/v1/memories", "memory:read", query=CHOICE)
async def memories(call: ApiCall) -> MemoryRows:
    """The asking user's memories, the newest first. `?kind=`, `?codex=` (none: of no codex) and `?state=` choose;
    `?review=1` gives what a person should look at: proposals, and what may be outdated."""
    asked = call.request.query_params
    if asked.get("review"):
        return MemoryRows(memories=await call.service.records.review_memories(call.principal))
    chosen = (asked.get("kind"), asked.get("codex"), asked.get("state"))
    return MemoryRows(memories=await call.service.records.memories(call.principal, *chosen))


@route("POST", "/v1/memories", "memory:write", faults=("not_found",))
async def add_memory(call: ApiCall, body: MemoryBody) -> MemoryReply:
    """Keeps a memory, and gives it as it stands then: the same again confirms it, another value supersedes it."""
    return MemoryReply(memory=await call.service.records.add_memory(call.principal, body))


@route("POST", "/v1/memories/import", "memory:write")
async def import_memories(call: ApiCall, body: MemoriesBody) -> MemoriesImported:
    """Keeps what an export holds, all or nothing. What is here already is neither doubled nor changed."""
    return await call.service.records.import_memories(call.principal, body)


@route("POST", "/v1/memories/search", "memory:read", faults=("not_found",))
async def search_memories(call: ApiCall, body: MemorySearchBody) -> FoundMemories:
    """Memories that hold words of the query."""
    return await call.service.records.search_memories(call.principal, body)


@route("GET", "/v1/memories/{name}", "memory:read", faults=("not_found",))
async def memory(call: ApiCall) -> MemoryReply:
    """One memory, by its id or the beginning of it."""
    return MemoryReply(memory=await call.service.records.memory(call.principal, call.name))


@route("PATCH", "/v1/memories/{name}", "memory:write", faults=("not_found", "conflict"))
async def change_memory(call: ApiCall, body: MemoryChange) -> MemoryReply:
    """Confirms, retires, consecrates or rates a memory, or sets the outcome of a decision."""
    return MemoryReply(memory=await call.service.records.change_memory(call.principal, call.name, body))


@route("DELETE", "/v1/memories/{name}", "memory:write", faults=("not_found",))
async def forget_memory(call: ApiCall) -> Forgotten:
    """Deletes a memory for good."""
    return Forgotten(forgotten=await call.service.records.forget_memory(call.principal, call.name))


@route("GET", "/v1/stats/memory", "memory:read")
async def memory_stats(call: ApiCall) -> MemoryStats:
    """How well the asking user's memories work, of the last 30 days; nobody else's count."""
    return await call.service.records.memory_stats(call.principal)


# -- traces


@route("GET", "/v1/traces", "query", faults=("not_found",), query=(HOW_MANY, BEFORE))
async def traces(call: ApiCall) -> TraceRows:
    """The asking user's turns, the newest first; `?n=`: how many, from 1 to 1,000 (left out: 20); `?before=`: only those
    that are older than this one, which is named as a single one is."""
    before = call.request.query_params.get("before")
    return TraceRows(traces=tuple(await call.service.records.traces(call.principal, call.number(HOW_MANY), before)))


@route("GET", "/v1/traces/{name}", "query", faults=("not_found",), query=(PROMPT,))
async def trace(call: ApiCall) -> TraceReply:
    """One turn, by its id, the beginning of it, or `last`; `?prompt=1`: with the exact prompt."""
    prompt = bool(call.request.query_params.get("prompt"))
    return TraceReply(trace=await call.service.records.trace(call.principal, call.name, prompt=prompt))


@route("GET", "/v1/traces/{name}/diff", "query", faults=("not_found",), query=(OTHER,))
async def trace_diff(call: ApiCall) -> TraceDiff:
    """How the prompt of the turn `?to=` differs from this turn's."""
    other = call.request.query_params.get("to", "")
    if not other:
        raise InvalidRequest("to: the other trace is not named", "GET /v1/traces/A/diff?to=B")
    return await call.service.records.trace_difference(call.principal, call.name, other)


@route("POST", "/v1/traces/{name}/feedback", "query", faults=("not_found",))
async def feedback(call: ApiCall, body: FeedbackBody) -> FeedbackReply:
    """Keeps a vote on an answer, and moves the trust of the memories in its prompt. A later vote replaces it; the same
    vote again moves no trust. A down vote with a note proposes a memory, as an up vote on a short answer does."""
    return await call.service.records.vote(call.principal, call.name, body)


@route("GET", "/v1/stats/relevance", "query", query=(SUGGEST,))
async def relevance_stats(call: ApiCall) -> RelevanceStats:
    """Whether the rules of relevance pay, by the asking user's turns; `?suggest=1`: with what should be changed."""
    suggest = bool(call.request.query_params.get("suggest"))
    return await call.service.records.relevance_stats(call.principal, suggest=suggest)


# -- what is kept


@route("GET", "/v1/kept", "query")
async def kept(call: ApiCall) -> KeptReply:
    """What can be purged: the asking user's traces and sessions, and with `admin` the cache of all."""
    return await call.service.records.kept_data(call.principal)


@route("DELETE", "/v1/kept/{name}", "query", faults=("not_found",))
async def purge(call: ApiCall) -> Purged:
    """Deletes traces or sessions of the asking user, or with `admin` the cache of all, for good."""
    name = next((one for one in get_args(DataName) if one == call.name), None)
    if name is None:
        raise NotFound(f"nothing named {call.name} is kept", f"there are: {', '.join(get_args(DataName))}")
    if name == "cache":
        permitted(call.request, ("admin",))
    return Purged(purged=await call.service.records.purge(call.principal, name))
