"""Whether a model would fit this machine, from its header and the sensors, without loading it. Pure.

What our own model holds now counts as free: another one would take its place.
"""

from dataclasses import dataclass

from governor.budget import Demand, MemoryBudget, Stores, plan_budget
from governor.errors import FootprintError
from governor.footprint import KvPlan
from governor.readings import MemoryReading
from governor.settings import MemorySettings
from governor.shape import ModelShape
from governor.sizes import short_count, size

LEAST_CONTEXT = 512  # tokens: the shortest window that may be set


@dataclass(frozen=True)
class Ground:
    """The machine: the memory that counts, the user's limit, RAM for layers that a GPU cannot take, what is ours, and what
    the embedding model takes beside any model."""

    memory: MemoryReading | None
    settings: MemorySettings
    limit: int | None = None
    host_free: int = 0
    held: int = 0
    embedding_bytes: int = 0


@dataclass(frozen=True)
class Fitting:
    """`fits` is None where it cannot be known; `context` is one sequence's limit in tokens."""

    fits: bool | None
    context: int | None
    words: str
    budget: MemoryBudget | None = None


def fitting(shape: ModelShape, plan: KvPlan, ground: Ground, gpu_layers: int = -1) -> Fitting:
    """`gpu_layers` -1: as many as fit."""
    if ground.memory is None:
        return Fitting(None, None, "unknown: how much memory there is cannot be read")
    wanted = None if gpu_layers < 0 else gpu_layers
    demand = Demand(
        shape,
        plan,
        gpu_layers=wanted,
        ours=ground.held,
        host_free=ground.host_free,
        embedding_bytes=ground.embedding_bytes,
    )
    try:
        budget = plan_budget(0, ground.memory, demand, ground.settings, ground.limit, Stores(0, 0))
    except FootprintError as error:
        return Fitting(None, None, f"unknown: {error}")
    if budget.window < min(LEAST_CONTEXT, shape.trained):
        return Fitting(False, None, f"no: {too_large(budget, shape)}", budget)
    return Fitting(True, budget.window, f"yes, context {short_count(budget.window)}{partly(budget)}", budget)


def too_large(budget: MemoryBudget, shape: ModelShape) -> str:
    """Everything that the plan takes off before there is room for KV."""
    needed = size(shape.weights + budget.working + budget.embedding_bytes)
    what = "weights, buffers and the embedding model" if budget.embedding_bytes else "weights and buffers"
    return f"{what} need {needed} and {size(budget.ours)} of {budget.where} can be had"


def partly(budget: MemoryBudget) -> str:
    if budget.where == "RAM" or budget.gpu_layers == budget.layers:
        return ""
    return f", {budget.gpu_layers} of {budget.layers} layers on the GPU"
