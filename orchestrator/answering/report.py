"""What an answer says of itself, from the prompt's seams and what the engine reported. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from formatters.context import StrategyView
from governor.budget import MemoryBudget
from orchestrator.answering.question import PreparedQuestion
from orchestrator.engine.messages import Admitted, Completion, Reuse, Tier
from orchestrator.engine.prefill_cost import first_token_s
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.errors import LoreError
from orchestrator.karma.recall import MEMORY_NODES
from orchestrator.prompt.composing import Assembled
from orchestrator.prompt.prefetch import Prefetch
from orchestrator.prompt.strategy import Decision
from orchestrator.relevance.gate import Decided, GateRules, Relevance
from orchestrator.relevance.ledger import RuleFigures, changes_of, patch_of, patch_text
from orchestrator.service import Effort
from orchestrator.wire.answers import (
    BlockState,
    DraftCounts,
    Intent,
    Lore,
    Need,
    PlanMemory,
    PlanReply,
    PlanTimings,
    Predicted,
    PrefetchReport,
    PromptState,
    RefusalReport,
    RelevanceReport,
    RetrievalPlan,
    ShownMemory,
    StrategyState,
    Timings,
)
from orchestrator.wire.traces import RelevanceStats, RuleRow


def placed(reuse: Iterable[Reuse], *, gpu: bool) -> tuple[Reuse, ...]:
    """Where reused tokens truly were: without a GPU the live cells lie in RAM."""
    parts = tuple(reuse)
    return parts if gpu else tuple(replace(one, tier=Tier.RAM) if one.tier is Tier.VRAM else one for one in parts)


def block_states(prompt: Assembled, reuse: Sequence[Reuse]) -> tuple[BlockState, ...]:
    """Per block: its tokens, how many of them needed no computing, and the tier that gave most of those."""
    return tuple(_block(str(kind), start, end, reuse) for kind, start, end in prompt.seams)


def _block(kind: str, start: int, end: int, reuse: Sequence[Reuse]) -> BlockState:
    shares = _shares(start, end, reuse)
    source = max(shares, key=shares.__getitem__, default=Tier.COMPUTED)
    cached = sum(shares.values())
    return BlockState.model_validate({"kind": kind, "tokens": end - start, "cached": cached, "from": source.value})


def effort(
    prepared: PreparedQuestion, prompt: Assembled, reuse: Sequence[Reuse], completions: Sequence[Completion]
) -> Effort:
    """`reuse`: of the first prompt, where it truly was."""
    timings = [one.timings for one in completions if one.computed]
    taken = {kind.name.lower(): count for kind, count in prepared.within.taken.items()}
    if prepared.cut:
        taken["result"] = taken.get("result", 0) + len(prepared.cut)
    return Effort(
        rounds=max(0, len(completions) - 1),
        prefilled=sum(one.computed for one in completions),
        prefill_ms=sum(max(0.0, one.first_token_ms - one.queue_ms) for one in timings),
        tokens=block_tokens(prompt, reuse),
        cut=taken,
    )


def block_tokens(prompt: Assembled, reuse: Sequence[Reuse]) -> dict[tuple[str, str], int]:
    """Tokens of the prompt, by block and by the tier that they came from. `reuse` has no gaps but computed tokens."""
    found = Counter[tuple[str, str]]()
    for kind, start, end in prompt.seams:
        shares = _shares(start, end, reuse)
        found.update({(str(kind), tier.value): tokens for tier, tokens in shares.items()})
        found[str(kind), Tier.COMPUTED.value] += end - start - sum(shares.values())
    return dict(found)


def _shares(start: int, end: int, reuse: Iterable[Reuse]) -> dict[Tier, int]:
    """How many tokens of the half-open range needed no computing, by tier."""
    shares: dict[Tier, int] = {}
    for part in reuse:
        shared = min(end, part.end) - max(start, part.start)
        if shared > 0 and part.tier is not Tier.COMPUTED:
            shares[part.tier] = shares.get(part.tier, 0) + shared
    return shares


def prompt_state(prompt: Assembled, reuse: Sequence[Reuse], left: int) -> PromptState:
    cached = reused(reuse)
    return PromptState(tokens=prompt.tokens, cached=cached, computed=prompt.tokens - cached, left=left)


def reused(reuse: Iterable[Reuse]) -> int:
    """Tokens that needed no computing."""
    return sum(part.end - part.start for part in reuse if part.tier is not Tier.COMPUTED)


def strategy_state(decision: Decision, used: int) -> StrategyState:
    """`used`: tokens of the prompt as it is sent, and of its answer. The decision itself was made before retrieval."""
    asked = decision.asked
    return StrategyState.of(
        decision,
        name=decision.strategy.value,
        tier=decision.coverage.value,
        task=asked.task.value,
        window=asked.window,
        available_tokens=asked.window - used,
        used_tokens=used,
    )


def strategy_view(decision: Decision, used: int) -> StrategyView:
    """The same for a tool of the turn."""
    return StrategyView(
        name=decision.strategy.value,
        reason=decision.reason,
        confidence=decision.confidence,
        content=decision.content_tokens,
        window=decision.asked.window,
        used=used,
        retrieval_budget=decision.retrieval_budget,
        steps=decision.steps,
    )


def timings(
    completions: Sequence[Completion],
    assemble_ms: float,
    first_token_ms: float,
    total_ms: float,
    *,
    pause_ms: float = 0.0,
    model_ms: float = 0.0,
    floor_ms: float = 0.0,
) -> Timings:
    """Milliseconds since the question arrived at the daemon; queue and speed are those of the engine."""
    queue = sum(one.timings.queue_ms for one in completions)
    speed = completions[-1].timings.tokens_per_second if completions else 0.0
    return Timings(
        pause_ms=round(pause_ms, 2),
        model_ms=round(model_ms, 2),
        assemble_ms=round(assemble_ms, 2),
        floor_ms=round(floor_ms, 2),
        queue_ms=round(queue, 2),
        ttft_ms=round(first_token_ms, 2),
        total_ms=round(total_ms, 2),
        tokens_per_second=round(speed, 1),
    )


def drafts(completions: Sequence[Completion]) -> DraftCounts:
    return DraftCounts(
        drafted=sum(one.drafted for one in completions), accepted=sum(one.accepted for one in completions)
    )


def true_reuse(admitted: Admitted | None, completions: Iterable[Completion]) -> tuple[Reuse, ...]:
    """What the first inference reused. A part that another ticket gave up on was computed after all, and counts so."""
    if admitted is None:
        return ()
    first = next(iter(completions), None)
    if first is None or first.cached >= reused(admitted.reuse):
        return admitted.reuse
    return clipped(admitted.reuse, first.cached)


def clipped(reuse: Iterable[Reuse], most: int) -> tuple[Reuse, ...]:
    """The reused parts up to `most` tokens in all, from the left."""
    kept: list[Reuse] = []
    for part in reuse:
        end = min(part.end, part.start + most) if part.tier is not Tier.COMPUTED else part.start
        if end > part.start:
            kept.append(Reuse(part.start, end, part.tier))
            most -= end - part.start
    return tuple(kept)


def plan_report(
    prepared: PreparedQuestion,
    lore: Lore,
    refusal: LoreError | None,
    snapshot: EngineSnapshot,
    budget: MemoryBudget,
    text: str,
) -> PlanReply:
    """What the lore object and the plan have in common, and the plan's own. `text` is empty where nobody asked for it."""
    assembled, decision = prepared.composed.assembled, prepared.found.decision
    used = assembled.tokens - assembled.floor.tokens
    return PlanReply.of(
        lore,
        timings=PlanTimings(assemble_ms=round(prepared.assemble_ms, 2)),
        intent=intent_report(prepared),
        retrieval_plan=RetrievalPlan(
            retrieval=decision.retrieval.value,
            budget=decision.retrieval_budget,
            passages=tuple(f"{one.path}:{one.start}-{one.end}" for one in prepared.turn.state.evidence),
            memories=dict(prepared.found.recalled.plan.limits),
            memory_tokens=dict(prepared.found.recalled.plan.budgets),
        ),
        prefetch=prefetch_report(prepared.found.prefetch),
        relevance=relevance_report(prepared.found.relevance),
        refusal=RefusalReport.of(refusal) if refusal else None,
        needs=Need(tier=decision.needs_coverage.value, cost=decision.cost) if decision.needs_coverage else None,
        predicted=Predicted(
            ttft_ms=first_token_ms(snapshot.counters, lore.prompt.computed, assembled.tokens),
            kv_bytes=lore.governor.kv_bytes,
            context_pressure=round(used / decision.asked.window, 3) if decision.asked.window > 0 else 0.0,
        ),
        memory=PlanMemory.of(budget, kv_bytes=budget.kv, bound_reason=budget.reason, kv_type="", kv_loss=None),
        text=text,
    )


