"""What llama.cpp as installed was built for: whether it can use a GPU at all, and what is said of one that it cannot use.

That is the commonest reason for slow answers. Knows which files the build left; loads none of them.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from orchestrator.wire.version import compile_again

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
