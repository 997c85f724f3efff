"""Routes of memories."""

from orchestrator.api.http import ApiCall, route
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

CHOICE = (
    QueryParameter("kind", "only those of this kind"),
    QueryParameter("codex", "only those of this codex; none: of no codex"),
    QueryParameter("state", "only those in this state"),
    QueryParameter("review", "1: what a person should look at"),
)


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
