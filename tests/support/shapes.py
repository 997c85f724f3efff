"""Shapes of models, for tests that plan with them: an 8B of the llama family, or what differs from it."""

from dataclasses import replace
from typing import Any

from governor.model_shape import Layer, ModelShape
from governor.settings import GIB, MIB

# 32 layers, 8 KV heads of 128, 4 GiB of weights.
LLAMA_8B = ModelShape(
    architecture="llama",
    name="llama 8B",
    trained=131_072,
    embedding=4_096,
    heads=32,
    kv_heads=8,
    vocabulary=128_256,
    feed_forward=14_336,
    layers=(Layer(120 * MIB, 1_024, 1_024, 128, 128),) * 32,
    window=0,
    compressed=False,
    input=128 * MIB,
    output=128 * MIB,
    tied=False,
    by_type={"q4_k": 4 * GIB},
    unpredictable=None,
)


def shape(**changes: Any) -> ModelShape:
    return replace(LLAMA_8B, **changes)
