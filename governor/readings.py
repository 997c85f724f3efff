"""Readings of sensors: a value, its unit and its time. Unknown is a value of its own, never 0.

Does not know how a value is obtained.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Reading(Generic[T]):
    """`value` is None where it is unknown; `at` is the sampler's monotonic clock, in seconds."""

    value: T | None
    unit: str
    at: float


@dataclass(frozen=True)
class GpuReading:
    """One GPU. `used` holds all that is not free, the driver's own reserve included; `others` = used - own.

    `own` is the driver's figure for our processes; unknown where it reports none by process (in a container, with MIG).
    """

    index: int
    uuid: str
    name: str
    total: Reading[int]
    used: Reading[int]
    free: Reading[int]
    own: Reading[int]
    others: Reading[int]
    utilisation: Reading[float]  # percent of time in which a kernel ran
    power: Reading[float]
    power_limit: Reading[float]  # enforced now
    power_default: Reading[float]  # as the board was made
    temperature: Reading[float]
    clock_reasons: Reading[frozenset[str]]  # why the clocks are not at their highest
    performance_state: Reading[int]  # 0 is the fastest, 15 the slowest
    unified: bool = False  # the driver has no figure because the GPU uses the host's RAM


@dataclass(frozen=True)
class HostReading:
    """The machine as this process may use it: `ram_total` and `ram_available` respect the container's own limit."""

    ram_total: Reading[int]
    ram_available: Reading[int]
    ram_own: Reading[int]  # anonymous memory of our processes; mapped weights are the page cache's
    rss: Reading[int]
    container_limit: Reading[int]  # unknown where there is none
    swap_total: Reading[int]
    swap_used: Reading[int]
    stalled: Reading[float]  # percent of the last 10 s in which some task waited for memory (PSI)
    disk_free: Reading[int]  # where checkpoints are written
    on_battery: Reading[bool]
    battery: Reading[float]
    network_up: Reading[bool]


@dataclass(frozen=True)
class SensorFault:
    """A failing sensor. `since` on the sampler's clock; `count`: failures in a row."""

    sensor: str
    message: str
    since: float
    count: int


class SensorFaults:
    """Faults by sensor. A fault is reported, never raised, and removed when the sensor answers again."""

    def __init__(self) -> None:
        self._found: dict[str, SensorFault] = {}

    def failed(self, sensor: str, message: str, now: float) -> None:
        before = self._found.get(sensor)
        if before is None:
            self._found[sensor] = SensorFault(sensor, message, now, 1)
        else:
            self._found[sensor] = replace(before, message=message, count=before.count + 1)

    def answered(self, sensor: str) -> None:
        self._found.pop(sensor, None)

    def now(self) -> tuple[SensorFault, ...]:
        return tuple(self._found[sensor] for sensor in sorted(self._found))


@dataclass(frozen=True)
class SensorSnapshot:
    """All sensors at one moment. No GPU, or none that answers: `gpus` is empty and RAM takes VRAM's place."""

    at: float
    gpus: tuple[GpuReading, ...]
    host: HostReading
    faults: tuple[SensorFault, ...] = ()


@dataclass(frozen=True)
class MemoryReading:
    """The memory that holds weights and KV, in bytes: one GPU's, or the host's. `own` unknown means: ask the engine."""

    where: str  # "VRAM" or "RAM"
    total: int
    free: int
    own: int | None


def memory_of(snapshot: SensorSnapshot, gpu: str | None = None) -> MemoryReading | None:
    """The memory that counts: the chosen GPU's, else the host's. None where not even that is known.

    `gpu` is an index or the start of a UUID. A chosen GPU that cannot be read gives None, not RAM: weights do not move
    because a sensor is silent.
    """
    if not snapshot.gpus and gpu is None:
        return host_memory(snapshot)
    chosen = chosen_gpu(snapshot, gpu)
    if chosen is None:
        return None
    if chosen.unified:
        return host_memory(snapshot)
    return _known("VRAM", chosen.total, chosen.free, chosen.own)


def host_memory(snapshot: SensorSnapshot) -> MemoryReading | None:
    return _known("RAM", snapshot.host.ram_total, snapshot.host.ram_available, snapshot.host.ram_own)


def chosen_gpu(snapshot: SensorSnapshot, gpu: str | None = None) -> GpuReading | None:
    for candidate in snapshot.gpus:
        if gpu is None or gpu == str(candidate.index) or candidate.uuid.lower().startswith(gpu.lower()):
            return candidate
    return None


def _known(where: str, total: Reading[int], free: Reading[int], own: Reading[int]) -> MemoryReading | None:
    if total.value is None or free.value is None:
        return None
    return MemoryReading(where, total.value, free.value, own.value)


def pooled(gpus: Sequence[GpuReading], shares: Sequence[float]) -> GpuReading:
    """Several GPUs that one model is split over, read as one. `shares` sum up to 1, one for each GPU.

        free of the whole = the least, over the GPUs that take a share, of free / share    at most all free together

    A GPU that others fill bounds the whole, because its layers need room for every token. What only one GPU can say
    (power, clocks) is that of the first GPU that takes a share.
    """
    takers = [(gpu, share) for gpu, share in zip(gpus, shares, strict=True) if share > 0]
    first = takers[0][0]
    if len(takers) == 1:
        return first
    whole = [gpu for gpu, _ in takers]
    free = _least_free([(gpu.free.value, share) for gpu, share in takers])
    used, own = _total([gpu.used.value for gpu in whole]), _total([gpu.own.value for gpu in whole])
    return replace(
        first,
        name=" + ".join(gpu.name for gpu in whole),
        free=_like(first.free, free),
        used=_like(first.used, used),
        total=_like(first.total, None if free is None or used is None else free + used),
        own=_like(first.own, own),
        others=_like(first.others, None if used is None or own is None else used - own),
    )


def _least_free(free: Sequence[tuple[int | None, float]]) -> int | None:
    together = _total([value for value, _ in free])
    if together is None:
        return None
    return min(together, *(int((value or 0) / share) for value, share in free))


def _total(values: Sequence[int | None]) -> int | None:
    """Unknown where one of them is."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _like(reading: Reading[int], value: int | None) -> Reading[int]:
    return Reading(value, reading.unit, reading.at)
