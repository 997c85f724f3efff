"""Compiles one target of llama.cpp's own sources with cmake, in a folder that stays: an interrupted build is continued.
Standard library only."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def compiled(tree: Path, flags: Sequence[str], target: str, folder: Path) -> Path:
    """The folder of what was built; the compiler's words are in `folder/build.log`. Ends the program where it fails."""
    work, log = folder / "build", folder / "build.log"
    work.mkdir(parents=True, exist_ok=True)
    cmake = tools()
    with log.open("a") as sink:
        for step in (
            [*cmake, "-G", "Ninja", "-S", str(tree), "-B", str(work), *flags],
            [*cmake, "--build", str(work), "--target", target, "--verbose"],
        ):
            # At the lowest priority: whoever works on this machine meanwhile comes first.
            done = subprocess.run(["nice", "-n", "19", *step], stdout=sink, stderr=sink, check=False)
            if done.returncode != 0:
                raise SystemExit(f"Compiling {target} failed; the compiler's words are in {log}")
    return work


def tools() -> list[str]:
    """cmake, with ninja beside it; both come by pip where the system has none."""
    beside = Path(sys.executable).parent
    os.environ["PATH"] = f"{os.environ['PATH']}:{beside}"
    if not (shutil.which("cmake") and shutil.which("ninja")):
        subprocess.run([sys.executable, "-P", "-m", "pip", "install", "-qq", "cmake", "ninja"], check=True)
    return ["cmake"]
