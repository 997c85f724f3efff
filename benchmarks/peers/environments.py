"""A virtual environment for each peer, in the build cache: pinned versions, made once, never a part of the product.

Standard library only. Without a package index, what is not there yet stays away, and says so.
"""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from llama_sources import build_cache, say

HERE = Path(__file__).resolve().parent


class NotInstalled(Exception):
    """The package index did not give what a peer needs; the message holds pip's last line."""


def python_of(peer: str) -> Path:
    """The Python of the peer's environment. Raises NotInstalled."""
    wanted = HERE / f"requirements-{peer}.txt"
    folder = build_cache() / "peers" / f"{peer}-{fingerprint(wanted)}"
    if not folder.exists():
        make(peer, wanted, folder)
    return folder / "bin" / "python"


def fingerprint(wanted: Path) -> str:
    """Other versions, or another Python, are another environment."""
    return hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:16]


def make(peer: str, wanted: Path, folder: Path) -> None:
    """Everything is listed, so that nothing is resolved: the same environment on every day."""
    say(f"Installing {peer} for comparison, once.")
    half = folder.with_name(f".{folder.name}")  # renamed when whole; what a killed run left is made anew
    shutil.rmtree(half, ignore_errors=True)
    venv.create(half, with_pip=False)
    pip = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "--python",
        str(half / "bin" / "python"),
        "install",
        "--quiet",
        "--no-deps",
    ]
    done = subprocess.run([*pip, "-r", str(wanted)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(half, ignore_errors=True)
        raise NotInstalled(f"{peer} cannot be installed here: {last_line(done.stderr)}")
    half.rename(folder)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["pip said nothing"])[-1]