def intent_report(prepared: PreparedQuestion) -> Intent:
    asked, recalled = prepared.found.decision.asked, prepared.found.recalled
    return Intent(
        task=asked.task.value,
        because=asked.because,
        frame=recalled.frame.name,
        greeting=recalled.intent.greeting,
        recency=recalled.intent.recency,
        hints=dict(recalled.intent.hints),
        entities=recalled.intent.entities,
    )


def relevance_report(found: Relevance) -> RelevanceReport:
    def words(nodes: Mapping[str, Decided]) -> dict[str, str]:
        return {name: " ".join(filter(None, (why.layer, why.rule))) for name, why in nodes.items()}

    included, excluded = words(found.included), words(found.excluded)
    return RelevanceReport.of(found, included=included, excluded=excluded)


def relevance_stats(figures: Sequence[RuleFigures], rules: GateRules | None) -> RelevanceStats:
    """`rules`: those that changes are suggested to; None: none are."""
    known = [one for one in figures if one.node in MEMORY_NODES]  # of others nobody can tell what is regretted
    changes = changes_of(known) if rules is not None else []
    return RelevanceStats(
        rules=tuple(RuleRow.of(one) for one in figures),
        changes=tuple(one.why for one in changes),
        patch=patch_text(patch_of(changes, rules)) if rules is not None else "",
    )


def shown_memories(prepared: PreparedQuestion) -> tuple[ShownMemory, ...]:
    """Those of its prompt, in their order."""
    return tuple(ShownMemory.of(one) for one in prepared.found.recalled.karma.entries)


def prefetch_report(prefetch: Prefetch) -> PrefetchReport:
    use = prefetch.use
    return PrefetchReport.of(
        prefetch,
        pressure=round(use.pressure, 3),
        used_tokens=use.used,
        window=use.window,
        threshold=use.bound,
        skipped=not prefetch.wanted,
        report=prefetch.report(),
    )


def first_token_ms(counters: Mapping[str, float], computed: int, tokens: int) -> float | None:
    """Milliseconds until an answer begins, where the last `computed` of so many prompt tokens are computed; None where
    nothing was measured yet."""
    seconds = first_token_s(counters, tokens - computed, tokens)
    return None if seconds is None else round(1000 * seconds, 1)
