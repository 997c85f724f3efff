"""llama-server as a person would run it, asked with token ids over its own HTTP, streaming."""

import json
import os
import select
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
from answers import WITHIN_S, Ids, Refused, Running
from llama_server_build import llama_server


class LlamaServer:
    """`cells` is its context, `slots` how many answers it runs at once; `unified` shares one KV buffer among them;
    `flash` is its flash attention, by itself on; `port` is where it listens instead of a socket; `kept` is where its slot
    files go; `more` are further options."""

    def __init__(
        self,
        model: Path,
        cells: int,
        *,
        slots: int = 1,
        unified: bool = False,
        flash: str = "auto",
        threads: int = 0,
        batch: int = 512,
        port: int = 0,
        kept: Path | None = None,
        more: tuple[str, ...] = (),
    ) -> None:
        self.slots = slots
        self.folder = tempfile.TemporaryDirectory(prefix="peer-")
        self.log = Path(self.folder.name) / "log"
        # It listens on a Unix socket where the host's name ends so.
        self.address = Path(self.folder.name) / "server.sock"
        options = ["-m", model, "-c", cells, "-np", slots, "-t", threads or os.cpu_count(), "-b", 2048, "-ub", batch]
        options += ["-fa", flash, "--offline", "--slots", *(["--kv-unified"] if unified else []), *more]
        options += ["--host", "127.0.0.1", "--port", port] if port else ["--host", self.address]
        options += ["--slot-save-path", kept or self.folder.name]
        options += ["-lv", 4]  # below that it does not say how large its KV is
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen([llama_server(), *map(str, options)], stdout=sink, stderr=sink)
        self.http = httpx2.Client(
            transport=None if port else httpx2.HTTPTransport(uds=str(self.address)),
            base_url=f"http://127.0.0.1:{port}" if port else "http://localhost",
            timeout=WITHIN_S,
        )
        self.wait()

    def wait(self) -> None:
        """Until it serves: it is asked again and again, because it reports that to nobody."""
        while self.process.poll() is None:
            with suppress(httpx2.TransportError):
                if self.http.get("/health").status_code == 200:
                    return
            time.sleep(0.05)
        raise Refused(f"llama-server ended: {self.log.read_text(errors='replace')[-2000:]}")

    def spread(self, prompt: Ids) -> None:
        """Every slot holds the prompt, which one slot computed: the others have it from that slot's file. Of a model with
        sliding windows this needs the full-size window cache: with the small one they compute everything again."""
        self.post("/completion", {"prompt": [*prompt], "n_predict": 0, "id_slot": 0})
        self.post("/slots/0?action=save", {"filename": "prompt"})
        for slot in range(1, self.slots):
            self.post(f"/slots/{slot}?action=restore", {"filename": "prompt"})

    def post(self, path: str, body: dict[str, Any]) -> None:
        reply = self.http.post(path, json=body)
        if reply.status_code != 200:
            raise Refused(f"llama-server: {path}: {reply.text[:200]}")

    def ask(self, floor: Ids, tail: Ids, max_tokens: int) -> Running:
        running = Running()
        threading.Thread(target=self.stream, args=([*floor, *tail], max_tokens, running), daemon=True).start()
        return running

    def stream(self, prompt: list[int], max_tokens: int, running: Running) -> None:
        body = {"prompt": prompt, "n_predict": max_tokens, "stream": True, "temperature": 0, "ignore_eos": True}
        timings: dict[str, int] = {}
        try:
            with self.http.stream("POST", "/completion", json=body) as response:
                for event in filter(None, map(parsed, response.iter_lines())):
                    timings = event.get("timings", timings)
                    if not event.get("stop"):
                        running.tokens(1)
        except (httpx2.HTTPError, Refused) as error:
            running.failed(f"llama-server: {error!r}")
            return
        if "prompt_n" not in timings:  # an error in the stream, such as a context that is exceeded: it has no figures
            running.failed("llama-server ended the stream without an answer")
            return
        computed = timings["prompt_n"]
        running.done(len(prompt) - computed, computed, timings["predicted_n"])

    def give_up(self, floor: Ids, tail: Ids, after_s: float) -> None:
        body = json.dumps({"prompt": [*floor, *tail], "n_predict": 1, "temperature": 0}).encode()
        head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.address))
            connection.sendall(head.encode() + body)
            select.select([connection], [], [], after_s)

    def kv_bytes(self) -> int:
        """What its log says that it allocated: its KV is one buffer of fixed size."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if "KV buffer size" in line]
        return int(sum(float(line.rpartition("=")[2].split()[0]) for line in lines) * 2**20)

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def stop(self) -> None:
        self.http.close()
        end(self.process)
        self.folder.cleanup()


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:  # seen once: it had answered, and did not end
        process.kill()
        process.wait()


def parsed(line: str) -> dict[str, Any] | None:
    """One server-sent event's object. Raises Refused for an error."""
    name, _, data = line.partition(": ")
    if name not in ("data", "error") or not data:
        return None
    event = json.loads(data)
    if name == "error" or "error" in event:
        raise Refused(str(event.get("error", event)))
    return dict(event)
