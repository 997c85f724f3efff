"""The root of every segment's name: a digest of all that KV depends on.

Two engines with the same fingerprint compute the same KV from the same ids, so a checkpoint of one may be used by the
other; anything else is a miss. Weights are sampled, not read whole: a header, the tensor table, the sizes of all shards
and pieces spread over the file tell models apart that were not made to deceive.
"""

import hashlib
import re
from pathlib import Path

import llama_cpp

from orchestrator.engine.model import EngineSpec

_HEAD = 4 * 1024 * 1024
_PIECE = 64 * 1024
_PIECES = 64


def fingerprint(spec: EngineSpec) -> str:
    """Hexadecimal; reads at most 8 MiB of each shard."""
    digest = hashlib.sha256()
    for shard in shards(Path(spec.model)):
        sample_file(shard, digest)
    build = f"{llama_cpp.__version__}"
    settings = [spec.kv_type_k, spec.kv_type_v, spec.flash_attention, "unified", build]
    digest.update(repr(settings).encode())
    return digest.hexdigest()


def shards(first: Path) -> list[Path]:
    """All files of a split model (`name-00001-of-00003.gguf`), or the one file."""
    found = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", first.name)
    if not found:
        return [first]
    return [first.with_name(f"{found[1]}-{number:05d}-of-{found[2]}.gguf") for number in range(1, int(found[2]) + 1)]


def sample_file(path: Path, digest: "hashlib._Hash") -> None:
    size = path.stat().st_size
    digest.update(f"{size}\n".encode())
    with path.open("rb") as file:
        digest.update(file.read(_HEAD))
        for number in range(_PIECES):
            file.seek(max(_HEAD, (size - _PIECE) * (number + 1) // _PIECES))
            digest.update(file.read(_PIECE))
