"""The root of every segment's name: a digest of all that KV depends on.

Two engines with the same fingerprint compute the same KV from the same ids, so a checkpoint of one may be used by the
other; anything else is a miss. Weights are sampled, not read whole: a header, the tensor table, the sizes of all shards
and pieces spread over the file tell models apart that were not made to deceive.
"""

import hashlib
from pathlib import Path

from orchestrator.engine.llama import library
from orchestrator.engine.llama.long_rope import factors
from orchestrator.engine.llama.weights import sample_file, shards
from orchestrator.engine.model import EngineSpec


def fingerprint(spec: EngineSpec) -> str:
    """Hexadecimal; reads at most 8 MiB of each shard, and llama.cpp's library. Raises OSError."""
    digest = hashlib.sha256()
    for shard in shards(Path(spec.model)):
        sample_file(shard, digest)
    chosen = factors(spec)
    rope = chosen.name if chosen is not None else ""
    settings = [spec.kv_type_k, spec.kv_type_v, spec.flash_attention, "unified", rope, library.identity()]
    digest.update(repr(settings).encode())
    return digest.hexdigest()
