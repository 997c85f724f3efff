"""What long random lives of the engine have in common: their seed and length, what they do to files, what they measure.

`LORE_SOAK_SEED` sets another life, `LORE_SOAK_OPERATIONS` a longer one; both are printed where a life fails.
"""

import gc
import os
import random
import sys
from collections import Counter
from pathlib import Path

import psutil

OPERATIONS = int(os.environ.get("LORE_SOAK_OPERATIONS", "2000"))
SEED = int(os.environ.get("LORE_SOAK_SEED", "1"))
EVERY = {"ask", "follow", "rounds", "cancel", "drop", "grant", "evict", "restart", "kill", "corrupt"}


def begin() -> None:
    """pytest shows it where a life fails."""
    sys.stdout.write(f"LORE_SOAK_SEED={SEED} LORE_SOAK_OPERATIONS={OPERATIONS}\n")


def measures() -> tuple[int, int, int]:
    """Descriptors, threads, and Python objects of this process."""
    gc.collect()
    process = psutil.Process()
    return process.num_fds(), process.num_threads(), len(gc.get_objects())


def nothing_leaked(before: tuple[int, int, int]) -> bool:
    """No descriptor, and no thread an operation: other libraries of this process start a few of theirs when they like."""
    descriptors, threads, _ = measures()
    return descriptors <= before[0] and threads <= before[1] + 16


def corrupt(chance: random.Random, folder: Path) -> None:
    """A flipped byte in one file, which may be cut in half too, emptied, or hold what another one held."""
    files = sorted(folder.glob("*.kv"))
    if not files:
        return
    path = chance.choice(files)
    data = bytearray(path.read_bytes()) or bytearray(b"?")
    data[chance.randrange(len(data))] ^= 1 + chance.randrange(255)
    path.write_bytes(chance.choice([data, data[: len(data) // 2], b"", chance.choice(files).read_bytes()]))


def step(life: object, chance: random.Random, weights: dict[str, int], done: Counter[str]) -> None:
    (name,) = chance.choices(list(weights), list(weights.values()))
    getattr(life, name)()
    done[name] += 1


def tell(life: str, done: Counter[str]) -> None:
    sys.stdout.write(f"{sum(done.values())} operations {life}: {dict(done)}\n")
