"""Whether so many tokens of KV can be granted, in numbers and in one sentence a person can act on. Pure.

Knows budgets and costs, not what the tokens are for.
"""

from dataclasses import dataclass, replace

from governor.budget import Budget
from governor.footprint import KvPlan, cells_within, kv_cost, kv_types
from governor.settings import GIB, KIB, MIB
from governor.shape import ModelShape


@dataclass(frozen=True)
class Fit:
    """`granted` of the `tokens` asked for; bytes `needed` and `free`; `kv_type`: a smaller one that would do, or ""."""

    tokens: int
    granted: int
    needed: int
    free: int
    kv_type: str
    sentence: str

    @property
    def fits(self) -> bool:
        return self.granted >= self.tokens


def fit(budget: Budget, shape: ModelShape, plan: KvPlan, tokens: int, taken: int = 0) -> Fit:
    """How much of a floor of `tokens` can be granted when `taken` bytes of the budget's KV are promised to others."""
    free = max(0, budget.kv - taken)
    needed = kv_cost(shape, plan, tokens).total
    found = cells_within(shape, plan, free)
    granted = tokens if needed <= free else min(tokens, found or 0)
    kv_type = "" if needed <= free else _smaller_type(shape, plan, tokens, free)
    return Fit(tokens, granted, needed, free, kv_type, _sentence(tokens, needed, free, kv_type, budget.where))


def _smaller_type(shape: ModelShape, plan: KvPlan, tokens: int, free: int) -> str:
    """The largest KV type with which it would fit: as little is lost as must be."""
    now = kv_cost(shape, plan, tokens).total
    for name in kv_types(shape):
        cost = kv_cost(shape, replace(plan, keys=name, values=name), tokens).total
        if cost < now and cost <= free:
            return name
    return ""


def _sentence(tokens: int, needed: int, free: int, kv_type: str, where: str) -> str:
    count = short_count(tokens)
    if needed <= free:
        return f"{count} tokens need {size(needed)} of KV and {size(free)} of {where} are free"
    hint = f"; KV type {kv_type} would make it fit" if kv_type else ""
    return f"{count} tokens need {size(needed)} of KV and {size(free)} of {where} are free{hint}"


def size(count: int) -> str:
    """Bytes as a person reads them: 12.2 GiB, 340 MiB, 12 KiB."""
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    return f"{count / MIB:.0f} MiB" if count >= MIB else f"{count / KIB:.0f} KiB"


def short_count(tokens: int) -> str:
    """100k, 8.2k, 900."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}".removesuffix(".0") + "k" if tokens < 10_000 else f"{tokens / 1000:.0f}k"
