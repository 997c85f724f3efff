"""Our engine's child process, driven by its messages alone: no daemon, no prompt assembly, as llama-server has none."""

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import psutil
from answers import Ids, Refused, Running

from governor.gguf import read_gguf
from governor.model_shape import shape_of
from governor.offload import flash_attention
from orchestrator.engine.client.supervisor import WORKER, environment_of
from orchestrator.engine.messages import (
    AnswerDelta,
    Cancel,
    Completion,
    DropFloor,
    Encode,
    Encoded,
    EngineReady,
    Grant,
    InferenceJob,
    LoadFailed,
    Outcome,
    PutFloor,
    Sampling,
    Shutdown,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec, ModelInfo
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.engine.transport import Wire

GREEDY = Sampling()
COUNTING = (
    str(Path(__file__).resolve().parent.parent / "tests" / "support" / "fake_engine.py"),
)  # for a model named fake


class Ours:
    """`cells` is the KV that may be held, in tokens; `folder` is where checkpoints go, and none are kept without it;
    `flash` is flash attention; None: as the daemon has it for this model on a CPU. `pool` is that of floors that name none;
    without it each has its own."""

    def __init__(
        self,
        model: Path,
        cells: int,
        *,
        threads: int = 0,
        batch: int = 512,
        folder: Path | None = None,
        flash: bool | None = None,
        drafts: bool = True,
        pool: str = "",
    ) -> None:
        spec = EngineSpec(
            str(model),
            threads=threads,
            batch=batch,
            cache_folder=str(folder or ""),
            disk_budget=8 << 30 if folder else 0,
            flash_attention=flash_for(model) if flash is None else flash,
            drafts=drafts,
        )
        here, there = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-P", *(COUNTING if model.name == "fake" else WORKER), str(there.fileno())],
            pass_fds=[there.fileno()],
            env=environment_of(spec),
            stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL,
        )
        there.close()
        self.wire = Wire(here)
        self.connection = here
        self.ready: Future[ModelInfo] = Future()
        self.snapshot = EngineSnapshot(0)
        self.running: dict[int, Running] = {}
        self.tickets, self.names = itertools.count(1), itertools.count()
        self.encoded: Future[list[list[int]]] = Future()
        self.floors: dict[bytes, str] = {}
        self.pool = pool
        self.wire.send([spec])
        threading.Thread(target=self.read, daemon=True).start()
        self.info = self.ready.result(timeout=60)
        self.wire.send([Grant(1, cells=cells, window=cells)])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.encoded = Future[list[list[int]]]()
        self.wire.send([Encode(0, tuple(texts))])
        return encoded.result(timeout=60)

    def ask(
        self,
        floor: Ids,
        tail: Ids,
        max_tokens: int,
        pool: str = "",
        owner: int = 0,
        sampling: Sampling = GREEDY,
    ) -> Running:
        """Floors of one `pool` share what their beginnings have in common. Tails of one `owner` share likewise."""
        ticket, name = next(self.tickets), self.floor(floor, pool or self.pool)
        running = self.running[ticket] = Running()
        self.wire.send([InferenceJob(ticket, name, ids_to_bytes(tail), owner, max_tokens, sampling)])
        return running

    def give_up(self, floor: Ids, tail: Ids, after_s: float) -> None:
        running = self.ask(floor, tail, 1)
        running.first.wait(after_s)
        self.cancel(running)

    def cancel(self, running: Running) -> None:
        self.wire.send([Cancel(number) for number, one in tuple(self.running.items()) if one is running])

    def floor(self, ids: Ids, pool: str) -> str:
        """A floor's ids cross once, as they do from the daemon."""
        packed = ids_to_bytes(ids)
        if packed not in self.floors:
            self.floors[packed] = f"floor-{next(self.names)}"
            self.wire.send([PutFloor(self.floors[packed], packed, pool)])
        return self.floors[packed]

    def forget(self) -> None:
        """Drops all floors: what is asked next is computed anew, where nothing is on disk."""
        self.wire.send([DropFloor(name) for name in self.floors.values()])
        self.floors.clear()

    def kv_bytes(self) -> int:
        return self.snapshot.kv_bytes

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def stop(self) -> None:
        with suppress(OSError):  # a child that has ended takes nothing; why it did was raised where somebody asked it
            self.wire.send([Shutdown()])
            self.connection.shutdown(socket.SHUT_WR)
        self.process.wait(timeout=60)
        self.connection.close()

    # ---- the reading thread ------------------------------------------------------------------------------------------

    def read(self) -> None:
        for message in self.wire.receive():
            match message:
                case EngineReady(info):
                    self.ready.set_result(info)
                case LoadFailed(reason):
                    self.ready.set_exception(Refused(reason))
                case Encoded(_, found):
                    self.encoded.set_result([list(bytes_to_ids(one)) for one in found])
                case EngineSnapshot():
                    self.snapshot = message
                case AnswerDelta(ticket, text, ids):
                    self.running[ticket].text += text
                    self.running[ticket].ids += bytes_to_ids(ids)
                    self.running[ticket].tokens(len(bytes_to_ids(ids)))
                case Completion(ticket, drafted=drafted, accepted=accepted):
                    self.running[ticket].drafts = (drafted, accepted)
                    finish(self.running.pop(ticket), message)
        if not self.ready.done():
            self.ready.set_exception(Refused("the child ended before it was ready"))
        for running in self.running.values():
            running.failed("the child ended")


def flash_for(model: Path) -> bool:
    window = shape_of(read_gguf(model)).window if model.suffix == ".gguf" else 0
    return flash_attention(None, "f16", on_gpu=False, window=window)


def finish(running: Running, completion: Completion) -> None:
    if completion.outcome is Outcome.DONE:
        running.done(completion.cached, completion.computed, completion.generated)
    else:
        running.failed(f"{completion.reason}: {completion.detail}")
