"""What NVIDIA's driver says of itself and of who uses its GPUs: asked once, to check an installation.

What is read again and again, and planned with, is in `sensors`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")
CUDA_MAJOR, CUDA_MINOR = 1000, 10  # NVML tells 12.4 as 12040


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU. `used`: bytes, None where the driver does not say."""

    pid: int
    gpu: int
    used: int | None


@dataclass(frozen=True)
class Driver:
    """`version` as the driver has it ("550.54.14"), `cuda` the newest CUDA that it runs; "" and None where it does not say.

    `fault`: why it cannot be asked, "" where it answered; `replaced`: the library is of another version than the module
    in the kernel. `processes`: those that hold memory of any GPU, ours among them.
    """

    version: str = ""
    cuda: tuple[int, int] | None = None
    processes: tuple[GpuProcess, ...] = ()
    fault: str = ""
    replaced: bool = False


def read_driver() -> Driver | None:
    """None without a driver's library. Never raises NVML's errors."""
    try:
        pynvml.nvmlInitWithFlags(0)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return None
        return Driver(fault=str(error), replaced=error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    try:
        return Driver(
            _told(pynvml.nvmlSystemGetDriverVersion) or "",
            _cuda(_told(pynvml.nvmlSystemGetCudaDriverVersion)),
            tuple(_processes()),
        )
    finally:
        _told(pynvml.nvmlShutdown)


def _told(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except pynvml.NVMLError:
        return None


def _cuda(number: int | None) -> tuple[int, int] | None:
    return None if number is None else (number // CUDA_MAJOR, number % CUDA_MAJOR // CUDA_MINOR)


def _processes() -> Iterator[GpuProcess]:
    """A process that computes and draws is in both lists, with one figure."""
    for index in range(_told(pynvml.nvmlDeviceGetCount) or 0):
        handle = _told(lambda at=index: pynvml.nvmlDeviceGetHandleByIndex(at))  # type: ignore[misc]
        if handle is None:
            continue
        computing = _told(lambda of=handle: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(of))  # type: ignore[misc]
        drawing = _told(lambda of=handle: pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(of))  # type: ignore[misc]
        found: dict[int, Any] = {one.pid: one.usedGpuMemory for one in [*(computing or ()), *(drawing or ())]}
        yield from (GpuProcess(pid, index, used) for pid, used in found.items())
