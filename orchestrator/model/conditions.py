"""What a model meets when it is loaded here: the memory that counts, the limit, the GPUs, and how it is loaded for them.

The daemon loads a model by it, `lore model show` and `lore doctor` tell by it. Loads nothing.
"""

import os
import time
from dataclasses import dataclass, replace

from governor.budget import Demand, MemoryBudget, Ours, next_outlook, plan_budget
from governor.footprint import KvPlan
from governor.model_shape import FootprintError, ModelShape
from governor.offload import Offload, with_windows
from governor.readings import MemoryReading, memory_of
from governor.sensors import Sensors
from governor.settings import MemorySettings
from orchestrator.engine.builtin.files import is_builtin
from orchestrator.machine.machine import ModelSensors
from orchestrator.model.embedding_model import find_embedding
from orchestrator.model.offloading import engine_offloads, offload_of
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths


@dataclass(frozen=True)
class Gpu:
    """One that the engine may use; `free` bytes on it."""

    name: str
    free: int


@dataclass(frozen=True)
class LoadingConditions:
    """What a model meets when it is loaded here: how, the memory that counts, the user's limit, RAM for layers that a GPU
    cannot take, what the embedding model takes beside any model. `gpus` none: everything runs on the CPU."""

    offload: Offload
    memory: MemoryReading | None
    settings: MemorySettings
    limit: int | None = None
    host_free: int = 0
    embedding_bytes: int = 0
    gpus: tuple[Gpu, ...] = ()

    def for_shape(self, shape: ModelShape, *, loaded: bool = False) -> "LoadingConditions":
        """For one model. Where it is `loaded`, its windows stay as they were chosen then."""
        offload = self.offload.for_shape(shape)
        if loaded:
            plan = replace(offload.plan, small_windows=self.offload.plan.small_windows)
            return replace(self, offload=replace(offload, plan=plan))
        return replace(self, offload=with_windows(offload, shape, lambda plan: self.window(shape, plan)))

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
    return LoadingConditions(offload, memory, governor.memory, outlook.limit, free, embedding, gpus)
