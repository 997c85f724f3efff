"""What a person meets: the command's own speed, the daemon's memory, plans and warm answers at the socket."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
from cases_engine import ROOM, Bench, stopping
from ours import Ours
from private_daemon import LORE, PrivateDaemon, private_daemon
from prompts import ids
from report import Row, at_most

QUESTION = "Where is the configuration read?"
FUNCTIONS, FUNCTION_TOKENS = 70, 21  # of a generated file, under the built-in vocabulary; rows give exact counts


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "lore --help": help_,
        "lore mcp": first_tool_answer,
        "the daemon's memory": memory,
        "plan on a 100k codex": plan,
        "warm answer at the socket": warm_answer,
        "the memory given away and taken back": given_away,
    }


def help_(bench: Bench) -> Iterator[Row]:
    taken = []
    for _ in range(max(bench.runs, 5)):
        begun = time.perf_counter()
        subprocess.run([LORE, "--help"], stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - begun)
    yield at_most("lore --help", "median", 1_000 * median(taken), 150, "ms")


def first_tool_answer(bench: Bench) -> Iterator[Row]:
    """From the process's start to a search's result, by hand, so that no client's imports count; then one more."""
    with private_daemon(models=bench.model.parent) as daemon:
        load(daemon, sources(daemon.folder / "codex", 1_000), "codex")
        first, further = zip(*(tool_answers(daemon) for _ in range(max(bench.runs, 5))), strict=True)
        yield at_most("lore mcp", "first tool answer after the start", 1_000 * median(first), 300, "ms")
        yield Row("lore mcp", "a further tool answer", 1_000 * median(further), unit="ms")


def tool_answers(daemon: PrivateDaemon) -> tuple[float, float]:
    """Seconds to the first answer of a fresh process, and of the next."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
    search = {"name": "search", "arguments": {"query": "step"}}
    begun = time.perf_counter()
    with subprocess.Popen(
        [LORE, "mcp"], env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        asked(process, "initialize", hello)
        asked(process, "tools/call", search)
        first = time.perf_counter()
        asked(process, "tools/call", search)
        further = time.perf_counter()
        assert process.stdin is not None
        process.stdin.close()
    return first - begun, further - first


def asked(process: "subprocess.Popen[str]", method: str, params: dict[str, Any]) -> None:
    """One request of the Model Context Protocol and its reply."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
    process.stdin.flush()
    assert "result" in json.loads(process.stdout.readline())


def memory(bench: Bench) -> Iterator[Row]:
    """Right after start: the child is another process, and the archive is not loaded before its first use."""
    with private_daemon(models=bench.model.parent) as daemon:
        daemon.json("status")
        assert daemon.process is not None
        yield at_most("the daemon's memory", "without its child", resident(daemon.process.pid) / 2**20, 150, "MiB")


def plan(bench: Bench) -> Iterator[Row]:
    """Plans over HTTP on the Unix socket, when idle and while a floor is being prefilled: then each waits for a step."""
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon, client(daemon) as http:
        large = load(daemon, sources(daemon.folder / "large", 100_000), "large", "--wait")
        case = f"plan on a codex of {large['tokens']['full']:,} tokens"
        idle = plans(http, "large", 50)
        yield at_most(case, "p50, idle", median(idle), 50, "ms")
        yield at_most(case, "p99, idle", percentile(idle, 99), 50, "ms")
        load(daemon, sources(daemon.folder / "small", bench.depth), "small")  # returns while its floor is prefilled
        busy = plans(http, "large", 50)
        yield at_most(case, "p50, while a floor is prefilled", median(busy), 1_000, "ms")
        yield at_most(case, "p99, while a floor is prefilled", percentile(busy, 99), 1_500, "ms")


def warm_answer(bench: Bench) -> Iterator[Row]:
    """The whole way: command's HTTP, daemon, prompt, engine. A second conversation computes only its own tokens."""
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon, client(daemon) as http:
        codex = load(daemon, sources(daemon.folder / "codex", bench.depth), "codex")
        cold = ask(http, "codex", f"{QUESTION} first")
        warm = [ask(http, "codex", f"{QUESTION} number {number}") for number in range(bench.runs)]
        case = f"answer on a codex of {codex['tokens']['full']:,} tokens"
        first, again = cold["timings"]["ttft_ms"], median(lore["timings"]["ttft_ms"] for lore in warm)
        yield Row(case, "cold, time to first token", first, unit="ms")
        yield Row(case, "warm, time to first token", again, unit="ms")
        yield at_most(case, "warm of cold", 100 * again / first, 5, "%")
        yield Row(
            case, "a new conversation computes", median(lore["prompt"]["computed"] for lore in warm), unit="tokens"
        )


