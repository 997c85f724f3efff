"""Prints the folder of llama-cpp-python's sources in the locked version, fetching and unpacking them once.

One copy serves three: the wheel is compiled from it, llama-server (the peer of the benchmarks) is compiled from the
same llama.cpp inside it, and the tests use the vocabularies and chat templates that llama.cpp carries. Standard library
only, because it runs before anything is installed; it needs pip beside the Python that runs it.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"  # what runs
DEV_LOCK = ROOT / "requirements-dev.lock"  # and what tests and checks it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, default=LOCK)
    print(sources(locked_version(parser.parse_args().lock)))


def sources(version: str) -> Path:
    """The unpacked source distribution; llama.cpp is its `vendor/llama.cpp`."""
    folder = build_cache() / "sources" / version
    return folder if folder.exists() else fetch(version, folder)


def fetch(version: str, folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Unpacked beside its place and renamed: an interrupted fetch must not leave half a tree under the version's name.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
        say(f"Fetching the sources of llama-cpp-python {version} (76 MB), once.")
        archive = download(version, Path(work))
        return move_into_place(unpack(archive, Path(work)), folder)


def download(version: str, folder: Path) -> Path:
    pip = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=llama-cpp-python"]
    done = subprocess.run(
        [*pip, "--dest", str(folder), f"llama-cpp-python=={version}"],
        stdout=sys.stderr,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    archives = sorted(folder.glob("llama_cpp_python-*.tar.gz"))
    if done.returncode != 0 or not archives:
        raise SystemExit(f"pip could not fetch the sources of llama-cpp-python {version}; its words are above.")
    return archives[0]


def unpack(archive: Path, folder: Path) -> Path:
    """By the system's tar: Python's own has no safe way to unpack before 3.11.4, and Debian 12 has 3.11.2."""
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    return folder / archive.name.removesuffix(".tar.gz")


def move_into_place(tree: Path, folder: Path) -> Path:
    try:
        return tree.rename(folder)
    except OSError:
        if folder.exists():  # another process was sooner; both trees are the same release
            return folder
        raise


def locked_version(lock: Path) -> str:
    found = re.search(r"^llama-cpp-python==(\S+)", lock.read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"{lock} names no llama-cpp-python: run `make lock`")
    return found[1]


def build_cache() -> Path:
    """Where everything compiled or fetched for building lies. Deletable at any time, at the price of doing it again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lorekeep-build"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
