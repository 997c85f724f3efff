"""Tiny models of many architectures, written with the format's own package.

`tiny_models.json` holds, per architecture, a small header and the shapes of every tensor that llama.cpp asks for. Weights
are zero and there is no vocabulary: enough to open contexts and see what memory they take.
"""

import functools
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np


@functools.cache
def recipes() -> dict[str, Any]:
    """Metadata and tensor shapes by architecture."""
    return dict(json.loads(Path(__file__).with_suffix(".json").read_text()))


def written(folder: Path, architecture: str, recipe: str | None = None, **changed: object) -> Path:
    """A model of that architecture, made like that of `recipe`; `changed` keys of its header, None removes one."""
    made = recipes()[recipe or architecture]
    metadata = {key: value for key, value in (made["metadata"] | changed).items() if value is not None}
    path = folder / f"{architecture}-{len(list(folder.iterdir()))}.gguf"
    _write(path, architecture, metadata, _tensors(made))
    return path


def _tensors(recipe: dict[str, Any]) -> dict[str, list[int]]:
    tensors = dict(recipe["tensors"])
    for key, shape in recipe["blocks"].items():
        name, _, layers = key.partition("@")
        chosen = layers.split(",") if layers else map(str, range(recipe["metadata"]["block_count"]))
        tensors |= {f"blk.{layer}.{name}": shape for layer in chosen}
    return tensors


def _write(path: Path, architecture: str, metadata: dict[str, Any], tensors: dict[str, list[int]]) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    for key, value in metadata.items():
        _add(writer, f"{architecture}.{key}", value)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(tuple(reversed(shape)), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        assert isinstance(value, list)
        writer.add_array(key, value)
