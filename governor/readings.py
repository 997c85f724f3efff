"""Readings of sensors. What is unknown is None, never 0. Does not know how a value is obtained."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class GpuReading:
    """One GPU. Bytes, watts and degrees Celsius.

    `own` is the driver's figure for our processes; unknown where it reports none by process (in a container, with MIG).
    """

    index: int
    uuid: str = ""
    name: str = ""
    total: int | None = None
    free: int | None = None
    own: int | None = None
    utilisation: float | None = None  # percent of time in which a kernel ran
    power: float | None = None
    power_limit: float | None = None  # enforced now
    power_default: float | None = None  # as the board was made
    temperature: float | None = None
    clock_reasons: frozenset[str] | None = None  # why the clocks are not at their highest
    performance_state: int | None = None  # 0 is the fastest, 15 the slowest
    unified: bool = False  # the driver has no figure because the GPU uses the host's RAM

    @property
    def used(self) -> int | None:
        """All that is not free, the driver's own reserve included."""
        return None if self.total is None or self.free is None else self.total - self.free

    @property
    def others(self) -> int | None:
        """Of all other processes; the report of the sensors takes it by its name."""
        return None if self.used is None or self.own is None else max(0, self.used - self.own)


@dataclass(frozen=True)
class HostReading:
    """The machine as this process may use it: `ram_total` and `ram_available` respect the container's own limit. Bytes."""

    ram_total: int | None = None
    ram_available: int | None = None
    ram_own: int | None = None  # anonymous memory of our processes; mapped weights are the page cache's
    rss: int | None = None
    container_limit: int | None = None  # unknown where there is none
    swap_total: int | None = None
    swap_used: int | None = None
    stalled: float | None = None  # percent of the last 10 s in which some task waited for memory (PSI)
    disk_free: int | None = None  # where checkpoints are written
    on_battery: bool | None = None
    battery: float | None = None  # percent
    network_up: bool | None = None


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
    """All sensors at one moment. Without a GPU `gpus` is empty and RAM takes VRAM's place. `stale_s`: seconds for which no
    reading has returned; the values are that much older than `at`."""

    at: float
    gpus: tuple[GpuReading, ...]
    host: HostReading
    faults: tuple[SensorFault, ...] = ()
    stale_s: float = 0.0


@dataclass(frozen=True)
class MemoryReading:
    """The memory that holds weights and KV, in bytes: one GPU's, or the host's. `own` unknown means: ask the engine."""

    where: str  # "VRAM" or "RAM"
    total: int
    free: int
    own: int | None

    @property
    def others(self) -> int:
        """What other programs hold."""
        return max(0, self.total - self.free - (self.own or 0))


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


def _known(where: str, total: int | None, free: int | None, own: int | None) -> MemoryReading | None:
    """Figures that cannot be, as of a driver that starts, are unknown: a grant by them would end codices."""
    if total is None or free is None or not 0 <= free <= total or not total:
        return None
    return MemoryReading(where, total, free, None if own is None else min(max(0, own), total - free))


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
    together, used = _total([gpu.free for gpu, _ in takers]), _total([gpu.used for gpu, _ in takers])
    free = None if together is None else min(together, *(int((gpu.free or 0) / share) for gpu, share in takers))
    return replace(
        first,
        name=" + ".join(gpu.name for gpu, _ in takers),
        free=free,
        total=None if free is None or used is None else free + used,
        own=_total([gpu.own for gpu, _ in takers]),
    )


def _total(values: Sequence[int | None]) -> int | None:
    """Unknown where one of them is."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
