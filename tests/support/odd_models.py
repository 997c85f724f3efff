"""Tiny models of random weights: recurrent, hybrid, with a sliding window (cut in ranges with flash attention), LongRoPE.

They share the built-in tokenizer. What they say means nothing; that equal tokens give equal answers is what tests need.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from orchestrator.engine.builtin.shape import Tokens, tokens

WIDTH, LAYERS, CONTEXT = 64, 2, 4096
WINDOW = 64  # tokens that every second layer of the sliding model sees
ORIGINAL = 1024  # context that the model with LongRoPE was first trained for

Tensors = dict[str, np.ndarray]
Draw = Callable[..., np.ndarray]

# How windows are kept, as settings of an EngineSpec, by the words behind a kind: "sliding in ranges".
WINDOWS: dict[str, dict[str, Any]] = {
    "": {"flash_attention": False},
    "in ranges": {"flash_attention": True},
    "small": {"flash_attention": True, "small_windows": True, "sequences": 8},
}


def recurrent(path: Path) -> Path:
    """Architecture `mamba`: one state a sequence, whatever its length."""
    inner, state, rank, kernel = 2 * WIDTH, 16, 8, 4

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_ssm_conv_kernel(kernel)
        writer.add_ssm_inner_size(inner)
        writer.add_ssm_state_size(state)
        writer.add_ssm_time_step_rank(rank)

    def layer(draw: Draw, _: int) -> Tensors:
        return {
            "attn_norm.weight": np.ones(WIDTH, np.float32),
            "ssm_in.weight": draw(2 * inner, WIDTH),
            "ssm_conv1d.weight": draw(inner, kernel),
            "ssm_conv1d.bias": draw(inner),
            "ssm_x.weight": draw(rank + 2 * state, inner),
            "ssm_dt.weight": draw(inner, rank),
            "ssm_dt.bias": draw(inner),
            "ssm_a": -np.tile(np.arange(1, state + 1, dtype=np.float32), (inner, 1)),
            "ssm_d": np.ones(inner, np.float32),
            "ssm_out.weight": draw(WIDTH, inner),
        }

    return write(path, "mamba", describe, layer)


def hybrid(path: Path, template: str = "") -> Path:
    """Architecture `lfm2`: a layer of convolution, which has a state, and one of attention, which has cells.

    `template`: its chat template, where it is not to be the built-in one.
    """
    heads, head, feed, kernel = 2, 32, 128, 3

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_feed_forward_length(feed)
        writer.add_head_count(heads)
        writer.add_head_count_kv([0, heads])
        writer.add_shortconv_l_cache(kernel)
        if template:
            writer.add_chat_template(template)

    def layer(draw: Draw, number: int) -> Tensors:
        both = {
            "attn_norm.weight": np.ones(WIDTH, np.float32),
            "ffn_norm.weight": np.ones(WIDTH, np.float32),
            "ffn_gate.weight": draw(feed, WIDTH),
            "ffn_up.weight": draw(feed, WIDTH),
            "ffn_down.weight": draw(WIDTH, feed),
        }
        if number == 0:
            return both | {
                "shortconv.conv.weight": draw(WIDTH, kernel),
                "shortconv.in_proj.weight": draw(3 * WIDTH, WIDTH),
                "shortconv.out_proj.weight": draw(WIDTH, WIDTH),
            }
        norms = {f"attn_{one}_norm.weight": np.ones(head, np.float32) for one in "qk"}
        return both | norms | {f"attn_{one}.weight": draw(WIDTH, WIDTH) for one in ("q", "k", "v", "output")}

    return write(path, "lfm2", describe, layer, norm="token_embd_norm")


def sliding(path: Path) -> Path:
    """Architecture `gemma2`: every second layer forgets what is more than a window back."""
    heads, kv_heads, head, feed = 4, 2, 32, 128

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_feed_forward_length(feed)
        writer.add_head_count(heads)
        writer.add_head_count_kv(kv_heads)
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
        writer.add_sliding_window(WINDOW)

    def layer(draw: Draw, _: int) -> Tensors:
        norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        return {
            **{f"{norm}.weight": np.ones(WIDTH, np.float32) for norm in norms},
            "attn_q.weight": draw(heads * head, WIDTH),
            "attn_k.weight": draw(kv_heads * head, WIDTH),
            "attn_v.weight": draw(kv_heads * head, WIDTH),
            "attn_output.weight": draw(WIDTH, heads * head),
            "ffn_gate.weight": draw(feed, WIDTH),
            "ffn_up.weight": draw(feed, WIDTH),
            "ffn_down.weight": draw(WIDTH, feed),
        }

    return write(path, "gemma2", describe, layer)


def long_rope(path: Path, only: str = "") -> Path:
    """Architecture `llama` with two sets of rope factors; `only` long or short: that set for contexts of any size."""
    heads, head, feed = 2, 32, 128
    sets = {
        "long": np.linspace(2, 12, head // 2, dtype=np.float32),
        "short": np.linspace(1, 1.2, head // 2, dtype=np.float32),
    }

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_feed_forward_length(feed)
        writer.add_head_count(heads)
        writer.add_head_count_kv(heads)
        writer.add_rope_dimension_count(head)
        writer.add_rope_freq_base(10_000.0)
        if only:
            writer.add_tensor("rope_freqs.weight", sets[only])
            return
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(ORIGINAL)
        for name, values in sets.items():
            writer.add_tensor(f"rope_factors_{name}.weight", values)

    def layer(draw: Draw, _: int) -> Tensors:
        return {
            "attn_norm.weight": np.ones(WIDTH, np.float32),
            "ffn_norm.weight": np.ones(WIDTH, np.float32),
            **{f"attn_{one}.weight": 3 * draw(WIDTH, WIDTH) for one in ("q", "k", "v", "output")},
            "ffn_gate.weight": draw(feed, WIDTH),
            "ffn_up.weight": draw(feed, WIDTH),
            "ffn_down.weight": draw(WIDTH, feed),
        }

    return write(path, "llama", describe, layer)


FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")  # llama.cpp knows them by these texts


def filling(path: Path) -> Path:
    """Architecture `llama` with tokens for filling in, in the place of the last three merges."""
    heads, head, feed = 2, 32, 128
    known = tokens()

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_feed_forward_length(feed)
        writer.add_head_count(heads)
        writer.add_head_count_kv(heads)
        writer.add_rope_dimension_count(head)

    def layer(draw: Draw, _: int) -> Tensors:
        return {
            "attn_norm.weight": np.ones(WIDTH, np.float32),
            "ffn_norm.weight": np.ones(WIDTH, np.float32),
            **{f"attn_{one}.weight": 3 * draw(WIDTH, WIDTH) for one in ("q", "k", "v", "output")},
            "ffn_gate.weight": draw(feed, WIDTH),
            "ffn_up.weight": draw(feed, WIDTH),
            "ffn_down.weight": draw(WIDTH, feed),
        }

    own = Tokens((*known.texts[:-4], *FIM, known.texts[-1]), known.merges[:-3])
    return write(path, "llama", describe, layer, vocabulary=own)


def write(
    path: Path,
    architecture: str,
    describe: Callable[[gguf.GGUFWriter], None],
    layer: Callable[[Draw, int], Tensors],
    norm: str = "output_norm",
    vocabulary: Tokens | None = None,
) -> Path:
    random = np.random.default_rng(7)

    def draw(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    vocabulary = vocabulary or tokens()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary.texts))
    vocabulary.describe(writer)
    describe(writer)
    writer.add_tensor("token_embd.weight", draw(len(vocabulary.texts), WIDTH))
    writer.add_tensor(f"{norm}.weight", np.ones(WIDTH, np.float32))
    for number in range(LAYERS):
        for name, data in layer(draw, number).items():
            writer.add_tensor(f"blk.{number}.{name}", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
