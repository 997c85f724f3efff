"""Routes of traces: each user has their own, and sees no other's."""

from orchestrator.api.http import ApiCall, route
from orchestrator.errors import InvalidRequest
from orchestrator.wire.openapi import QueryParameter
from orchestrator.wire.traces import FeedbackBody, FeedbackReply, RelevanceStats, TraceDiff, TraceReply, TraceRows

HOW_MANY = QueryParameter("n", "how many", usual=20, least=1, most=1000)
BEFORE = QueryParameter("before", "only those that are older than this one")
PROMPT = QueryParameter("prompt", "1: with the exact prompt")
OTHER = QueryParameter("to", "the other turn, by its id, the beginning of it, or `last`", needed=True)
SUGGEST = QueryParameter("suggest", "1: with what should be changed")


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
