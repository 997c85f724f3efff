"""What a model meets when it is loaded here: the memory that counts, the limit, the GPUs, and how it is loaded for them.

The daemon, `lore model show` and `lore doctor` all ask here, so they say the same. Loads nothing.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from governor.budget import Demand, MemoryBudget, Ours, next_outlook, plan_budget
from governor.footprint import KvPlan
from governor.model_shape import FootprintError, ModelShape
from governor.offload import Offload, has_small_windows, with_windows
from governor.readings import MemoryReading, memory_of
from governor.sensors import Sensors
from governor.settings import MemorySettings
from orchestrator.engine.builtin.files import is_builtin
from orchestrator.errors import SettingsError
from orchestrator.machine.machine import ModelSensors
from orchestrator.model.embedding_model import find_embedding
from orchestrator.model.model_file import BUILT, write
from orchestrator.model.offloading import engine_offloads, offload_of
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths

TRIAL_WINDOW = 16_384  # of a built-in model, which is for trying out: on two cores a prompt this long takes a minute
WINDOW_CACHES = "window-caches.json"  # beside the checkpoints, which are of one kind of cache each
log = logging.getLogger("lorekeep.engine")


@dataclass(frozen=True)
class Gpu:
    """One that the engine may use; `free` bytes on it."""

    name: str
    free: int


@dataclass(frozen=True)
class LoadingConditions:
    """What a model meets when it is loaded here: how, the memory that counts, the user's limit, RAM for layers that a GPU
    cannot take, what the embedding model takes beside any model. `gpus` none: everything runs on the CPU.

    `offload` is as set, for any model, until `for_model`; `loaded` is that of the model that runs. `window_caches`: by
    file, the cache that its sliding layers had when it was loaded last.
    """

    offload: Offload
    memory: MemoryReading | None
    settings: MemorySettings
    limit: int | None = None
    host_free: int = 0
    embedding_bytes: int = 0
    gpus: tuple[Gpu, ...] = ()
    loaded: Offload | None = None
    window_caches: Mapping[str, str] = field(default_factory=dict)

    def for_model(self, path: Path, shape: ModelShape, *, loaded: bool = False) -> "LoadingConditions":
        """For one model; of the one that runs, `loaded`, as it was chosen then."""
        if loaded and self.loaded is not None:
            return replace(self, offload=self.loaded)
        offload = self.offload.for_shape(shape)
        if offload.context is None and BUILT.match(path.name):
            offload = replace(offload, context=TRIAL_WINDOW)
        before = self.window_caches.get(str(path), "")
        chosen = with_windows(offload, shape, lambda plan: self.window(shape, plan), before)
        return replace(self, offload=chosen)

    def budget(self, shape: ModelShape, plan: KvPlan) -> MemoryBudget | None:
        """With this plan; None where the memory cannot be read. FootprintError where KV cannot be predicted."""
        if self.memory is None:
            return None
        layers = self.offload.gpu_layers
        demand = Demand(
            shape,
            plan,
            gpu_layers=None if layers < 0 else layers,
            host_free=self.host_free,
            embedding_bytes=self.embedding_bytes,
        )
        return plan_budget(0, self.memory, demand, self.settings, self.limit)

    def window(self, shape: ModelShape, plan: KvPlan) -> int:
        """Tokens of the longest sequence; 0 where nothing can be planned."""
        try:
            budget = self.budget(shape, plan)
        except FootprintError:
            return 0
        return budget.window if budget is not None else 0


def conditions_here(settings: Settings, paths: Paths) -> LoadingConditions:
    """As `Machine` sees it before anything is loaded. A built-in embedding model that is not made yet counts nothing."""
    offloads = engine_offloads()
    governor, offload = settings.for_governor(), offload_of(settings.model, offloads=offloads)
    sensors = Sensors(os.environ.get("CUDA_VISIBLE_DEVICES"))
    seen = ModelSensors(sensors, offload if governor.memory.gpu is None else None)
    seen.cpu_only = not offloads
    try:
        outlook = next_outlook(None, seen.read(frozenset({os.getpid()}), time.monotonic()), Ours(), governor)
    finally:
        sensors.close()
    memory = memory_of(outlook.snapshot, governor.memory.gpu)
    file = None if is_builtin(settings.embedding.model) else find_embedding(settings.embedding, paths.models).file
    cost = file.cost if file is not None else None
    embedding = cost.here(on_gpu=memory is not None and memory.where == "VRAM") if cost is not None else 0
    free = outlook.snapshot.host.ram_available or 0
    gpus = () if seen.cpu_only else tuple(Gpu(gpu.name, gpu.free or 0) for gpu in seen.gpus)
    caches = window_caches(paths.checkpoints)
    return LoadingConditions(
        offload, memory, governor.memory, outlook.limit, free, embedding, gpus, window_caches=caches
    )


# -- which cache sliding layers had


def window_caches(checkpoints: Path) -> dict[str, str]:
    """By the model's file: full or small. Nothing where nothing is known, or it cannot be read."""
    try:
        found = json.loads((checkpoints / WINDOW_CACHES).read_bytes())
    except (OSError, ValueError):
        return {}
    return (
        {path: cache for path, cache in found.items() if cache in ("full", "small")} if isinstance(found, dict) else {}
    )


def remember_window_cache(checkpoints: Path, path: Path, shape: ModelShape, chosen: Offload) -> None:
    """For the next start; where it is set, or there is one kind, nothing is to be remembered."""
    known, cache = window_caches(checkpoints), "small" if chosen.plan.small_windows else "full"
    if chosen.windows != "auto" or not has_small_windows(shape) or known.get(str(path)) == cache:
        return
    others = {other: kind for other, kind in known.items() if Path(other).exists()}
    try:
        write(checkpoints / WINDOW_CACHES, json.dumps({**others, str(path): cache}, indent=1) + "\n")
    except (OSError, SettingsError) as error:
        log.warning("which cache the sliding layers of %s have is not remembered: %s", path, error)
