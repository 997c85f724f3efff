"""Several GPUs that one model is split over, read as one: tokens cost each what it takes of the model. Pure.

    free of the whole = the least, over the GPUs that take a share, of free / share     never more than all free together

A GPU that others fill bounds the whole, because its layers need room for every token.
"""

from collections.abc import Sequence
from dataclasses import replace

from governor.readings import GpuReading, Reading


def pooled(gpus: Sequence[GpuReading], shares: Sequence[float]) -> GpuReading:
    """`shares` sum up to 1, one for each GPU. What only one GPU can say (power, clocks) is the first taker's."""
    takers = [(gpu, share) for gpu, share in zip(gpus, shares, strict=True) if share > 0]
    first = takers[0][0]
    if len(takers) == 1:
        return first
    whole = [gpu for gpu, _ in takers]
    free = least([(gpu.free.value, share) for gpu, share in takers])
    used, own = total([gpu.used.value for gpu in whole]), total([gpu.own.value for gpu in whole])
    return replace(
        first,
        name=" + ".join(gpu.name for gpu in whole),
        free=like(first.free, free),
        used=like(first.used, used),
        total=like(first.total, None if free is None or used is None else free + used),
        own=like(first.own, own),
        others=like(first.others, None if used is None or own is None else used - own),
    )


def least(free: Sequence[tuple[int | None, float]]) -> int | None:
    together = total([value for value, _ in free])
    if together is None:
        return None
    return min(together, *(int((value or 0) / share) for value, share in free))


def total(values: Sequence[int | None]) -> int | None:
    """Unknown where one of them is."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def like(reading: Reading[int], value: int | None) -> Reading[int]:
    return Reading(value, reading.unit, reading.at)
