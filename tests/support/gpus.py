"""Readings of GPUs, as NVML would give them."""

from governor.readings import GpuReading, Reading


def gpu(index: int, total: int, free: int | None, own: int | None = 0) -> GpuReading:
    """`total` and `free` in bytes; None: the driver does not tell."""

    def reading(value: int | None) -> Reading[int]:
        return Reading(value, "B", 1.0)

    used = None if free is None else total - free
    others = None if used is None or own is None else used - own
    nothing: Reading[float] = Reading(None, "", 1.0)
    return GpuReading(
        index,
        f"GPU-{index}",
        f"card {index}",
        reading(total),
        reading(used),
        reading(free),
        reading(own),
        reading(others),
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
        Reading(None, "", 1.0),
        Reading(None, "", 1.0),
    )
