"""What a model is: how the child loads it, what it says of itself once loaded, which files it has.

Loads no llama.cpp: the daemon asks here too.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_HEAD = 4 * 1024 * 1024
_PIECE = 64 * 1024
_PIECES = 64


@dataclass(frozen=True)
class EmbeddingSpec:
    """A second model, which embeds texts; loaded at the first one."""

    model: str  # path of a GGUF file
    window: int = 0  # tokens of a text that are read; 0: what the model was trained for, at most 2,048
    threads: int = 0  # 0: half of the cores
    gpu_layers: int = 0  # 0: it runs on the CPU
    main_gpu: int = 0  # the one that takes them all


@dataclass(frozen=True)
class RemoteSpec:
    """Servers that compute in the place of a model here, by the URLs below which they have OpenAI's routes.

    `model`: which of those that they serve; empty: the only one. `vocabulary`: a GGUF file of the same model, which counts
    where no server does, and has the chat template where none tells it.
    """

    urls: tuple[str, ...]
    model: str = ""
    key: str = field(default="", repr=False)
    vocabulary: str = ""

    @property
    def name(self) -> str:
        return ", ".join(self.urls)


@dataclass(frozen=True)
class EngineSpec:
    """How to load a model. `cells` bounds the KV tokens of all pools together; None means what the grant says later."""

    model: str  # path of a GGUF file
    threads: int = 0  # 0: one a physical core, fewer while other processes keep cores busy
    batch: int = 512
    gpu_layers: int = -1  # as many as fit
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    flash_attention: bool = False  # chosen by `governor.offload.flash_attention`
    drafts: bool = True  # an answer's next tokens are guessed from what it may quote, and verified
    sequences: int = 32
    small_windows: bool = False  # sliding layers keep the window of each sequence alone
    context: int = 0  # tokens of the longest sequence that will be granted; 0: what the model was trained for
    split_mode: str = "layer"  # over several GPUs: layer, row, tensor or none
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    gpu: str = ""  # what it may see, as CUDA_VISIBLE_DEVICES has it; empty: what the daemon sees
    cache_folder: str = ""  # where checkpoints lie; empty: nothing outlives the cells
    disk_budget: int = 0  # bytes
    key: bytes = field(default=b"", repr=False)  # checkpoints are encrypted with it; empty: they are not
    embedding: EmbeddingSpec | None = None
    known: "ModelInfo | None" = None  # by an engine before this one: what its KV has in it is not measured again
    remote: RemoteSpec | None = None  # then nothing is loaded here, and no other field but the model's name counts


@dataclass(frozen=True)
class FimTokens:
    """Between which a model fills in: their ids, and the texts that the vocabulary has for them, in this order."""

    prefix: int
    suffix: int
    middle: int
    texts: tuple[str, str, str]


@dataclass(frozen=True)
class StateSizes:
    """Bytes, as the states of a short sequence tell them. A saved state has `header` and `per_cell` for each cell; 0 where
    it has one size whatever its length.

    In a context a token takes `kv`, a sequence `recurrent`. Where sliding layers have a small cache, which has `window`
    cells a sequence and `batch` more, each of these takes `window_kv`.
    """

    header: int = 0
    per_cell: int = 0
    kv: int = 0
    recurrent: int = 0
    window_kv: int = 0
    window: int = 0
    batch: int = 0


@dataclass(frozen=True)
class KvOrigin:
    """What KV was computed by. `fingerprint` is a digest of all `parts`, which are by their names: equal ones, equal KV."""

    fingerprint: str
    parts: Mapping[str, str]


@dataclass(frozen=True)
class ModelInfo:
    """What the loaded model is. `kv_bytes_per_token` is measured on the loaded context.

    `mapped_bytes`: of its weights, where RAM holds them, those that are pages of their file, which counts as free memory.

    `pool_tokens`: what a pool costs beside its cells, in tokens; the windows of sliding layers in a small cache.
    """

    name: str
    architecture: str
    fingerprint: str
    vocabulary: str  # fingerprint of the vocabulary: equal names give equal ids
    trained_context: int
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: float
    chat_template: str
    bos: str
    eos: str
    add_bos: bool
    ranges: bool  # whether KV can be cut in ranges (not: recurrent, small windows, windows with plain attention)
    device: str  # "CPU", or the GPU's name
    gpu_layers: int
    pool_tokens: int = 0
    states: StateSizes = field(default_factory=StateSizes)
    mapped_bytes: int = 0
    fim: FimTokens | None = None  # none: it was not made to fill in
    metadata: Mapping[str, str] = field(default_factory=dict)
    kv_parts: Mapping[str, str] = field(default_factory=dict)  # what the fingerprint is made of, as `KvOrigin` has it


def shards(first: Path) -> list[Path]:
    """All files of a split model (`name-00001-of-00003.gguf`), or the one file."""
    found = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", first.name)
    if not found:
        return [first]
    return [first.with_name(f"{found[1]}-{number:05d}-of-{found[2]}.gguf") for number in range(1, int(found[2]) + 1)]


def sample_file(path: Path, digest: "hashlib._Hash") -> None:
    """The size, the header and pieces spread over the file: at most 8 MiB are read."""
    size = path.stat().st_size
    digest.update(f"{size}\n".encode())
    with path.open("rb") as file:
        digest.update(file.read(_HEAD))
        for number in range(_PIECES):
            file.seek(max(_HEAD, (size - _PIECE) * (number + 1) // _PIECES))
            digest.update(file.read(_PIECE))


def used(path: Path) -> float:
    """When something was last written or deleted in a folder, or a file was last used."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0  # gone meanwhile


def default_threads() -> int:
    """One a physical core, of those that this process may use."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(psutil.cpu_count(logical=False) or cores, cores))
