"""The shape of a model, from its header: layers with the width of their keys and values, bytes of weights, its use.

    header -> architecture -> per layer: attends? slides? recurs? how wide -> ModelShape
           -> quantisation, a chat model?, an embedding model?

Follows `load_hparams` and the KV caches' constructors of llama.cpp 0c1e5709. Knows nothing of free memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from governor.architectures import (
    HYBRID_ALL,
    HYBRID_BY_HEADS,
    HYBRID_BY_INTERVAL,
    KV_FROM_START,
    KV_SHARED,
    NO_CACHE,
    RECURRENT,
    SLIDING,
    UNGROUPED,
    Sliding,
    unpredictable,
)
from governor.gguf import Gguf, TensorInfo


class FootprintError(Exception):
    """The cost of a model cannot be computed: its architecture is unknown, or the KV type does not fit its heads."""


@dataclass(frozen=True)
class Layer:
    """Values per token that its cache keeps: `keys` and `values`, 0 where it keeps none (a shared or recurrent layer).

    `state`: f32 values per sequence of a recurrent layer. `head_keys` and `head_values` are one head's widths: a quantised
    cache needs whole blocks of them. `slides`: it sees the model's window alone.
    """

    weights: int
    keys: int = 0
    values: int = 0
    head_keys: int = 0
    head_values: int = 0
    state: int = 0
    slides: bool = False


@dataclass(frozen=True)
class ModelShape:
    """A model in numbers. Weights in bytes as the file holds them: `layers`' own, `input` embedding, `output` head.

    `trained`: tokens of the longest context, with the rope scaling that the file states. `heads` and `kv_heads` of the
    layer that has most; fewer KV heads than heads are grouped.
    `window`: the sliding window in tokens, 0 without. `compressed`: MLA, values are read out of the keys. `tied`: there
    is no output tensor, the embedding serves twice. `unpredictable` says why KV cannot be predicted; None when it can.
    """

    architecture: str
    name: str
    trained: int
    embedding: int
    heads: int
    kv_heads: int
    vocabulary: int
    feed_forward: int
    layers: tuple[Layer, ...]
    window: int
    compressed: bool
    input: int
    output: int
    tied: bool
    by_type: Mapping[str, int]
    unpredictable: str | None

    @cached_property
    def weights(self) -> int:
        return self.input + self.output + sum(layer.weights for layer in self.layers)


def shape_of(gguf: Gguf) -> ModelShape:
    """FootprintError when the header lacks what every model has: architecture, layers, trained length, width."""
    return _Reader(gguf).shape()


class _Reader:
    """One header, its keys prefixed by its architecture."""

    def __init__(self, gguf: Gguf) -> None:
        self.gguf = gguf
        self.architecture = gguf.text("general.architecture")
        self.nextn = self.number("nextn_predict_layers") or 0
        self.blocks = self.layers_there()
        self.embedding = self.needed("embedding_length")
        self.heads = self.per_layer("attention.head_count", 0)
        self.heads_kv = self.per_layer("attention.head_count_kv", None) or self.heads
        self.feed_forward = self.per_layer("feed_forward_length", 0)
        self.mla = bool(self.number("attention.key_length_mla") and self.number("attention.value_length_mla"))

    def layers_there(self) -> int:
        """What the header says, which loading would take for true, if the file has a tensor of the last one."""
        said, names = self.needed("block_count"), ([*one.name.split("."), ""] for one in self.gguf.tensors)
        there = 1 + max((int(at) for place, at, *_ in names if place == "blk" and at.isdecimal()), default=-1)
        if said > there + self.nextn:
            raise self.fault(f"block_count says {said:,} layers, and there are tensors of {there:,}")
        return said

    def shape(self) -> ModelShape:
        weights = _weights_by_place(self.gguf.tensors, self.blocks)
        layers = self.layers([weights[f"blk.{at}"] for at in range(self.blocks)])
        return ModelShape(
            architecture=self.architecture,
            name=self.gguf.text("general.name", self.gguf.path.stem),
            trained=max(self.needed("context_length"), trained_length(self.gguf)),
            embedding=self.embedding,
            heads=max(self.heads, default=0),
            kv_heads=max(self.heads_kv, default=0),
            vocabulary=self.vocabulary(),
            feed_forward=max(self.feed_forward, default=0),
            layers=layers,
            window=self.window() if any(self.sliding_layers()) else 0,
            compressed=self.mla,
            input=weights["input"],
            output=weights["output"],
            tied=not any(tensor.name == "output.weight" for tensor in self.gguf.tensors),
            by_type=_weights_by_type(self.gguf.tensors),
            unpredictable=unpredictable(self.architecture),
        )

    def layers(self, weights: list[int]) -> tuple[Layer, ...]:
        sliding = self.sliding_layers()
        made = [self.layer(at, weights[at], sliding[at]) for at in range(self.blocks)]
        if self.architecture == "nanbeige":  # the same weights run several times, each time with a KV of its own
            again = [Layer(0, one.keys, one.values, one.head_keys, one.head_values) for one in made]
            made += again * ((self.number("num_loops") or 1) - 1)
        if self.architecture == "graniteswitch":  # one more head that routes between adapters
            keys, values = self.head_width("key", False), self.head_width("value", False)
            made.append(Layer(0, keys, values, keys, values))
        return tuple(made)

    def layer(self, at: int, weights: int, sliding: bool) -> Layer:
        state = self.state() if self.recurs(at) else 0
        if not self.attends(at):
            return Layer(weights, state=state)
        keys, values = self.head_width("key", sliding), self.head_width("value", sliding)
        heads = self.heads_kv[at]
        kept = 0 if self.mla else heads * values  # compressed attention reads its values out of the keys
        return Layer(weights, heads * keys, kept, keys, values, state, sliding)

    def attends(self, at: int) -> bool:
        arch = self.architecture
        if arch in RECURRENT or at >= self.kv_layers():
            return False
        if arch.startswith("nemotron_h"):
            return not self.recurs(at) and self.feed_forward[at] == 0
        if arch in HYBRID_BY_HEADS:
            return not self.recurs(at)
        if at >= self.blocks - self.nextn and self.nextn < self.blocks:
            return False  # a draft head's layers belong to a context of their own
        return arch in HYBRID_ALL or not self.recurs(at)

    def recurs(self, at: int) -> bool:
        arch = self.architecture
        if at >= self.blocks - self.nextn:
            return False
        if arch in RECURRENT or arch in HYBRID_ALL:
            return True
        if arch.startswith("nemotron_h"):
            return self.heads_kv[at] == 0 and self.feed_forward[at] == 0
        if arch in HYBRID_BY_HEADS:
            return self.heads_kv[at] == 0
        if arch in HYBRID_BY_INTERVAL:
            named = self.flags("attention.recurrent_layers")
            interval = self.number("full_attention_interval") or HYBRID_BY_INTERVAL[arch]
            return named[at] if named else (at + 1) % interval != 0
        return False

    def kv_layers(self) -> int:
        """Layers from this one on use the KV of an earlier one."""
        if self.architecture in KV_SHARED:
            return self.blocks - (self.number("attention.shared_kv_layers") or 0)
        return KV_FROM_START.get(self.architecture, self.blocks)

    def head_width(self, side: str, sliding: bool) -> int:
        heads = self.heads[0] if self.heads else 0
        if heads == 0:
            return 0
        full = self.number(f"attention.{side}_length")
        width = self.embedding // heads if full is None else full
        if not sliding:
            return width
        own = self.number(f"attention.{side}_length_swa")
        return width if own is None else own

    # ---- sliding windows ---------------------------------------------------------------------------------------

    def window(self) -> int:
        """The window in tokens; 0 when the architecture does not slide, whatever the file has."""
        stated = self.number("attention.sliding_window")
        if self.architecture == "lfm2":
            return stated or 0
        rule = SLIDING.get(self.architecture)
        if rule is None or (rule.only_layers not in (None, self.trunk())) or (stated == 0 and rule.fixed):
            return 0
        if rule.optional and not stated:
            return 0
        return rule.fixed or stated or rule.default or 0

    def sliding_layers(self) -> list[bool]:
        if self.window() == 0:
            return [False] * self.blocks
        if self.architecture == "lfm2":
            return [not self.recurs(at) and at < self.trunk() for at in range(self.blocks)]
        pattern = self.flags("attention.sliding_window_pattern")
        if pattern:
            return pattern
        return self.by_period(SLIDING[self.architecture])

    def by_period(self, rule: Sliding) -> list[bool]:
        stated = self.number("attention.sliding_window_pattern")
        period = rule.period if stated is None else stated
        if period is None:
            raise self.fault("attention.sliding_window_pattern is missing")
        dense = 0 if rule.dense_first else period - 1
        return [at < self.trunk() and (period == 0 or at % period != dense) for at in range(self.blocks)]

    def trunk(self) -> int:
        return self.blocks - self.nextn

    # ---- recurrent state ---------------------------------------------------------------------------------------

    def state(self) -> int:
        """f32 values per layer and sequence (`n_embd_r` + `n_embd_s` of llama-hparams.cpp)."""
        return self.state_shift() + self.state_memory()

    def state_shift(self) -> int:
        if self.number("wkv.head_size"):
            shifts = self.number("token_shift_count")
            return (2 if shifts is None else shifts) * self.embedding
        if short := self.number("shortconv.l_cache"):
            return self.embedding * (short - 1)
        kernel = self.number("ssm.conv_kernel") or 0
        if head := self.number("kda.head_dim"):
            return 3 * (kernel - 1 if kernel else 3) * self.heads[0] * head
        grouped = self.architecture not in UNGROUPED
        groups, state = (self.number("ssm.group_count") or 0) * grouped, self.number("ssm.state_size") or 0
        return max(0, kernel - 1) * ((self.number("ssm.inner_size") or 0) + 2 * groups * state)

    def state_memory(self) -> int:
        if wkv := self.number("wkv.head_size"):
            return self.embedding * wkv
        if head := self.number("kda.head_dim"):
            return head * head * self.heads[0]
        if self.architecture == "minimax-01":
            return self.head_width("key", False) ** 2 * self.heads[0]
        return (self.number("ssm.state_size") or 0) * (self.number("ssm.inner_size") or 0)

    # ---- keys --------------------------------------------------------------------------------------------------

    def number(self, key: str) -> int | None:
        return self.gguf.number(f"{self.architecture}.{key}")

    def needed(self, key: str) -> int:
        value = self.number(key)
        if not value or value < 0:
            raise self.fault(f"{key} is missing or 0")
        return value

    def per_layer(self, key: str, default: int | None) -> list[int]:
        """One number for all layers, or one each. Empty without the key and without a default."""
        full = f"{self.architecture}.{key}"
        value = self.gguf.metadata.get(full, default)
        if isinstance(value, tuple):
            if len(value) != self.blocks:
                raise self.fault(f"{key} has {len(value)} values for {self.blocks} layers")
            return [int(one) for one in value]
        return [] if not isinstance(value, int) else [value] * self.blocks

    def flags(self, key: str) -> list[bool]:
        value = self.gguf.metadata.get(f"{self.architecture}.{key}")
        if not isinstance(value, tuple):
            return []
        return ([bool(one) for one in value] + [False] * self.blocks)[: self.blocks]

    def vocabulary(self) -> int:
        for tensor in self.gguf.tensors:
            if tensor.name in ("token_embd.weight", "output.weight") and len(tensor.shape) == 2:
                return tensor.shape[1]
        return self.number("vocab_size") or 0

    def fault(self, what: str) -> FootprintError:
        arch = self.architecture or "no architecture"
        return FootprintError(f"{self.gguf.path}: {what} in a header of {arch}; it is no complete language model")


def _weights_by_place(tensors: tuple[TensorInfo, ...], blocks: int) -> dict[str, int]:
    """Bytes per `blk.N`, of the `input` (kept in RAM by llama.cpp) and of the `output` with all that is left."""
    places = {f"blk.{at}": 0 for at in range(blocks)} | {"input": 0, "output": 0}
    for tensor in tensors:
        block = ".".join(tensor.name.split(".")[:2])
        place = (
            block
            if block in places
            else ("input" if tensor.name.startswith(("token_", "position_", "per_layer_token_")) else "output")
        )
        places[place] += tensor.size
    return places


def _weights_by_type(tensors: tuple[TensorInfo, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.kind.name] = sizes.get(tensor.kind.name, 0) + tensor.size
    return sizes


# ---- its use ---------------------------------------------------------------------------------------------------------

_NO_SCALING = ("", "none")
_POOLINGS = {1: "mean", 2: "cls", 3: "last", 4: "rank"}
_RANK = 4
# general.file_type: the numbers of `llama_ftype`; those that are left out are no longer in use.
_LEGACY = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 32: "BF16"}
_K_QUANTS = {10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S"}
_MORE_K = {17: "Q5_K_M", 18: "Q6_K", 21: "Q2_K_S"}
_IMPORTANCE = {19: "IQ2_XXS", 20: "IQ2_XS", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S"}
_MORE_IMPORTANCE = {27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M"}
_NEWER = {36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0"}
_QUANTISATIONS = _LEGACY | _K_QUANTS | _MORE_K | _IMPORTANCE | _MORE_IMPORTANCE | _NEWER


def quantisation_of(gguf: Gguf) -> str:
    """As the file calls it, else the type that takes most of its bytes."""
    stated = gguf.number("general.file_type")
    if stated in _QUANTISATIONS:
        return _QUANTISATIONS[stated]
    sizes = _weights_by_type(gguf.tensors)
    return max(sizes, key=sizes.__getitem__).upper() if sizes else "unknown"


def trained_length(gguf: Gguf) -> int:
    """Tokens: as trained, or as far as the rope scaling that the file states reaches; 0 where the file states neither.

    llama.cpp applies a stated scaling whatever `context_length` says; some converters leave that at the original length.
    """
    architecture = gguf.text("general.architecture")
    stated = gguf.number(f"{architecture}.context_length") or 0
    factor = gguf.metadata.get(f"{architecture}.rope.scaling.factor")
    original = gguf.number(f"{architecture}.rope.scaling.original_context_length")
    if gguf.text(f"{architecture}.rope.scaling.type") in _NO_SCALING or not original:
        return stated
    return max(stated, int(original * factor)) if isinstance(factor, float) and factor > 1 else stated


def no_chat(gguf: Gguf) -> str:
    """Why this is no model to talk with, and what it is instead; "" where it may be one."""
    architecture, kind = gguf.text("general.architecture"), gguf.text("general.type", "model")
    if architecture == "clip" or kind == "mmproj":
        return "it is the image part (mmproj) of another model; name that model's own file"
    if kind == "adapter":
        return "it is an adapter (LoRA) of another model; name that model's own file"
    if kind in ("vocab", "imatrix") or not gguf.tensors:
        return "it holds no weights"
    pooling = gguf.number(f"{architecture}.pooling_type") or 0
    if pooling == _RANK:
        return "it is a ranking model: it gives a score and no text"
    if pooling in _POOLINGS or architecture in NO_CACHE:
        how = f" (pooling: {_POOLINGS[pooling]})" if pooling in _POOLINGS else ""
        return f"it is an embedding model or encoder{how}: it gives vectors and no text"
    return ""


def no_embedding(gguf: Gguf) -> str:
    """Why this model gives no vectors of texts; "" where it does."""
    architecture = gguf.text("general.architecture")
    pooling = gguf.number(f"{architecture}.pooling_type") or 0
    if pooling == _RANK:
        return "it is a ranking model: it gives a score"
    if not pooling and gguf.metadata.get(f"{architecture}.attention.causal") is not False:
        return f"it is a model of architecture {architecture} that writes text"
    return "" if vector_length(gguf) else "its header does not state the length of its vectors"


def vector_length(gguf: Gguf) -> int:
    """Numbers in a vector of this model; 0 where its header does not state it."""
    architecture = gguf.text("general.architecture")
    stated = gguf.number(f"{architecture}.embedding_length_out") or gguf.number(f"{architecture}.embedding_length")
    return stated or 0
