"""A floor of 6.4 GB, as a model of 14 billion parameters makes of 32k tokens: saved, and restored after a restart.

The model has the KV of such a one, 192 KiB a token, and hardly any weights. To compute the floor would take a quarter of an
hour; so its cells are filled with copies of one segment, moved to their positions. What llama.cpp and the disk do with them
is the same.
"""

import os
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import llama_cpp
import numpy as np
from cases_engine import Bench, stopping
from llama_sources import build_cache
from ours import Ours, flash_for
from prompts import ids, question
from report import Row, at_most

from orchestrator.engine.backend import Run
from orchestrator.engine.builtin.shape import BuiltinShape, tensors, tokens, write
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.checkpoints.file import usable
from orchestrator.engine.checkpoints.manager import CUT, SegmentManager
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.memory import LlamaMemory
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.prefill_cost import UNSEEN

CASE = "a floor of 6.4 GB"
SHAPE = BuiltinShape("Lorekeep wide KV (random weights)", 48, 64, 8, 8, 128, 64, 1_000_000.0, 1e-5)
DEPTH = 32_768
ROOM = 1_024
STREAMED = 1_800  # tokens of an answer beside it
STREAMING = STREAMED + 8_192 + 256  # cells of its pool
BUDGET = 8 << 30
SAMPLED = 20  # files that are read plainly
BLOCK, PLAIN = 16, 4  # segments that are saved, and copied plainly, in turns: new memory costs both alike


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {CASE: large_floor}


def large_floor(bench: Bench) -> Iterator[Row]:
    model, floor = model_file(), ids(DEPTH, "floor")
    with tempfile.TemporaryDirectory(dir=build_cache()) as name:
        folder = Path(name)
        yield compared("saved", *saved(model, array("I", floor), folder, bench.threads))
        files = sorted(folder.rglob("*.kv"))
        with stopping(Ours(model, DEPTH + ROOM, threads=bench.threads, folder=folder)) as engine:
            forget_pages(files)
            restored_s = engine.ask(floor, [], 0).answer().total_s
            yield Row(CASE, "restored after a restart, from the disk, the context opened too", restored_s, unit="s")
            yield compared("restored", restore_rate(engine), plain_read(files[:SAMPLED]))
            weights_and_kv = model.stat().st_size + engine.kv_bytes()
            yield at_most(CASE, "memory beyond KV and weights", (peak(engine) - weights_and_kv) / 2**20, 512, "MiB")
            first = engine.ask(floor, question(1), 1).answer()
            yield Row(CASE, "a new question then", first.first_s, unit="s")
        with stopping(Ours(model, DEPTH + ROOM + STREAMING, threads=bench.threads, folder=folder)) as engine:
            yield at_most(CASE, "largest gap of an answer meanwhile", gap_beside(engine, floor), 0.3, "s")


def compared(figure: str, ours: float, plain: float) -> Row:
    """Megabytes a second."""
    return Row(CASE, figure, ours, plain, "MB/s", ours / plain, "≥ 0.8 × plain", ours >= 0.8 * plain)


def model_file() -> Path:
    path = build_cache() / "models" / "wide-kv.gguf"
    if not path.is_file():
        half = path.with_suffix(".part")
        write(half, SHAPE, tokens(), tensors(SHAPE, tokens()))
        half.rename(path)
    return path


# ---- saved -----------------------------------------------------------------------------------------------------------


def saved(model: Path, floor: "array[int]", folder: Path, threads: int) -> tuple[float, float]:
    """Megabytes a second, and those of a plain copy."""
    backend = LlamaBackend(EngineSpec(str(model), threads=threads, flash_attention=flash_for(model)))
    own = folder / backend.info.fingerprint[:32]
    assert usable(own)
    store = CheckpointStore(backend.info.fingerprint, own, BUDGET)
    manager = SegmentManager(store, time.monotonic, lambda: UNSEEN)
    pool = Pool("floor", backend.open(DEPTH + ROOM, 8), lambda _pool, _node: None)
    tip = pool.admit(1, floor, len(floor), 0, 0)
    assert tip is not None
    state = fill(pool, tip)
    manager.remember(pool, tip)
    ours = plain = 0.0
    while left := manager.pending():
        ours += seconds(partial(save_down_to, max(0, left - BLOCK), manager, store))
        plain += seconds(partial(copy_plainly, state, [folder / f"{left}-{number}.plain" for number in range(PLAIN)]))
    store.close()
    pool.memory.close()
    backend.close()
    for path in folder.glob("*.plain"):
        path.unlink()
    segments = DEPTH // CUT
    return segments * len(state) / 1e6 / ours, segments * PLAIN / BLOCK * len(state) / 1e6 / plain


def save_down_to(left: int, manager: SegmentManager, store: CheckpointStore) -> None:
    while manager.pending() > left:
        manager.work(0.0)
        time.sleep(0.001)
    store.flush()


def copy_plainly(state: bytes, paths: list[Path]) -> None:
    """Copied once in memory and synced to the disk."""
    for path in paths:
        with path.open("wb") as file:
            file.write(bytearray(state))
            os.fsync(file.fileno())


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def fill(pool: Pool, tip: Node) -> bytes:
    """Returns the state of one segment."""
    memory, into = pool.memory, pool.tree.attach(tip)
    assert isinstance(memory, LlamaMemory)
    memory.decode([Run(pool.scratch, 0, tip.ids[:CUT], output=False)])
    state = memory.save(pool.scratch)
    memory.remove(pool.scratch, 0, -1)
    for start in range(0, DEPTH, CUT):
        memory.restore(pool.scratch, state)
        llama_cpp.llama_memory_seq_add(memory._memory, pool.scratch, 0, -1, start)
        memory.copy(pool.scratch, into, start, start + CUT)
        memory.remove(pool.scratch, 0, -1)
    tip.computed = DEPTH
    return state


# ---- restored --------------------------------------------------------------------------------------------------------


def forget_pages(files: list[Path]) -> None:
    """As after a reboot: what is read next comes from the disk."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(files: list[Path]) -> float:
    """Megabytes a second, read from the disk and copied once in memory that was used before."""
    forget_pages(files)
    place, size = np.ones(max(file.stat().st_size for file in files), np.uint8), 0
    begun = time.monotonic()
    for path in files:
        content = np.frombuffer(path.read_bytes(), np.uint8)
        place[: content.size] = content
        size += content.size
    return size / 1e6 / (time.monotonic() - begun)


def restore_rate(engine: Ours) -> float:
    """Megabytes a second, by the engine's own count: from the search for a segment until it is in its cells."""
    counters = engine.snapshot.counters
    return counters["tier_restored_bytes"] / 1e3 / counters["tier_restored_ms"]


def peak(engine: Ours) -> int:
    status = Path(f"/proc/{engine.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


def gap_beside(engine: Ours, floor: list[int]) -> float:
    """Seconds that a streaming answer stands still at most until the floor is there. It asks nothing: one token at this
    depth takes a step that is longer."""
    stream = engine.ask([], question(0), STREAMED)
    stream.first.wait()
    begun = time.monotonic()
    engine.ask(floor, [], 0).answer()
    ended = time.monotonic()
    stream.answer()
    marks = [begun, *(mark for mark in stream.marks if mark > begun)]
    return max(after - before for before, after in pairwise(marks) if before < ended)
