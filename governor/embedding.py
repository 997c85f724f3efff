"""The cost of the embedding model in addition to the chat model, where it runs, and when it is unloaded. Pure.

    setting ─▶ 0: the CPU   n: that many layers   -1: all of it, or none
                                │ no GPU, memory unknown, too little left by the chat model
                                ▼
                              the CPU, with a reason

It is small and used a few times a minute: the chat model has priority on the GPU, and under pressure the embedding model
is unloaded before anything that an answer waits for.
"""

from dataclasses import dataclass, replace

from governor.budget import Outlook, weights_on_gpu
from governor.footprint import KvPlan, kv_cost, working_bytes
from governor.model_shape import ModelShape
from governor.pressure import Level
from governor.settings import size

CONTEXTS = 2  # one for questions, one for what is embedded in the background


@dataclass(frozen=True)
class EmbeddingCost:
    """Bytes of an embedding model once both its contexts are open: on the GPU and in RAM. `layers` on the GPU."""

    layers: int
    gpu: int
    ram: int
    weights: int
    buffers: int

    def here(self, *, on_gpu: bool) -> int:
        """Bytes of the memory that counts. Where no GPU is used, the one memory that is planned holds all of it."""
        return self.gpu if on_gpu else self.gpu + self.ram

    def elsewhere(self, *, on_gpu: bool) -> int:
        return self.ram if on_gpu else 0


def embedding_cost(shape: ModelShape, tokens: int, texts: int, layers: int = 0) -> EmbeddingCost:
    """The cost of a model whose batches hold `tokens` of `texts` texts, with so many layers on the GPU."""
    buffers = CONTEXTS * context_bytes(shape, tokens, texts)
    if not layers:
        return EmbeddingCost(0, 0, shape.weights + buffers, shape.weights, buffers)
    once = weights_on_gpu(replace(shape, tied=False), layers)
    # An encoder has no output; what writes text and embeds puts its tied embedding there a second time.
    there = once if shape.unpredictable else weights_on_gpu(shape, layers)
    return EmbeddingCost(layers, there + buffers, shape.weights - once, shape.weights, buffers)


def context_bytes(shape: ModelShape, tokens: int, texts: int) -> int:
    """Of one context. A batch is computed in one piece, and llama.cpp keeps logits of every token beside the vectors.

    What reads one way has a KV cache, and computes its logits once more than it keeps them.
    """
    plan = KvPlan(sequences=texts, ubatch=tokens)
    computed = working_bytes(shape, plan, tokens, logits=tokens)
    if shape.unpredictable:
        return computed
    return computed + kv_cost(shape, plan, tokens) + tokens * shape.vocabulary * 4


@dataclass(frozen=True)
class Placed:
    """`layers` on the GPU, 0 for the CPU; `why` it differs from the setting, '' where it does not."""

    layers: int
    why: str = ""


def placed(shape: ModelShape, tokens: int, texts: int, asked: int, room: int | None) -> Placed:
    """Where it runs. `asked`: -1 all where that fits, else that many layers (the output counts as one). `room`: bytes of
    the GPU that the chat model leaves; None where there is no GPU that the engine can use, or its memory is unknown."""
    if asked == 0:
        return Placed(0)
    if room is None:
        why = (
            "embedding.gpu_layers has no effect: there is no GPU that the engine can use, or its memory cannot be read"
        )
        return Placed(0, why if asked > 0 else "")
    every = len(shape.layers) + 1
    layers = every if asked < 0 else min(asked, every)
    needs = embedding_cost(shape, tokens, texts, layers).gpu
    if needs <= room:
        return Placed(layers)
    left = f"{size(needs)} are needed on the GPU, and the model that answers leaves {size(room)}"
    return Placed(0, f"the embedding model runs on the CPU: {left}" if asked > 0 else "")


def why_away(outlook: Outlook, cost: EmbeddingCost, *, on_gpu: bool) -> str:
    """Why it must be unloaded, '' when it may be loaded. `on_gpu`: whether a GPU's memory is the one that counts; a model
    in RAM beside a GPU is unloaded only for the pressure of RAM."""
    counts = cost.here(on_gpu=on_gpu) > 0
    level = outlook.level if counts else outlook.ram.level
    if level.rank < Level.HIGH.rank:
        return ""
    where = "RAM" if not counts else outlook.budget.where if outlook.budget else "memory"
    return f"{where} is scarce (pressure {level}): the embedding model is unloaded until it is not"
