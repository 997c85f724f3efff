"""A real llama-server on a port of its own, from the binary that the benchmarks build once. No test compiles it."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from llama_sources import build_cache

WITHIN_S = 60.0
BUILT = build_cache() / "llama-server"  # before a test has folders of its own
BUILD = "python benchmarks/llama_server_build.py compiles it once, in 6 to 15 minutes"


def binary() -> Path:
    """Skips where none is built."""
    found = sorted(BUILT.glob("*/llama-server"))
    if not found:
        pytest.skip(f"no llama-server is built on this machine: {BUILD}")
    return found[-1]


class RunningServer:
    """`url` is what engine.url names."""

    def __init__(self, model: Path, log: Path, *, context: int = 16_384) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        options = ["-m", model, "-c", context, "-np", 2, "--kv-unified", "-t", 1, "--offline", "--metrics"]
        command = [binary(), *map(str, options), "--host", "127.0.0.1", "--port", str(self.port)]
        with log.open("wb") as sink:
            self.process = subprocess.Popen(command, stdout=sink, stderr=sink)
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def wait(self) -> None:
        """Until it serves: it is asked again and again, because it reports that to nobody."""
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end and self.process.poll() is None:
            with suppress(httpx2.TransportError):
                if httpx2.get(f"http://127.0.0.1:{self.port}/health", trust_env=False).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("llama-server does not serve")

    def computed(self) -> int:
        """Prompt tokens that it has computed since its start, by its own count."""
        page = httpx2.get(f"http://127.0.0.1:{self.port}/metrics", trust_env=False).text
        (line,) = (line for line in page.splitlines() if line.startswith("llamacpp:prompt_tokens_total "))
        return int(float(line.split()[1]))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def llama_servers(model: Path, folder: Path, count: int = 1) -> Iterator[list[RunningServer]]:
    servers = [RunningServer(model, folder / f"llama-server-{number}.log") for number in range(count)]
    try:
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()
