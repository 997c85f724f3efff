"""The machine and the engine on it, from the settings: which model, how it is loaded, and what it may take."""

import logging
import os
import time
from dataclasses import dataclass, replace

import psutil

from governor.budget import checkpoint_bytes
from governor.offload import Offload
from governor.readings import GpuReading, chosen_gpu
from governor.sensors import Sensors
from governor.settings import GovernorSettings
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.model import EngineSpec, RemoteSpec
from orchestrator.keys import Key, read_key, subkey
from orchestrator.machine.machine import Machine, ModelCosts
from orchestrator.machine.yielding import Yielding
from orchestrator.model.conditions import (
    Kept,
    LoadingConditions,
    conditions_here,
    remember_kv_type,
    remember_window_cache,
)
from orchestrator.model.embedding_model import EmbeddingChoice, find_embedding, on_gpu
from orchestrator.model.model_file import ModelFile, find_model
from orchestrator.model.offloading import (
    engine_offloads,
    layers_on,
    noted,
    offload_of,
    room_beside,
    suited,
    unused_gpu,
    usable,
)
from orchestrator.model.remote import remote_of, remote_parts
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths

log = logging.getLogger("lorekeep.embedding")


@dataclass(frozen=True)
class Host:
    """The machine and the engine on it. `conditions`: what models meet here; how this one is loaded is among them. `key`:
    of the files."""

    model: ModelFile
    conditions: LoadingConditions
    embedding: EmbeddingChoice
    governor: GovernorSettings
    client: EngineClient
    machine: Machine
    yielding: Yielding
    sensors: Sensors
    key: Key | None


def host_of(settings: Settings, paths: Paths, kept: Kept = dict) -> Host:
    """`kept`: the sizes of codices that were loaded before. Raises LoreError, first of all where the key is not there."""
    key = read_key(settings.security.encrypt, os.environ)
    if (remote := remote_of(settings, os.environ)) is not None:
        return remote_host(settings, paths, remote, key)
    governor, offloads = settings.for_governor(), engine_offloads()
    sensors = Sensors(os.environ.get("CUDA_VISIBLE_DEVICES"), retry_s=governor.sampler.retry_s)
    offload = offload_of(settings.model, offloads=offloads)
    model = suiting(settings, paths, sensors, offload, offloads=offloads)
    conditions = conditions_here(settings, paths, kept)
    offload = conditions.for_model(model.path, model.shape).offload
    remember_window_cache(paths.checkpoints, model.path, model.shape, offload)
    remember_kv_type(paths.checkpoints, model.path, offload)
    embedding = find_embedding(settings.embedding, paths.models)
    if embedding.fault:
        log.warning("search by meaning is off, search goes by words and names: %s", embedding.fault)
    gpus = gpus_of(settings, sensors) if offloads else ()
    layers = layers_on(gpus, model.shape, offload, governor.memory)
    room = room_beside(gpus, model.shape, offload, layers, governor.memory)
    embedding = on_gpu(embedding, settings.embedding.gpu_layers, room, offload.main)
    disk = checkpoint_bytes(psutil.disk_usage(str(paths.cache)).free, governor.stores)
    spec = spec_of(settings, paths, model, offload, embedding, disk)
    client = EngineClient(replace(spec, gpu_layers=layers, key=subkey(key, "checkpoints")))
    machine = Machine(sensors, governor, costs_of(model, offload, embedding), client)

    async def look() -> None:
        if client.info is None:  # the daemon was started while others had the GPU, which said nothing of what fits now
            seen = gpus_of(settings, sensors) if offloads else ()
            client.place(layers_on(seen, model.shape, offload, governor.memory))
        await machine.look()

    yielding = Yielding(
        client, governor.yielding, paths.state / "paused.json", settings.serve.shutdown_grace, machine.busy, look
    )
    return Host(
        model, replace(conditions, loaded=offload), embedding, governor, client, machine, yielding, sensors, key
    )


def remote_host(settings: Settings, paths: Paths, remote: RemoteSpec, key: Key | None) -> Host:
    parts = remote_parts(settings, paths, remote)
    if parts.embedding.fault:
        log.warning("search by meaning is off, search goes by words and names: %s", parts.embedding.fault)
    return Host(governor=settings.for_governor(), key=key, **vars(parts))


def model_of(settings: Settings, paths: Paths) -> ModelFile:
    """The model of these settings, as `build` would take it. Raises LoreError."""
    sensors, offloads = Sensors(os.environ.get("CUDA_VISIBLE_DEVICES")), engine_offloads()
    try:
        return suiting(settings, paths, sensors, offload_of(settings.model, offloads=offloads), offloads=offloads)
    finally:
        sensors.close()


def suiting(settings: Settings, paths: Paths, sensors: Sensors, offload: Offload, *, offloads: bool) -> ModelFile:
    """The model, and what must be said of its settings and of GPUs that it will not use. Raises LoreError."""
    gpus = [gpu.name for gpu in sensors.read(frozenset({os.getpid()}), time.monotonic()).gpus]
    idle = unused_gpu(gpus, offloads=offloads, gpu_layers=settings.model.gpu_layers)
    count = usable(len(gpus), offloads=offloads, named=settings.governor.gpu)
    found = find_model(settings.model.path, paths.models)
    return noted(suited(found, offload, count), idle)


def spec_of(
    settings: Settings, paths: Paths, model: ModelFile, offload: Offload, embedding: EmbeddingChoice, disk_budget: int
) -> EngineSpec:
    given = settings.model
    return EngineSpec(
        model=str(model.path),
        threads=given.threads,
        batch=given.batch,
        gpu_layers=given.gpu_layers,
        kv_type_k=offload.plan.keys,
        kv_type_v=offload.plan.values,
        flash_attention=offload.plan.flash_attention,
        split_mode=given.split_mode,
        tensor_split=given.tensor_split,
        main_gpu=given.main_gpu,
        gpu=settings.governor.gpu,
        drafts=given.drafts,
        sequences=offload.plan.pool_sequences,
        small_windows=offload.plan.small_windows > 0,
        context=offload.context or 0,
        cache_folder=str(paths.checkpoints),
        disk_budget=disk_budget,
        embedding=embedding.spec,
    )


def costs_of(model: ModelFile, offload: Offload, embedding: EmbeddingChoice) -> ModelCosts:
    cost = embedding.file.cost if embedding.file is not None else None
    return ModelCosts(model.shape, offload.plan, offload.context, offload, cost)


def gpus_of(settings: Settings, sensors: Sensors) -> tuple[GpuReading, ...]:
    """Those that an engine which offloads will use, as they are now."""
    seen = sensors.read(frozenset({os.getpid()}), time.monotonic())
    named = chosen_gpu(seen, settings.governor.gpu) if settings.governor.gpu else None
    return (named,) if named is not None else seen.gpus
