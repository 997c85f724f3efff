"""The cost of a model in bytes, before it is loaded: weights, KV of a pool of cells, recurrent state, working buffers.

    kv(cells) = padded cells * bytes per token + sequences * state bytes

Sliding layers count as the others: the engine keeps every cell of theirs (`swa_full`). Sources: llama-kv-cache.cpp and
llama-memory-recurrent.cpp of llama.cpp 0c1e5709. After loading the real figures replace the estimate. Knows nothing of free
memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from governor.gguf import BY_NAME, KV_TYPES, TensorType
from governor.model_shape import FootprintError, Layer, ModelShape

CELL_STEP = 256  # llama.cpp pads a pool to a multiple of it
SCORE_BYTES = 64 * 1024 * 1024  # what the scores of rows computed together may take without flash attention
SCORED_ROWS = 16  # never fewer are computed together, however long the pool is
STATE_BYTES = 4  # recurrent state is f32


@dataclass(frozen=True)
class KvPlan:
    """How a pool is to be opened. `keys` and `values` are ggml types; the pool is unified."""

    keys: str = "f16"
    values: str = "f16"
    sequences: int = 1
    ubatch: int = 512
    flash_attention: bool = True


def kv_cost(shape: ModelShape, plan: KvPlan, cells: int, layers: Sequence[Layer] | None = None) -> int:
    """Bytes of KV of a pool of `cells` tokens, of all layers or of those given.

    FootprintError where the architecture cannot be predicted or a KV type does not suit the width of its heads.
    """
    return padded(cells) * bytes_per_token(shape, plan, layers) + _state_bytes(shape, plan, layers)


def bytes_per_token(shape: ModelShape, plan: KvPlan, layers: Sequence[Layer] | None = None) -> int:
    """What one more cell costs."""
    keys, values = _types_for(shape, plan)
    return sum(_token_bytes(layer, keys, values) for layer in (shape.layers if layers is None else layers))


def _state_bytes(shape: ModelShape, plan: KvPlan, layers: Sequence[Layer] | None) -> int:
    states = sum(layer.state for layer in (shape.layers if layers is None else layers))
    return states * STATE_BYTES * max(1, plan.sequences)


def cells_within(shape: ModelShape, plan: KvPlan, size: int, layers: Sequence[Layer] | None = None) -> int | None:
    """The largest pool, in cells, whose KV fits into `size` bytes; 0 when none does, None when cells cost nothing."""
    left = size - _state_bytes(shape, plan, layers)
    if left < 0:
        return 0
    step = CELL_STEP * bytes_per_token(shape, plan, layers)
    return left // step * CELL_STEP if step else None


def kv_types(shape: ModelShape) -> tuple[str, ...]:
    """The KV types whose blocks divide the model's heads, largest first."""
    return tuple(kind.name for kind in KV_TYPES if not _misfits(shape, kind, kind))


def misfit(shape: ModelShape, plan: KvPlan) -> str:
    """Why these KV types cannot be used with the model; "" where they can, or nothing is known of its KV."""
    return "" if shape.unpredictable else _misfits(shape, _kv_type(plan.keys), _kv_type(plan.values))


def working_bytes(shape: ModelShape, plan: KvPlan, cells: int) -> int:
    """An estimate of llama.cpp's compute and output buffers: activations, logits, the mask, and what attention holds.

    Logits of a whole batch and of every sequence, a few activations of the widest kind, and a mask per cache, of which
    sliding layers have their own: f16 with flash attention, f32 without. Without it the scores of all heads are held too,
    and a quarter as much beside them.
    """
    wide = 4 * max(shape.embedding, shape.feed_forward) + shape.vocabulary
    rows = plan.ubatch if plan.flash_attention else rows_together(plan.ubatch, shape.heads, padded(cells))
    masked = padded(cells) * (2 if shape.window else 1)
    mask = rows * (2 if plan.flash_attention else 4) * masked
    scores = 0 if plan.flash_attention else rows * score_bytes(shape.heads, padded(cells)) * 5 // 4
    return rows * 4 * wide + mask + scores + plan.sequences * shape.vocabulary * 4


def rows_together(batch: int, heads: int, cells: int) -> int:
    """How many rows of a batch are computed at once without flash attention, which holds their scores against all cells."""
    return min(batch, max(SCORED_ROWS, SCORE_BYTES // max(1, score_bytes(heads, cells))))


def score_bytes(heads: int, cells: int) -> int:
    """Of one row against all cells of a pool, f32, in all heads of a layer."""
    return 4 * heads * cells


def padded(cells: int) -> int:
    return -(-max(cells, 0) // CELL_STEP) * CELL_STEP


def _types_for(shape: ModelShape, plan: KvPlan) -> tuple[TensorType, TensorType]:
    if shape.unpredictable:
        raise FootprintError(
            f"the KV of {shape.name} ({shape.architecture}) cannot be predicted: {shape.unpredictable}; "
            "load it with a given n_ctx, the real size is read then"
        )
    keys, values = _kv_type(plan.keys), _kv_type(plan.values)
    if why := _misfits(shape, keys, values):
        raise FootprintError(f"{why}; use one of: {', '.join(kv_types(shape))}")
    return keys, values


def _kv_type(name: str) -> TensorType:
    kind = BY_NAME.get(name)
    if kind not in KV_TYPES:
        raise FootprintError(f"{name!r} is no KV type; use one of: {', '.join(one.name for one in KV_TYPES)}")
    return kind


def _misfits(shape: ModelShape, keys: TensorType, values: TensorType) -> str:
    """llama.cpp refuses a quantised cache whose blocks do not divide a head, and two types for one compressed cache."""
    if shape.compressed and keys is not values:
        return f"{shape.name} keeps keys and values in one: KV types {keys.name} and {values.name} must be the same"
    for layer in shape.layers:
        for kind, width in ((keys, layer.head_keys), (values, layer.head_values)):
            if width % kind.values:
                return f"KV type {kind.name} needs heads of a multiple of {kind.values}, {shape.name} has {width}"
    return ""


def _token_bytes(layer: Layer, keys: TensorType, values: TensorType) -> int:
    """A layer's heads are whole blocks of these types (`_misfits`)."""
    return layer.keys // keys.values * keys.size + layer.values // values.values * values.size
