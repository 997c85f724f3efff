"""The settings of loading beside the model and the machine: what would fail is refused, what does nothing is said.

Knows no file and loads nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from formatters.template import Way
from governor.budget import ceiling_of, room_of
from governor.footprint import KvPlan, working_bytes
from governor.model_shape import FootprintError, ModelShape
from governor.offload import Offload, fitting_layers, idle, impossible, parts
from governor.readings import GpuReading
from governor.settings import MemorySettings, limit_bytes
from orchestrator.errors import InvalidRequest
from orchestrator.model.model_file import ModelFile
from orchestrator.settings.model import KvType, ModelSettings
from orchestrator.wire.places import compile_again


def offload_of(given: ModelSettings, *, offloads: bool) -> Offload:
    """For any model, before its shape is known. `offloads`: whether the engine can use a GPU."""
    return Offload(
        plan=KvPlan(kv_type(given.kv_type_k), kv_type(given.kv_type_v), given.sequences, given.batch),
        context=None if given.context == "auto" else given.context,
        gpu_layers=given.gpu_layers,
        split=given.split_mode,
        shares=given.tensor_split,
        main=given.main_gpu,
        flash=None if given.flash_attention == "auto" else given.flash_attention,
        windows=given.window_cache,
        on_gpu=offloads and given.gpu_layers != 0,
        kv_auto=given.kv_type_k == given.kv_type_v == "auto",
    )


def kv_type(given: KvType) -> str:
    return "f16" if given == "auto" else given


def usable(gpus: int, *, offloads: bool, named: str) -> int | None:
    """How many GPUs llama.cpp will use: of those that the driver tells, or the one that is named. None: nobody knows.

    An engine that offloads where NVML tells of nothing has a GPU of another maker.
    """
    if not offloads:
        return 0
    return 1 if named else gpus or None


def layers_on(gpus: Sequence[GpuReading], shape: ModelShape, chosen: Offload, memory: MemorySettings) -> int:
    """`gpu_layers` as llama.cpp is to have it; -1: all. `gpus`: those that it will use, as they are before loading.

    llama.cpp itself does not look whether a layer fits: loading would fail.
    """
    free = [gpu.free for gpu in gpus]
    known = [value for value in free if value is not None]
    if chosen.gpu_layers >= 0 or not known or len(known) < len(free):
        return chosen.gpu_layers
    try:
        fits = fitting_layers(shape, chosen, [room_on(gpu, memory) for gpu in gpus], memory.smallest_window)
    except FootprintError:
        return -1
    return -1 if fits == len(shape.layers) + 1 else fits


def room_beside(
    gpus: Sequence[GpuReading], shape: ModelShape, chosen: Offload, layers: int, memory: MemorySettings
) -> int | None:
    """Bytes that a model with so many layers (-1: all) leaves on its main GPU, when it has the KV of the smallest window.
    None where there is no GPU, or what is free there or what the model takes is not known."""
    if not gpus or any(gpu.free is None for gpu in gpus):
        return None
    at, rooms = min(chosen.main, len(gpus) - 1), [room_on(gpu, memory) for gpu in gpus]
    every = len(shape.layers) + 1
    count, cells = every if layers < 0 else min(layers, every), memory.smallest_window
    try:
        held = parts(shape, chosen, count, rooms, cells)[at]
    except FootprintError:
        return None
    working = working_bytes(shape, chosen.plan, max(cells, shape.trained)) if held.layers else 0
    return max(0, rooms[at] - held.weights - held.kv - working)


def room_on(gpu: GpuReading, memory: MemorySettings) -> int:
    """Bytes that may be taken of one, as the budget counts them; a limit in bytes holds for each."""
    total, free = gpu.total or 0, gpu.free or 0
    return room_of(ceiling_of(total, memory), total - free, limit_bytes(memory.vram_limit, free))


def suited(model: ModelFile, chosen: Offload, gpus: int | None) -> ModelFile:
    """The model with what must be said of its settings. `gpus`: how many the engine can use, None where nobody knows.

    Raises InvalidRequest with the first setting that loading would fail with.
    """
    for one in impossible(model.shape, chosen.for_shape(model.shape), gpus):
        raise InvalidRequest(f"{one.setting} cannot be used with {model.setting}: {one.why}", one.instead)
    return noted(model, *idle(chosen, gpus), *untemplated(model))


def noted(model: ModelFile, *notes: str) -> ModelFile:
    """The model with more to say wherever one of its answers appears."""
    return replace(model, notice="; ".join(part for part in (model.notice, *notes) if part))


def untemplated(model: ModelFile) -> tuple[str, ...]:
    """A model whose chat template is missing or cannot be cut still answers, in plain role lines, and less well."""
    if model.placement.way is not Way.NONE:
        return ()
    reason = model.placement.reason or "its file holds no chat template"
    return (f"plain role lines stand in for the chat template of {model.shape.name}: {reason}",)


BACKENDS = ("cuda", "hip", "vulkan", "sycl", "metal")
FIX = f"install nvcc (package nvidia-cuda-toolkit), then: {compile_again(cuda=True)}"


def unused_gpu(names: Sequence[str], *, offloads: bool, gpu_layers: int) -> str:
    """What must be said of GPUs that stand idle; "" where none does, or where the settings want it so."""
    if not names or offloads or gpu_layers == 0:
        return ""
    return f"{' and '.join(names)} stands idle: the engine was built for the CPU alone; {FIX}"


def engine_offloads() -> bool:
    """Whether llama.cpp as installed can use any GPU."""
    spec = find_spec("llama_cpp")
    folders = [Path(folder) / "lib" for folder in (spec.submodule_search_locations or ())] if spec else []
    return any(next(folder.glob(f"libggml-{name}.*"), None) for folder in folders for name in BACKENDS)
