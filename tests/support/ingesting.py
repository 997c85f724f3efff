"""A folder to load, and loads in processes of their own."""

import subprocess
import sys
import textwrap
from pathlib import Path

from codex.trees.sources import LoadSpec


def request(root: Path) -> LoadSpec:
    return LoadSpec((str(root),), name="it")


def many(root: Path, count: int = 400) -> Path:
    root.mkdir()
    for number in range(count):
        (root / f"{number:04}.py").write_text(f"x = {number}\n" * 50)
    return root


def in_a_process(program: str, *arguments: object, **more: object) -> "subprocess.Popen[str]":
    """A program of its own: what is killed or limited in it leaves the tests alone."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,  # type: ignore[call-overload]
    )
