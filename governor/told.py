"""What a header says of its model beside the shape: heads, quantisation, the length it may be used with, what it is for.

Source: llama.h and llama-hparams of llama.cpp 0c1e5709. Knows no memory and no cost.
"""

from dataclasses import dataclass

from governor.architectures import NO_CACHE
from governor.gguf import Gguf

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


@dataclass(frozen=True)
class Told:
    """`heads` and `kv_heads` of the layer that has most; fewer KV heads are grouped. `quantisation`: as files are named."""

    heads: int
    kv_heads: int
    quantisation: str


def told_of(gguf: Gguf) -> Told:
    architecture = gguf.text("general.architecture")
    heads = _most(gguf, f"{architecture}.attention.head_count")
    return Told(heads, _most(gguf, f"{architecture}.attention.head_count_kv") or heads, quantisation_of(gguf))


def quantisation_of(gguf: Gguf) -> str:
    """As the file calls it, else the type that takes most of its bytes."""
    told = gguf.number("general.file_type")
    if told in _QUANTISATIONS:
        return _QUANTISATIONS[told]
    sizes: dict[str, int] = {}
    for tensor in gguf.tensors:
        sizes[tensor.kind.name] = sizes.get(tensor.kind.name, 0) + tensor.size
    return max(sizes, key=sizes.__getitem__).upper() if sizes else "unknown"


def trained_length(gguf: Gguf) -> int:
    """Tokens: as trained, or as far as the rope scaling that the file states reaches; 0 where the file tells neither.

    llama.cpp applies a stated scaling whatever `context_length` says; some converters leave that at the original length.
    """
    architecture = gguf.text("general.architecture")
    told = gguf.number(f"{architecture}.context_length") or 0
    factor = gguf.metadata.get(f"{architecture}.rope.scaling.factor")
    original = gguf.number(f"{architecture}.rope.scaling.original_context_length")
    if gguf.text(f"{architecture}.rope.scaling.type") in _NO_SCALING or not original:
        return told
    return max(told, int(original * factor)) if isinstance(factor, float) and factor > 1 else told


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
    return "" if vector_length(gguf) else "its header does not tell the length of its vectors"


def vector_length(gguf: Gguf) -> int:
    """Numbers in a vector of this model; 0 where its header does not tell."""
    architecture = gguf.text("general.architecture")
    told = gguf.number(f"{architecture}.embedding_length_out") or gguf.number(f"{architecture}.embedding_length")
    return told or 0


def _most(gguf: Gguf, key: str) -> int:
    value = gguf.metadata.get(key)
    if isinstance(value, tuple):
        return max((int(one) for one in value if isinstance(one, int)), default=0)
    return value if isinstance(value, int) else 0
