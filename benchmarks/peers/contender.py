"""One tool under measurement, seen from outside: a process that is told to index and asked to search."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from answers import Refused

from peers.environments import HERE, python_of

# Nothing may be fetched while it is measured, whatever a tool's own habits are.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONHASHSEED": "0"}


def our_python() -> Path:
    return Path(sys.executable)


@dataclass(frozen=True)
class Kind:
    """`python` raises NotInstalled where the tool cannot be had; `slow`: seconds a search in a large repository."""

    name: str
    script: str
    python: Callable[[], Path]
    slow: bool = False


OURS = Kind("lorekeep", "tool_ours.py", our_python)
PEERS = (
    Kind("tantivy", "tool_tantivy.py", lambda: python_of("tantivy")),
    Kind("semble, lexical", "tool_semble.py", lambda: python_of("semble")),
    Kind("aider's repo map", "tool_aider.py", lambda: python_of("aider"), slow=True),
)


@dataclass(frozen=True)
class Answered:
    files: list[str]  # best first
    seconds: float


class Contender:
    """A running tool. Raises Refused when it ends instead of answering."""

    def __init__(self, kind: Kind, log: Path) -> None:
        self.kind = kind
        self.log = log
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                [kind.python(), HERE / kind.script],
                env={**os.environ, **OFFLINE},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
            )

    def index(self, root: Path, store: Path) -> float:
        """Seconds that it took to bring the index under `store` up to the files under `root`."""
        store.mkdir(parents=True, exist_ok=True)
        return float(self.told({"do": "index", "root": str(root), "store": str(store)})["seconds"])

    def search(self, query: str, n: int) -> Answered:
        said = self.told({"do": "search", "query": query, "n": n})
        return Answered(said["files"], said["seconds"])

    def peak(self) -> int:
        """The most memory its process has had, in bytes."""
        return int(self.told({"do": "peak"})["bytes"])

    def told(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Refused(f"{self.kind.name} ended: {self.log.read_text(errors='replace').strip()[-300:]}")
        return dict(json.loads(line))

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@contextmanager
def running(kind: Kind, folder: Path) -> Iterator[Contender]:
    """Raises NotInstalled, Refused."""
    contender = Contender(kind, folder / "log")
    try:
        yield contender
    finally:
        contender.stop()
