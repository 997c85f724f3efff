"""What many clients cost the daemon: requests a second, streams of events that say nothing, tokens that are streamed. And
what `lore top` costs.

The generator is a process of its own (`load.py`) and shares the machine with the daemon, the engine's process and whatever
else runs. The rates tell what the machine had left for it; the processor time of the daemon itself, which others change
less, tells what it needs.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from cases_daemon import QUESTION, client, load, sources
from cases_engine import Bench
from private_daemon import LORE, PrivateDaemon, private_daemon
from report import Row, at_most
from terminals import terminal

# Another number in each request (`load.py`). The first is answered from the prefix alone, the second is looked up.
ASKED = {
    "explained": "Explain part NUMBER to a newcomer.",
    "looked up": "Where is the configuration of part NUMBER read?",
}
GENERATOR = Path(__file__).with_name("load.py")
CLIENTS, SECONDS = 50, 5.0
SCRAPES = 5  # a second, beside a load: fifty times what Prometheus does
STREAMS, IDLE_S = 24, 15.0
LONG_ANSWER = 50_000  # tokens: it runs until it is ended
ANSWERS, ANSWER_TOKENS = 5, 400
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "load: many requests": requests,
        "load: idle streams of events": idle_streams,
        "load: a streamed token": streamed,
        "load: lore top": live_view,
    }


def requests(bench: Bench) -> Iterator[Row]:
    """/healthz, and plans on a small codex, each at its rate beside scrapes, and then as fast as it goes. No two plans are
    of the same question."""
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon:
        load(daemon, sources(daemon.folder / "small", 2_000), "small", "--wait")
        yield from held(daemon, "/healthz", "/healthz", "", 1_000)
        for name, text in ASKED.items():
            plan = {"model": "lore/small", "messages": [{"role": "user", "content": text}]}
            yield from held(daemon, f"/v1/plan, {name}", "/v1/plan", json.dumps(plan), 300)


def held(daemon: PrivateDaemon, name: str, path: str, body: str, rate: int) -> Iterator[Row]:
    case, before = f"{name}, {rate:,} a second, {CLIENTS} clients", processor_s(number(daemon))
    with scraped(daemon):
        found = generated(daemon, path, body, rate)
    used = processor_s(number(daemon)) - before
    reached, least = found["rate"], 0.95 * rate  # the generator's own start and end are within its seconds
    yield at_most(case, "errors", sum(found["errors"].values()), 0, "")
    yield Row(case, "answered", reached, unit="/s", goal=f"≥ {least:g} /s", met=reached >= least)
    yield Row(case, "p50", found["p50_ms"], unit="ms")
    yield Row(case, "p99", found["p99_ms"], unit="ms")
    yield Row(case, "of the daemon's processor, a request", 1_000 * used / max(found["answered"], 1), unit="ms")
    most = generated(daemon, path, body, 0)
    yield Row(f"{name}, {CLIENTS} clients", "as fast as it goes", most["rate"], unit="/s")


def idle_streams(bench: Bench) -> Iterator[Row]:
    """Nothing happens; each stream is open and has its first event."""
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon:
        load(daemon, sources(daemon.folder / "small", 2_000), "small", "--wait")
        (alone,) = shares(number(daemon))
        firsts: list[Iterator[bytes]] = []  # held: an iterator that goes takes its connection with it
        with ExitStack() as streams:
            for _ in range(STREAMS):
                http = streams.enter_context(client(daemon))
                answer = streams.enter_context(http.stream("GET", "/v1/events"))
                firsts.append(answer.iter_bytes())
                next(firsts[-1])
            (with_streams,) = shares(number(daemon))
        case = f"{STREAMS} streams of events, idle"
        yield Row(case, "the daemon without them", alone, unit="% of a CPU")
        yield at_most(case, "what they add", with_streams - alone, 1.0, "% of a CPU")


def streamed(bench: Bench) -> Iterator[Row]:
    """The daemon's part alone: the engine is another process. With streaming off the text goes the same way but for the
    last step."""
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon, client(daemon) as http:
        load(daemon, sources(daemon.folder / "small", 2_000), "small", "--wait")
        answered(daemon, http, stream=True)  # imports what the first answer needs
        in_turns = [[answered(daemon, http, stream=stream) for stream in (False, True)] for _ in range(ANSWERS)]
        whole, parts = map(median, zip(*in_turns, strict=True))
        case = f"an answer of {ANSWER_TOKENS} tokens"
        yield Row(case, "of the daemon's processor, a token, not streamed", whole, unit="ms")
        yield Row(case, "of the daemon's processor, a token, streamed", parts, unit="ms")
        yield at_most(case, "what streaming adds, a token", parts - whole, 0.2, "ms")


def live_view(bench: Bench) -> Iterator[Row]:
    """`lore top` on a terminal, from its first picture on, while nothing runs and beside one answer."""
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon:
        load(daemon, sources(daemon.folder / "small", 2_000), "small", "--wait")
        with terminal(LORE, "top", environment=daemon.environment, columns=120, rows=40) as seen:
            seen.until("small")
            reader = threading.Thread(target=seen.rest)  # a terminal that nobody reads holds up who writes
            reader.start()
            case = "lore top, 120 columns and 40 rows"
            try:
                view, own = shares(seen.process.pid, number(daemon))
                yield at_most(case, "nothing runs", view, 2.0, "% of a CPU")
                yield Row(case, "nothing runs, the daemon", own, unit="% of a CPU")
                with an_answer(daemon):
                    (view,) = shares(seen.process.pid)
                yield at_most(case, "beside an answer", view, 2.0, "% of a CPU")
            finally:
                seen.process.kill()
                reader.join()


# ---- what the cases are made of --------------------------------------------------------------------------------------


def generated(daemon: PrivateDaemon, path: str, body: str, rate: int) -> dict[str, Any]:
    """What `load.py` prints."""
    done = subprocess.run(generator(daemon, path, body, rate, SECONDS, CLIENTS), capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def scraped(daemon: PrivateDaemon) -> Iterator[None]:
    """Somebody reads /metrics meanwhile, without an error."""
    command = generator(daemon, "/metrics", "", SCRAPES, SECONDS, 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        yield
        output, _ = process.communicate()
    assert json.loads(output)["errors"] == {}


def generator(daemon: PrivateDaemon, path: str, body: str, rate: int, seconds: float, clients: int) -> list[str]:
    options = ["--body", body, "--rate", str(rate), "--seconds", str(seconds), "--clients", str(clients)]
    return [sys.executable, str(GENERATOR), str(daemon.socket), path, *options]


def answered(daemon: PrivateDaemon, http: Any, *, stream: bool) -> float:
    """Milliseconds of the daemon's processor for each token of an answer."""
    messages = [{"role": "user", "content": f"{QUESTION} {time.monotonic_ns()}"}]
    body = {
        "model": "lore/small",
        "messages": messages,
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
        "stream": stream,
    }
    before = processor_s(number(daemon))
    text = http.post("/v1/chat/completions", json=body).raise_for_status().text
    used = processor_s(number(daemon)) - before
    last = [line for line in text.splitlines() if "completion_tokens" in line][-1].removeprefix("data: ")
    tokens: int = json.loads(last)["usage"]["completion_tokens"]
    return 1_000 * used / tokens


@contextmanager
def an_answer(daemon: PrivateDaemon) -> Iterator[None]:
    """One runs meanwhile."""
    command = [str(LORE), "ask", QUESTION, "-c", "small", "--max-tokens", str(LONG_ANSWER), "--private"]
    with subprocess.Popen(command, env=daemon.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asking:
        assert asking.stdout is not None
        asking.stdout.read(1)
        reader = threading.Thread(target=asking.stdout.read)
        reader.start()
        yield
        assert asking.poll() is None, "the answer ended while it was measured"
        asking.kill()
        reader.join()


def number(daemon: PrivateDaemon) -> int:
    assert daemon.process is not None
    return daemon.process.pid


def shares(*processes: int) -> list[float]:
    """Percent of one processor that each takes by itself in IDLE_S."""
    time.sleep(1.0)
    before, begun = [processor_s(one) for one in processes], time.monotonic()
    time.sleep(IDLE_S)
    taken = time.monotonic() - begun
    return [100 * (processor_s(one) - had) / taken for one, had in zip(processes, before, strict=True)]


def processor_s(process: int) -> float:
    """Seconds that its threads have run, without its children's; to a hundredth, as the kernel counts it."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
