"""The models at hand and what they cost here, found out without a daemon: from headers and sensors, and nothing is made."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from governor.budget import Ours, next_outlook
from governor.offload import Offload
from governor.readings import memory_of
from governor.sensors import Sensors
from orchestrator.engine.builtin.files import is_builtin
from orchestrator.errors import NotFound, instead
from orchestrator.machine.machine import ModelSensors
from orchestrator.model.embedding.embedding_model import find_embedding
from orchestrator.model.folder import AtHand, builtins, chosen, files, header_of, lying_at
from orchestrator.model.model_file import DEFAULT
from orchestrator.model.offloading import engine_offloads, offload_of
from orchestrator.reports import models
from orchestrator.reports.fits import Gpu, MachineMemory
from orchestrator.settings import parts
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.places import path_of
from orchestrator.wire.replies import ModelReport, ModelRow


@dataclass(frozen=True)
class MachineHere:
    """The machine as a daemon would find it now: how a model is loaded, the memory it may take, the GPUs one by one."""

    offload: Offload
    ground: MachineMemory
    gpus: tuple[Gpu, ...]


def models_here(settings: Settings, paths: Paths) -> list[ModelRow]:
    """`lore model list` without a daemon: one row a model, the configured one first. Reads every file's header."""
    machine = machine_here(settings, paths)
    return [
        models.row(one, header_of(one), machine.offload, machine.ground, loaded=False)
        for one in known_models(settings, paths.models)
    ]


def model_here(name: str, settings: Settings, paths: Paths) -> ModelReport:
    """`lore model show` without a daemon. `name` '' is the configured model. Raises NotFound."""
    known = known_models(settings, paths.models)
    found = (chosen(known, name) or lying_at(name)) if name else known[0]
    if found is None:
        raise NotFound(f"no model {name}", instead(name, [one.id for one in known], "", "`lore model list`"))
    machine = machine_here(settings, paths)
    return models.described(found, header_of(found), machine.offload, machine.ground, gpus=machine.gpus, loaded=False)


def known_models(settings: Settings, folder: Path) -> tuple[AtHand, ...]:
    """Each file once, the configured model first."""
    wanted = settings.model.path or DEFAULT
    own = [one for one in builtins(folder) if one.id == wanted] or [AtHand(wanted, path_of(wanted))]
    found: dict[Path, AtHand] = {}
    for one in (*own, *builtins(folder), *files(folder)):
        found.setdefault(one.path, one)
    return tuple(found.values())


def machine_here(settings: Settings, paths: Paths) -> MachineHere:
    """As `Machine` sees it before anything is loaded. A built-in embedding model that is not made yet counts nothing."""
    offloads = engine_offloads()
    governor, offload = parts.governor(settings), offload_of(settings.model, offloads=offloads)
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
    ground = MachineMemory(memory, governor.memory, outlook.limit, free, embedding)
    gpus = () if seen.cpu_only else tuple(Gpu(gpu.name, gpu.free or 0) for gpu in seen.gpus)
    return MachineHere(offload, ground, gpus)
