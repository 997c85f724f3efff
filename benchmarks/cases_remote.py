"""Our pipeline in front of a server that computes: what it adds to a question, and what the server computes again."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from cases_daemon import QUESTION, ask, client, load, sources
from cases_engine import Bench, stopping
from llama_server import LlamaServer
from private_daemon import PrivateDaemon, free_port
from report import Row, at_most

OVERHEAD_MS = 5
MORE_TOKENS = 64  # beyond the question's own that a server may compute again


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"a remote engine": remote}


def remote(bench: Bench) -> Iterator[Row]:
    """A llama-server here, so that no network is in the figures. Its prompts are those of the daemon, to the token."""
    port = free_port()
    server = LlamaServer(bench.model, bench.depth + 8_192, threads=bench.threads, port=port, more=("--metrics",))
    environment = {"LORE_ENGINE__URL": f"http://127.0.0.1:{port}/v1"}
    with stopping(server), tempfile.TemporaryDirectory(prefix="lore-") as name:
        daemon = PrivateDaemon(Path(name), models=bench.model.parent, environment=environment)
        with stopping(daemon.start()), client(daemon) as http:
            codex = load(daemon, sources(daemon.folder / "codex", bench.depth), "codex", "--wait")
            case = f"a remote engine, a codex of {codex['tokens']['full']:,} tokens"
            ask(http, "codex", f"{QUESTION} first")
            before = computed(server)
            again = ask(http, "codex", f"{QUESTION} second")
            own = sum(one["tokens"] for one in again["blocks"] if one["kind"] not in ("identity", "codex"))
            more = computed(server) - before - own
            yield at_most(case, "tokens computed again for a second conversation", max(0, more), MORE_TOKENS, "tokens")
            through = [ask(http, "codex", f"{QUESTION} {n}")["timings"]["ttft_ms"] for n in range(bench.runs)]
            prompts = [ids(server, plan(http, f"{QUESTION} by itself {n}")) for n in range(bench.runs)]
            direct = [first_token_ms(server, prompt) for prompt in prompts]
            yield Row(case, "first token, through the daemon; by itself", median(through), median(direct), "ms")
            added = max(0.0, median(through) - median(direct))
            yield at_most(case, "added to a question, median", added, OVERHEAD_MS, "ms")


def computed(server: LlamaServer) -> int:
    """Prompt tokens, by the server's own count."""
    lines = server.http.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("llamacpp:prompt_tokens_total ")).split()[1]))


def plan(http: Any, question: str) -> str:
    """The prompt's text."""
    body = {"model": "lore/codex", "messages": [{"role": "user", "content": question}], "prompt": True}
    return str(http.post("/v1/plan", json=body).json()["text"])


def ids(server: LlamaServer, text: str) -> list[int]:
    return list(server.http.post("/tokenize", json={"content": text, "parse_special": True}).json()["tokens"])


def first_token_ms(server: LlamaServer, prompt: list[int]) -> float:
    body = {"prompt": prompt, "max_tokens": 1, "stream": True, "temperature": 0}
    begun = time.perf_counter()
    with server.http.stream("POST", "/v1/completions", json=body) as reply:
        next(line for line in reply.iter_lines() if line.startswith("data: "))
        return 1_000 * (time.perf_counter() - begun)
