"""Archives of floors, made of segments that nobody has computed."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.codices.floor_archive import END, MANIFEST, Manifest, SegmentFile, head, padding
from orchestrator.engine.checkpoints.file import SegmentHeader, write
from orchestrator.engine.checkpoints.manager import segments

ROOT = "a" * 64
PARTS = {
    "weights": "1" * 64,
    "kv_type_k": "f16",
    "kv_type_v": "f16",
    "flash_attention": "off",
    "build": "1.0-" + "b" * 64,
}
IDS = array("I", range(600))  # segments of 256, 256 and 88 tokens


def chain(ids: "array[int]" = IDS, root: str = ROOT, *, cut: int | None = None) -> list[SegmentHeader]:
    """The segments of a floor; with `cut` what is behind it is the tail of user 7."""
    found = segments(root, ids, len(ids) if cut is None else cut, 7, len(ids))
    return [SegmentHeader(root, one.name, one.parent, one.start, one.end, ids[one.start : one.end]) for one in found]


def files(headers: Sequence[SegmentHeader], folder: Path) -> list[tuple[str, bytes]]:
    """Each by its name, as the engine writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in headers:
        write(folder / f"{one.name}.kv", one, one.name.encode() * 40)
    return [(one.name, (folder / f"{one.name}.kv").read_bytes()) for one in headers]


def manifest(kept: Sequence[tuple[str, bytes]], **other: Any) -> Manifest:
    said = {
        "root": ROOT,
        "parts": PARTS,
        "model": "small",
        "codex": "demo",
        "state": "",
        "tier": "full",
        "identity": "lorekeep",
        "identity_version": "v1",
        "tokens": len(IDS),
        "segments": tuple(SegmentFile(name=name, bytes=len(raw)) for name, raw in kept),
    }
    return Manifest(**{**said, **other})


def member(name: str, raw: bytes) -> bytes:
    return head(name, len(raw)) + raw + padding(len(raw))


def archive(kept: Sequence[tuple[str, bytes]], **other: Any) -> bytes:
    """Of these files; `other`: what the manifest says otherwise."""
    return begin(manifest(kept, **other)) + b"".join(member(f"{name}.kv", raw) for name, raw in kept) + END


def begin(said: Manifest) -> bytes:
    return member(MANIFEST, said.model_dump_json().encode())
