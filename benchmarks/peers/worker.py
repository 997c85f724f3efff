"""The loop that every tool runs in its own process: requests are lines of JSON on stdin, answers lines on stdout.

Standard library only, and nothing of ours: it is run by the Pythons of the peers' environments. Seconds are taken here,
around the tool's own calls, so that neither the pipe nor the start of Python is counted for anybody.

    {"do": "index", "root": …, "store": …}      {"seconds": …}
    {"do": "search", "query": …, "n": …}        {"seconds": …, "files": [best first]}
    {"do": "peak"}                              {"bytes": …}
"""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Protocol


class Tool(Protocol):
    """A code search under measurement."""

    def index(self, root: Path, store: Path) -> None:
        """Bring the index of `root`, kept under `store`, up to the disk: the first time and after every change."""

    def search(self, query: str, n: int) -> list[str]:
        """At most `n` files, best first, relative to the root that was indexed last."""


def serve(tool: Tool) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a tool prints must not stand among the answers
    for line in sys.stdin:
        print(json.dumps(answer(tool, json.loads(line))), file=answers)


def answer(tool: Tool, request: dict[str, Any]) -> dict[str, Any]:
    begun = time.perf_counter()
    match request["do"]:
        case "index":
            tool.index(Path(request["root"]), Path(request["store"]))
            return {"seconds": time.perf_counter() - begun}
        case "search":
            files = tool.search(request["query"], request["n"])
            return {"seconds": time.perf_counter() - begun, "files": files}
        case "peak":
            return {"bytes": peak()}
        case other:
            raise ValueError(f"no such request: {other}")


def peak() -> int:
    """The most memory that this process ever had, in bytes."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1_024
