"""What a plan says beyond what an answer would: the intent, what is retrieved, what it would cost. Pure."""

from collections.abc import Mapping
from typing import Any

from governor.budget import MemoryBudget
from orchestrator.answering.preparing import PreparedQuestion
from orchestrator.engine.client.foresight import prompt_s
from orchestrator.engine.messages import EngineSnapshot
from orchestrator.prompt.prefetch import decide_prefetch
from orchestrator.wire.lore import Lore


def plan_report(
    prepared: PreparedQuestion, lore: Lore, snapshot: EngineSnapshot, budget: MemoryBudget
) -> dict[str, Any]:
    """The lore object without what only an answer knows, and the plan's own."""
    assembled, decision = prepared.composed.assembled, prepared.decision
    report = lore.model_dump(mode="json", by_alias=True, exclude={"trace", "began", "timings", "citations"})
    pressure = decide_prefetch(assembled.tokens - assembled.floor.tokens, decision.window)
    return report | {
        "relevance": None,
        "intent": {"task": prepared.task.task.value, "because": prepared.task.because},
        "retrieval_plan": {
            "retrieval": decision.retrieval.value,
            "budget": decision.retrieval_budget,
            "passages": [f"{one.path}:{one.start}-{one.end}" for one in prepared.gathered.evidence],
        },
        "needs": {"tier": decision.needs_tier.value, "cost": decision.cost} if decision.needs_tier else None,
        "predicted": {
            "ttft_ms": first_token_ms(snapshot.counters, lore.prompt.computed, assembled.tokens),
            "kv_bytes": lore.governor.kv_bytes,
            "context_pressure": round(pressure.pressure, 3),
        },
        "memory": {
            "where": budget.where,
            "kv_bytes": budget.kv,
            "weights": budget.weights,
            "embedding_bytes": budget.embedding_bytes,
        },
        "timings": {"assemble_ms": round(prepared.assemble_ms, 2)},
    }


def first_token_ms(counters: Mapping[str, float], computed: int, tokens: int) -> float | None:
    """Milliseconds to compute the last `computed` of so many prompt tokens; None where nothing was measured yet."""
    seconds = prompt_s(counters, tokens - computed, tokens)
    return None if seconds is None else round(1000 * seconds, 1)