def given_away(bench: Bench) -> Iterator[Row]:
    """The process ends with a computed floor, which is read from disk afterwards: for a question that waits already, or
    before one is asked. A load is that of an engine which knows nothing of the model yet."""
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon, client(daemon) as http:
        codex = load(daemon, sources(daemon.folder / "codex", bench.depth), "codex", "--wait")
        ask(http, "codex", f"{QUESTION} first")
        warm_s = ask(http, "codex", f"{QUESTION} second")["timings"]["ttft_ms"] / 1_000
        paused, fresh, loaded, answered, later = [], [], [], [], []
        for number in range(bench.runs):
            paused.append(timed(lambda: http.post("/v1/pause", json={}).raise_for_status()))
            begun = time.perf_counter()
            with stopping(Ours(bench.model, ROOM)):
                fresh.append(time.perf_counter() - begun)
            loaded.append(timed(lambda: resume(http)))
            time.sleep(1.0)
            later.append(ask(http, "codex", f"{QUESTION} later {number}")["timings"]["ttft_ms"] / 1_000)
            http.post("/v1/pause", json={}).raise_for_status()
            http.post("/v1/resume").raise_for_status()
            answered.append(ask(http, "codex", f"{QUESTION} again {number}")["timings"]["ttft_ms"] / 1_000)
        case = f"giving away a codex of {codex['tokens']['full']:,} tokens"
        yield at_most(case, "pause until the process is gone", median(paused), 3, "s")
        yield Row(case, "warm, time to first token", warm_s, unit="s")
        yield Row(case, "load of the model", median(fresh), unit="s")
        yield Row(case, "resume until the model is loaded", median(loaded), unit="s")
        yield at_most(case, "resume to first token", median(answered), median(fresh) + warm_s, "s")
        yield Row(case, "a second after a resume, time to first token", median(later), unit="s")


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def resume(http: httpx2.Client) -> None:
    http.post("/v1/resume").raise_for_status()
    while not http.get("/readyz").is_success:
        time.sleep(0.01)


# ---- what the cases are made of --------------------------------------------------------------------------------------


def client(daemon: PrivateDaemon) -> httpx2.Client:
    transport = httpx2.HTTPTransport(uds=str(daemon.socket))
    return httpx2.Client(transport=transport, base_url="http://localhost", timeout=600)


def load(daemon: PrivateDaemon, folder: Path, name: str, *options: str) -> dict[str, Any]:
    codex: dict[str, Any] = daemon.json("load", folder, "--name", name, *options, timeout_s=600)["codex"]
    return codex


def plans(http: httpx2.Client, codex: str, number: int) -> list[float]:
    """Milliseconds of each, on one connection, each with a question of its own."""
    taken = []
    for count in range(number):
        body = {"model": f"lore/{codex}", "messages": [{"role": "user", "content": f"{QUESTION} {count}"}]}
        begun = time.perf_counter()
        http.post("/v1/plan", json=body).raise_for_status()
        taken.append(1_000 * (time.perf_counter() - begun))
    return taken


def ask(http: httpx2.Client, codex: str, question: str) -> dict[str, Any]:
    body = {"model": f"lore/{codex}", "messages": [{"role": "user", "content": question}], "max_tokens": 1}
    answer = http.post("/v1/chat/completions", json=body)
    answer.raise_for_status()
    lore: dict[str, Any] = answer.json()["lore"]
    return lore


def sources(folder: Path, tokens: int) -> Path:
    """A tree of generated Python files of about so many tokens; the same bytes each time."""
    folder.mkdir(parents=True)
    words = iter(ids(tokens, folder.name))
    for number in range(max(tokens // (FUNCTIONS * FUNCTION_TOKENS), 1)):
        lines = [
            f"def function_{number}_{next(words)}(argument):\n    return argument + {next(words)}\n"
            for _ in range(FUNCTIONS)
        ]
        (folder / f"module_{number:03}.py").write_text("\n".join(lines))
    return folder


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4_096


def percentile(values: list[float], share: int) -> float:
    return sorted(values)[min(len(values) * share // 100, len(values) - 1)]
