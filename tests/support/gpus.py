"""Readings of GPUs, as NVML would give them."""

from governor.readings import GpuReading


def gpu(index: int, total: int, free: int | None, own: int | None = 0) -> GpuReading:
    """`total` and `free` in bytes; None: the driver does not tell."""
    return GpuReading(index, f"GPU-{index}", f"card {index}", total, free, own)
