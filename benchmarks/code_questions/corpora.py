"""Source distributions as documents: fetched once with pip, unpacked, kept."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from codex.documents import Document, document_from

CACHE = Path.home() / ".cache" / "lorekeep-build" / "corpora"


def documents(package: str, version: str, cache: Path = CACHE) -> list[Document]:
    """Every `.py` file of a source distribution, as `documents_in`."""
    return documents_in(unpacked(package, version, cache))


def documents_in(root: Path) -> list[Document]:
    """Every `.py` file of a folder, by path; paths are relative to it."""
    found = (document_from(str(path.relative_to(root)), path.read_bytes()) for path in sorted(root.rglob("*.py")))
    return [one for one in found if one is not None]


def unpacked(package: str, version: str, cache: Path = CACHE) -> Path:
    """The folder of a source distribution, which pip fetches where it is not there yet."""
    root = cache / f"{package}-{version}"
    if not root.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tarfile.open(_fetched(package, version, cache)) as archive:
            archive.extractall(cache, filter="data")
    return root


def unpacked_wheel(package: str, version: str, inside: str = "", cache: Path = CACHE) -> Path:
    """The folder of a wheel, which pip fetches where it is not there yet; its modules are in the folder `inside` of it."""
    root = cache / f"{package}-{version}-wheel"
    if not root.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        _pip_download(package, version, cache, "--only-binary", ":all:")
        wheel = next(cache.glob(f"{package.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / inside)
    return root


def _fetched(package: str, version: str, cache: Path) -> Path:
    archive = cache / f"{package}-{version}.tar.gz"
    if not archive.is_file():
        # Not of all packages: what builds its metadata would be built too.
        _pip_download(package, version, cache, "--no-binary", package)
    return archive


def _pip_download(package: str, version: str, cache: Path, *what: str) -> None:
    command = [sys.executable, "-P", "-m", "pip", "download", "-q", "--no-deps", *what, "-d", str(cache)]
    subprocess.run([*command, f"{package}=={version}"], check=True)
