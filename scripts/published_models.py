"""Shapes of models that people run, as they are published in Q4_K_M, and what they are granted on the cards they run on.

Tests plan with them, docs/governor.md shows what comes of it, and its pictures are drawn of them.
"""

from dataclasses import replace
from typing import Any

from governor.budget import Demand, MemoryBudget, plan_budget
from governor.footprint import KvPlan
from governor.model_shape import Layer, ModelShape
from governor.offload import Offload, with_windows
from governor.readings import MemoryReading
from governor.settings import GIB, MIB, MemorySettings, limit_bytes

DESKTOP = 400 * MIB  # of others on the card, from the start
SETTINGS = MemorySettings()
_PLAIN = ModelShape(
    architecture="llama",
    name="",
    trained=131_072,
    embedding=4_096,
    heads=32,
    kv_heads=8,
    vocabulary=128_256,
    feed_forward=14_336,
    layers=(),
    window=0,
    compressed=False,
    input=128 * MIB,
    output=128 * MIB,
    tied=False,
    by_type={},
    unpredictable=None,
)


def planned(shape: ModelShape, card: int, plan: KvPlan, others: int = DESKTOP) -> MemoryBudget:
    total = card * GIB
    limit = limit_bytes(SETTINGS.vram_limit, total - others)
    memory = MemoryReading("VRAM", total, total - others, 0)
    return plan_budget(1, memory, Demand(shape, plan, host_free=64 * GIB), SETTINGS, limit)


def plan_of(shape: ModelShape, card: int, kind: str) -> KvPlan:
    """As the model is loaded: sliding layers keep their windows alone where all cells would hold too little."""
    asked = Offload(KvPlan(kind, kind, sequences=32), on_gpu=True).for_shape(shape)
    return with_windows(asked, shape, lambda plan: planned(shape, card, plan).window).plan


def granted(shape: ModelShape, card: int, kind: str) -> MemoryBudget:
    return planned(shape, card, plan_of(shape, card, kind))


def published(
    name: str,
    gigabytes: float,
    layers: int,
    kv: tuple[int, int],
    *,
    trained: int,
    width: tuple[int, int, int],
    heads: int,
    **changes: Any,
) -> ModelShape:
    """A model in Q4_K_M as it is published. `kv`: KV heads and the size of one; `width`: of the embedding, the feed-forward
    and the vocabulary."""
    embedding, feed_forward, vocabulary = width
    table = vocabulary * embedding * 9 // 16
    kv_heads, head = kv
    each = (int(gigabytes * 1e9) - 2 * table) // layers
    return replace(
        _PLAIN,
        name=name,
        trained=trained,
        embedding=embedding,
        heads=heads,
        kv_heads=kv_heads,
        vocabulary=vocabulary,
        feed_forward=feed_forward,
        layers=(Layer(each, kv_heads * head, kv_heads * head, head, head),) * layers,
        input=table,
        output=table,
        **changes,
    )


def hybrid(model: ModelShape, every: int, state: int) -> ModelShape:
    """Of each `every` layers one attends; the others recur with so many values a sequence."""
    layers = [
        layer if (at + 1) % every == 0 else Layer(layer.weights, state=state) for at, layer in enumerate(model.layers)
    ]
    return replace(model, layers=tuple(layers))


def both_ways(model: ModelShape, state: int) -> ModelShape:
    """Every layer attends and recurs, with so many values a sequence."""
    return replace(model, layers=tuple(replace(layer, state=state) for layer in model.layers))


def compressed(model: ModelShape) -> ModelShape:
    """MLA: values are read out of the keys."""
    layers = tuple(Layer(layer.weights, layer.keys, 0, layer.head_keys, 0) for layer in model.layers)
    return replace(model, layers=layers, compressed=True)


def gemma3(name: str, layers: int, kv: tuple[int, int], embedding: int, gigabytes: float) -> ModelShape:
    """Gemma 3 as its headers state it, in Q4_K_M: each sixth layer sees everything, the others 1,024 tokens."""
    width, head = kv[0] * kv[1], kv[1]
    each = int((gigabytes - 0.5) * 1e9 / layers)
    return replace(
        _PLAIN,
        architecture="gemma3",
        name=f"Gemma 3 {name}",
        embedding=embedding,
        feed_forward=4 * embedding,
        layers=tuple(Layer(each, width, width, head, head, slides=at % 6 != 5) for at in range(layers)),
        window=1024,
        vocabulary=262_208,
        input=500_000_000,
        output=0,
        tied=True,
    )


GEMMA_4B = gemma3("4B", 34, (4, 256), 2560, 2.5)
GEMMA_12B = gemma3("12B", 48, (8, 256), 3840, 7.3)
GEMMA_27B = gemma3("27B", 62, (16, 128), 5376, 16.5)

MODELS = (
    published("Qwen2.5 7B", 4.68, 28, (4, 128), trained=32_768, width=(3_584, 18_944, 152_064), heads=28),
    published("Llama 3.1 8B", 4.92, 32, (8, 128), trained=131_072, width=(4_096, 14_336, 128_256), heads=32),
    both_ways(
        published("Falcon-H1 7B", 4.6, 44, (2, 128), trained=262_144, width=(3_072, 12_288, 130_048), heads=12),
        state=3 * (3_072 + 2 * 256) + 3_072 * 256,
    ),
    GEMMA_12B,
    published("Qwen2.5 14B", 8.99, 48, (8, 128), trained=131_072, width=(5_120, 13_824, 152_064), heads=40),
    published("Mistral Small 24B", 14.33, 40, (8, 128), trained=131_072, width=(5_120, 32_768, 131_072), heads=32),
    published("gpt-oss 20B", 12.11, 24, (8, 64), trained=131_072, width=(2_880, 2_880, 201_088), heads=64, window=128),
    compressed(
        published(
            "DeepSeek-V2-Lite 16B", 10.36, 27, (1, 576), trained=163_840, width=(2_048, 10_944, 102_400), heads=16
        )
    ),
    GEMMA_27B,
    published("Qwen3 30B-A3B", 18.56, 48, (4, 128), trained=262_144, width=(2_048, 6_144, 151_936), heads=32),
    published("Qwen2.5 32B", 19.85, 64, (8, 128), trained=131_072, width=(5_120, 27_648, 152_064), heads=40),
    published("Llama 3.3 70B", 42.52, 80, (8, 128), trained=131_072, width=(8_192, 28_672, 128_256), heads=64),
    hybrid(
        published("Qwen3-Next 80B-A3B", 48.5, 48, (2, 256), trained=262_144, width=(2_048, 5_120, 151_936), heads=16),
        every=4,
        state=3 * 8_192 + 32 * 128 * 128,
    ),
)
CARDS = (8, 12, 16, 24, 32, 48, 80, 96)  # GiB
