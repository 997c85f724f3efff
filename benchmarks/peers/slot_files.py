"""Servers that restore a conversation's KV after a restart from llama-server's slot files, over the llama-server that we
built. They are asked with texts. hearth passes an answer on in pieces of 8 KiB, so the time to a first token is that of an
answer of one token.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2
from answers import WITHIN_S, Refused
from llama_server import LlamaServer, end
from llama_server_build import llama_server
from private_daemon import free_port
from real_model import sum_of

from peers.environments import HERE, python_of

LOCALHOST = "127.0.0.1"
FULL_WINDOWS = "--swa-full"  # without it a restored slot of a model with sliding windows computes everything again


@dataclass(frozen=True)
class Reply:
    first_s: float  # until the answer arrived; where this is read it has one token
    whole_s: float  # until the caller may ask again
    computed: int  # tokens of the prompt
    text: str


class TextServer(Protocol):
    """Stopped and started again over the same folder it has what it saved there."""

    def ask(self, turns: Sequence[str], tokens: int, *, slot: int = 0) -> Reply:
        """`turns`: the document, a question, its answer, a question, …"""
        ...

    def stop(self) -> None: ...


class Hearth:
    """`hearth serve`, which starts llama-server itself: a proxy that saves the slot after each answer, named by the hash of
    the messages, and restores the longest conversation that a new one begins with. One slot; questions wait in line."""

    name = "hearth-llm"

    def __init__(self, model: Path, cells: int, folder: Path, threads: int) -> None:
        self.url = f"http://{LOCALHOST}:{free_port()}"
        ports = ["--port", self.url.rpartition(":")[2], "--upstream-port", str(free_port())]
        served = ["--model", str(model), "--ctx", str(cells), "--cache-dir", str(folder), *ports]
        more = ["--", "-t", str(threads), "-ub", "512", "--offline", FULL_WINDOWS]
        path = f"{llama_server().parent}:{os.environ['PATH']}"
        with (folder / "log").open("ab") as sink:
            self.process = subprocess.Popen(
                [python_of("hearth"), "-P", "-m", "hearth", "serve", *served, *more],
                env={**os.environ, "PATH": path},
                stdout=sink,
                stderr=sink,
            )
        self.http = httpx2.Client(base_url=self.url, timeout=WITHIN_S)
        self.wait(folder / "log")
        self.saved = self.snapshots()

    def wait(self, log: Path) -> None:
        while self.process.poll() is None:
            with suppress(httpx2.TransportError):
                if self.http.get("/health").status_code == 200:
                    return
            time.sleep(0.05)
        raise Refused(f"hearth ended: {log.read_text(errors='replace')[-300:]}")

    def ask(self, turns: Sequence[str], tokens: int, *, slot: int = 0) -> Reply:
        del slot  # it has one
        roles = ["system", *("user", "assistant") * len(turns)]
        messages = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]
        body = {"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        begun = time.perf_counter()
        reply = self.http.post("/v1/chat/completions", json=body)
        seconds = time.perf_counter() - begun
        if reply.status_code != 200:
            raise Refused(f"hearth: {reply.text[:200]}")
        answer: dict[str, Any] = reply.json()
        self.saved += 1
        while self.snapshots() < self.saved:  # it saves when it has answered, and ends without waiting for that
            if time.perf_counter() - begun > WITHIN_S:
                raise Refused("hearth answered and saved nothing")
            time.sleep(0.01)
        whole = time.perf_counter() - begun
        return Reply(seconds, whole, answer["timings"]["prompt_n"], answer["choices"][0]["message"]["content"])

    def snapshots(self) -> int:
        return int(self.http.get("/hearth/stats").json()["snapshots"])

    def stop(self) -> None:
        self.http.close()
        end(self.process)


class Stillwarm:
    """The library in a process of its own for each question, beside a llama-server with the full-size cache, as it advises
    for models with sliding windows."""

    name = "stillwarm"

    def __init__(self, model: Path, cells: int, folder: Path, threads: int) -> None:
        port, self.slots = free_port(), 2
        self.server = LlamaServer(
            model, self.slots * cells, slots=self.slots, threads=threads, port=port, kept=folder, more=(FULL_WINDOWS,)
        )
        self.asked = {
            "url": f"http://{LOCALHOST}:{port}",
            "folder": str(folder),
            "model_sum": sum_of(model),
            "cells": cells,
            "swa_full": True,
        }

    def ask(self, turns: Sequence[str], tokens: int, *, slot: int = 0) -> Reply:
        """One name for all conversations about a document, as its documentation shows; another slot has another name."""
        question = {**self.asked, "conversation": f"document-{slot}", "slot": slot, "prompt": "".join(turns)}
        done = subprocess.run(
            [python_of("stillwarm"), "-P", HERE / "tool_stillwarm.py"],
            input=json.dumps({**question, "tokens": tokens}),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Refused(f"stillwarm: {(done.stderr.strip().splitlines() or ['it printed nothing'])[-1]}")
        return Reply(**json.loads(done.stdout))

    def stop(self) -> None:
        self.server.stop()
