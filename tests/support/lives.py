"""What long random lives of the engine have in common: their seed and length, what they do to files, what they measure.

`LORE_SOAK_SEED` sets another life, `LORE_SOAK_OPERATIONS` a longer one; both are printed where a life fails.
"""

import gc
import os
import random
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

OPERATIONS = int(os.environ.get("LORE_SOAK_OPERATIONS", "800"))
SEED = int(os.environ.get("LORE_SOAK_SEED", "1"))
EVERY = {"ask", "follow", "rounds", "cancel", "drop", "grant", "evict", "restart", "kill", "corrupt"}


def begin() -> None:
    """pytest shows it where a life fails."""
    sys.stdout.write(f"LORE_SOAK_SEED={SEED} LORE_SOAK_OPERATIONS={OPERATIONS}\n")


def objects() -> int:
    """Python objects of this process."""
    gc.collect()
    return len(gc.get_objects())


def held() -> Counter[str]:
    """Open files and threads of ours by name: other libraries in this process open sockets, pipes and threads of
    theirs when they like."""
    gc.collect()
    files = [file.path for file in psutil.Process().open_files()]
    return Counter([*files, *(thread.name for thread in threading.enumerate() if thread.name == "checkpoints")])


def leaked(before: Counter[str]) -> Counter[str]:
    """What is held now and was not then."""
    return held() - before


def corrupt(chance: random.Random, folder: Path) -> None:
    """A flipped byte in one file, which may be cut in half too, emptied, or hold what another one held; none gets longer,
    as the store would count it by its length before."""
    files = sorted(folder.glob("*.kv"))
    if not files:
        return
    path, other = chance.choice(files), chance.choice(files)
    with suppress(FileNotFoundError):  # files are deleted beside what the life does
        data = bytearray(path.read_bytes()) or bytearray(b"?")
        data[chance.randrange(len(data))] ^= 1 + chance.randrange(255)
        path.write_bytes(chance.choice([data, data[: len(data) // 2], b"", other.read_bytes()[: len(data)]]))


def step(life: object, chance: random.Random, weights: dict[str, int], done: Counter[str]) -> None:
    (name,) = chance.choices(list(weights), list(weights.values()))
    getattr(life, name)()
    done[name] += 1


def tell(life: str, done: Counter[str]) -> None:
    sys.stdout.write(f"{sum(done.values())} operations {life}: {dict(done)}\n")
