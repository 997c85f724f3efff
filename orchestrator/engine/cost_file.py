"""The learned costs of steps, kept from one process to the next beside the checkpoints of the same model and settings.

Each way to compute has its file, and who tries settings leaves many: the few that were used last are kept.
"""

import hashlib
import json
import logging
import os
from contextlib import suppress
from pathlib import Path

from orchestrator.engine.costs import TERMS, Costs, Kinds
from orchestrator.engine.model import EngineSpec, ModelInfo

log = logging.getLogger("lorekeep.engine")

# Steps by whose predictions two curves are compared: of an answer and of a prompt, as rows and used cells of the pool.
PROBES = ((1, 0), (1, 8192), (512, 0), (512, 8192))
MATERIAL = 0.25  # of a prediction; steps of one kind differ by a tenth anyway

PREFIX = "costs-"
KEPT = 32  # files; each has a few kilobytes


def cost_path(info: ModelInfo, spec: EngineSpec) -> Path | None:
    """A file for each way to compute: the fingerprint covers model, KV types and attention, the rest is where it runs."""
    if not spec.cache_folder:
        return None
    place = [spec.threads, info.device, info.gpu_layers, spec.split_mode, spec.tensor_split, spec.main_gpu]
    name = hashlib.sha256(repr(place).encode()).hexdigest()[:12]
    return Path(spec.cache_folder) / f"{PREFIX}{info.fingerprint[:32]}-{name}"


class CostFile:
    """What `costs` knows, in a file; taken up at once. Without a `path` nothing is kept."""

    def __init__(self, costs: Costs, path: Path | None) -> None:
        self._costs, self._path = costs, path
        if path is not None:
            load(costs, path)
            sweep(path)
        self._kept = predictions(costs)

    def keep(self) -> None:
        """Writes what changed materially since the last time, so that a process that is killed leaves it; else nothing."""
        if any(abs(now / then - 1) > MATERIAL for now, then in zip(predictions(self._costs), self._kept, strict=True)):
            self.save()

    def save(self) -> None:
        # Noted before it is tried: a full disk is told of once for each change, not in each idle moment.
        self._kept = predictions(self._costs)
        if self._path is not None:
            save(self._costs, self._path)


def predictions(costs: Costs) -> list[float]:
    """Milliseconds of the probes."""
    return [costs.milliseconds(rows, cells) for rows, cells in PROBES]


def load(costs: Costs, path: Path) -> None:
    """Takes up what was kept; a missing or damaged file means that they are learned anew."""
    try:
        costs.resume(checked(path.read_bytes()))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        log.warning("%s is not usable, costs are learned anew: %s", path, error)


def sweep(own: Path) -> None:
    """Deletes those of its folder that were not used for longest, `own` never; anybody may delete any of them."""
    with suppress(OSError):
        os.utime(own)  # a file is used by whoever starts with it, also where it then learns nothing new
    others = [path for path in own.parent.glob(f"{PREFIX}*") if path != own]
    for path in sorted(others, key=used, reverse=True)[KEPT - 1 :]:
        with suppress(OSError):
            path.unlink()


def used(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0  # gone meanwhile


def checked(data: bytes) -> Kinds:
    """Raises ValueError where the checksum is not that of the rest: one figure that is off would misplan for long."""
    checksum, _, content = data.partition(b"\n")
    if checksum != hashlib.sha256(content).hexdigest().encode():
        raise ValueError("it is damaged")
    return upgraded(json.loads(content))


def upgraded(kinds: Kinds) -> Kinds:
    """The form of now, of files whose fifth and last term was for rows of flash attention outside its tiles on a CPU.

    Where no step had such rows the term is 0 and goes; where one had, nothing is known.
    """
    if "loose" in kinds:
        return {}
    if "tiles" not in kinds and all(len(rows) == TERMS + 1 for rows in kinds.values()):
        return kinds
    return {
        "prompts" if kind == "tiles" else kind: [row[:TERMS] for row in (*rows[:TERMS], rows[-1])]
        for kind, rows in kinds.items()
    }


def save(costs: Costs, path: Path) -> None:
    """Written whole or not at all; a full disk is no reason to fail."""
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = json.dumps(costs.kept()).encode()
        temporary.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        temporary.replace(path)
    except OSError as error:
        log.warning("the costs of steps were not kept: %s", error)
