"""The cost of a model in bytes, before it is loaded: weights, KV of a pool of cells, recurrent state, working buffers.

    kv(cells) = padded cells * bytes per token + sequences * state bytes
                + window cells * bytes per token of sliding layers

Sliding layers count as the others where the engine keeps every cell of theirs (`swa_full`). In a small cache they have
window cells, whose number does not grow with the pool. Sources: llama-kv-cache.cpp, llama-kv-cache-iswa.cpp and
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
LOGIT_ROWS = 64  # of a batch may have logits, or one a sequence: answers, and what is drafted for them
STATE_BYTES = 4  # recurrent state is f32
BOUND_WORD_BYTES = 450  # of a vocabulary, for what binds answers to schemas


@dataclass(frozen=True)
class KvPlan:
    """How a pool is to be opened. `keys` and `values` are ggml types; the pool is unified.

    `small_windows`: sequences of a pool whose sliding layers keep the window of each alone; 0: they keep every cell.
    """

    keys: str = "f16"
    values: str = "f16"
    sequences: int = 1
    ubatch: int = 512
    flash_attention: bool = True
    small_windows: int = 0

    @property
    def pool_sequences(self) -> int:
        return self.small_windows or self.sequences


def kv_cost(shape: ModelShape, plan: KvPlan, cells: int, layers: Sequence[Layer] | None = None) -> int:
    """Bytes of KV of a pool of `cells` tokens, of all layers or of those given.

    FootprintError where the architecture cannot be predicted or a KV type does not suit the width of its heads.
    """
    windows = min(padded(cells), _window_cells(shape, plan)) * _window_token_bytes(shape, plan, layers)
    return padded(cells) * bytes_per_token(shape, plan, layers) + windows + _state_bytes(shape, plan, layers)


def bytes_per_token(shape: ModelShape, plan: KvPlan, layers: Sequence[Layer] | None = None) -> int:
    """What one more cell costs."""
    keys, values = _types_for(shape, plan)
    growing = (layer for layer in _of(shape, layers) if not (plan.small_windows and layer.slides))
    return sum(_token_bytes(layer, keys, values) for layer in growing)


def window_bytes(shape: ModelShape, plan: KvPlan) -> int:
    """What the sliding layers of a pool take in a small cache, however many cells it has."""
    return _window_cells(shape, plan) * _window_token_bytes(shape, plan, None)


def window_cells(window: int, sequences: int, ubatch: int) -> int:
    """Cells that llama.cpp gives to sliding layers in a small cache: a window for each sequence, and a batch."""
    return padded(window * sequences + ubatch)


def _window_cells(shape: ModelShape, plan: KvPlan) -> int:
    return window_cells(shape.window, plan.small_windows, plan.ubatch)


def _window_token_bytes(shape: ModelShape, plan: KvPlan, layers: Sequence[Layer] | None) -> int:
    if not plan.small_windows:
        return 0
    keys, values = _types_for(shape, plan)
    return sum(_token_bytes(layer, keys, values) for layer in _of(shape, layers) if layer.slides)


def _state_bytes(shape: ModelShape, plan: KvPlan, layers: Sequence[Layer] | None) -> int:
    return sum(layer.state for layer in _of(shape, layers)) * STATE_BYTES * max(1, plan.pool_sequences)


def _of(shape: ModelShape, layers: Sequence[Layer] | None) -> Sequence[Layer]:
    return shape.layers if layers is None else layers


def cells_within(shape: ModelShape, plan: KvPlan, size: int, layers: Sequence[Layer] | None = None) -> int | None:
    """The largest pool, in cells, whose KV fits into `size` bytes; 0 when none does, None when cells cost nothing."""
    left = size - _state_bytes(shape, plan, layers)
    if left < 0:
        return 0
    growing, sliding = bytes_per_token(shape, plan, layers), _window_token_bytes(shape, plan, layers)
    windows = _window_cells(shape, plan) if sliding else 0
    beyond = left - windows * sliding  # what is left once the windows have all their cells
    if beyond < windows * growing:
        return left // (CELL_STEP * (growing + sliding)) * CELL_STEP
    return beyond // (CELL_STEP * growing) * CELL_STEP if growing else None


def kv_types(shape: ModelShape) -> tuple[str, ...]:
    """The KV types whose blocks divide the model's heads, largest first."""
    return tuple(kind.name for kind in KV_TYPES if not _misfits(shape, kind, kind))


def misfit(shape: ModelShape, plan: KvPlan) -> str:
    """Why these KV types cannot be used with the model; "" where they can, or nothing is known of its KV."""
    return "" if shape.unpredictable else _misfits(shape, _kv_type(plan.keys), _kv_type(plan.values))


def working_bytes(shape: ModelShape, plan: KvPlan, cells: int, logits: int = 0) -> int:
    """An estimate of llama.cpp's compute and output buffers. `logits`: for so many rows of a batch; 0: as for answers.

    A mask per cache, of which sliding layers have their own: f16 with flash attention, f32 without. Beside it, one after
    the other in one place: a few activations of the widest kind, and without flash attention the scores of all heads and an
    eighth of them. The logits come last, in the place of all these; what is read of them has a buffer of its own. Buffers
    are for rows that are a multiple of the sequences (`graph_reserve`).
    """
    rows = plan.ubatch if plan.flash_attention else rows_together(plan.ubatch, shape.heads, padded(cells))
    sequences = max(1, plan.pool_sequences)
    rows = -(-rows // sequences) * sequences
    activations = rows * 4 * 4 * max(shape.embedding, shape.feed_forward)
    mask = rows * (2 if plan.flash_attention else 4) * padded(cells) * (2 if shape.window else 1)
    scores = 0 if plan.flash_attention else rows * score_bytes(shape.heads, padded(cells)) * 9 // 8
    word = 4 * shape.vocabulary
    return max(mask + max(activations, scores), (logits or logit_rows(sequences)) * word) + sequences * word


def binding_bytes(shape: ModelShape) -> int:
    """Bytes of RAM for what binds answers to schemas and calls of tools, whatever runs on a GPU. It is made for the first
    of them, and stays."""
    return shape.vocabulary * BOUND_WORD_BYTES


def logit_rows(sequences: int) -> int:
    """For how many rows of a batch logits are computed at once."""
    return max(sequences, LOGIT_ROWS)


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
