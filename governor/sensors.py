"""The sources of readings, read in one call: NVIDIA GPUs through NVML, and the host as this process may use it.

What cannot be read is unknown and reported, never raised. Does not interpret the figures.

NVML is started once:

    not started --init--> started --read--> readings
         ^                   |
         +--- driver or GPU lost: shut down, start again after `retry_s`

Which GPUs are visible follows CUDA_VISIBLE_DEVICES, whose text is passed in: indices, or the start of a UUID; the first
entry that names no GPU ends the list. Indices are NVML's, by PCI bus: CUDA counts alike with CUDA_DEVICE_ORDER=PCI_BUS_ID.
Not thread-safe: one reader.

Of the host, psutil reads the kernel's figures of the machine, cgroup files (v2, and v1's limit where v2 is absent) those of
the container.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pynvml

from governor.readings import GpuReading, HostReading, SensorFaults, SensorSnapshot

T = TypeVar("T")
MILLI = 1000  # NVML counts power in milliwatts
UNLIMITED_V1 = 1 << 60  # version 1 of cgroups writes "no limit" as the largest page-aligned number

# What makes a driver handle useless: shut down and start again.
_LOST = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    pynvml.NVML_ERROR_RESET_REQUIRED,
)
# What a board, a driver or a MIG slice does not have: unknown, and nothing to report.
_ABSENT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NO_DATA,
)
CLOCK_REASONS = {
    pynvml.nvmlClocksEventReasonGpuIdle: "idle",
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "user-clocks",
    pynvml.nvmlClocksEventReasonSwPowerCap: "power-cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync-boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware-thermal",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power-brake",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display-clocks",
}


@dataclass(frozen=True)
class HostFiles:
    """Where the kernel's files are; `disk` is where checkpoints will be written."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    disk: Path = Path("/")


class Sensors:
    """`visible` is the text of CUDA_VISIBLE_DEVICES, None when it is not set; `files` where the host's figures are."""

    def __init__(self, visible: str | None = None, files: HostFiles | None = None, retry_s: float = 30.0) -> None:
        self._nvml = NvmlSensor(visible, retry_s)
        self._host = HostSensor(files)

    def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot:
        """Everything at `now`. Blocks for as long as the driver does: call it off the event loop. Never raises."""
        gpus = self._nvml.read(own_pids, now)
        host = self._host.read(own_pids, now)
        return SensorSnapshot(now, gpus, host, self._nvml.faults.now() + self._host.faults.now())

    def close(self) -> None:
        self._nvml.close()


# ---- GPUs ------------------------------------------------------------------------------------------------------------


class NvmlSensor:
    """Reads all visible GPUs. `visible` is the text of CUDA_VISIBLE_DEVICES, None when it is not set."""

    def __init__(self, visible: str | None = None, retry_s: float = 30.0) -> None:
        self._visible = visible
        self._retry_s = retry_s
        self._handles: dict[int, Any] | None = None  # by NVML index; None while NVML is not started
        self._seen: tuple[int, ...] = ()  # GPUs that have been there: lost is not the same as none
        self._next_start = float("-inf")
        self.faults = SensorFaults()

    def read(self, own_pids: frozenset[int], now: float) -> tuple[GpuReading, ...]:
        """One reading per visible GPU, empty without a driver; `own_pids` are our processes. Never raises NVML errors.

        Once a GPU is lost all are unknown until NVML has been started again: a handle may not outlive the driver.
        """
        if not self._started(now):
            return self._silent()
        assert self._handles is not None
        readings = []
        for index, handle in self._handles.items():
            try:
                readings.append(self._gpu(index, handle, own_pids, now))
            except pynvml.NVMLError as error:
                self.faults.failed(f"gpu {index}", str(error), now)
                self.close()
                self._next_start = now + self._retry_s
                return self._silent()
        return tuple(readings)

    def _silent(self) -> tuple[GpuReading, ...]:
        """The GPUs that were there and do not answer: everything is unknown, which is not the same as no GPU."""
        return tuple(GpuReading(index) for index in self._seen)

    def _started(self, now: float) -> bool:
        if self._handles is not None:
            return True
        if now < self._next_start:
            return False
        self._next_start = now + self._retry_s
        try:
            pynvml.nvmlInitWithFlags(0)
            self._handles = {}
            self._handles = _visible_handles(self._visible)
        except pynvml.NVMLError as error:
            self.faults.failed("nvml", str(error), now)
            self.close()
            return False
        self.faults.answered("nvml")
        self._seen = tuple(self._handles)
        return True

    def close(self) -> None:
        if self._handles is None:
            return
        self._handles = None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # the driver is gone already: there is nothing left to shut down

    def _gpu(self, index: int, handle: Any, own_pids: frozenset[int], now: float) -> GpuReading:
        def ask(field: str, call: Callable[[], T | None]) -> T | None:
            return self._field(f"gpu {index} {field}", call, now)

        memory = ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        total, free = (None, None) if memory is None else (int(memory.total), int(memory.free))
        self.faults.answered(f"gpu {index}")
        return GpuReading(
            index=index,
            uuid=ask("uuid", lambda: str(pynvml.nvmlDeviceGetUUID(handle))) or "",
            name=ask("name", lambda: str(pynvml.nvmlDeviceGetName(handle))) or "",
            total=total,
            free=free,
            own=ask("processes", lambda: _own_bytes(handle, own_pids)),
            utilisation=ask("utilisation", lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            power=ask("power", lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / MILLI),
            power_limit=ask("power limit", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / MILLI),
            power_default=ask(
                "default power limit", lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / MILLI
            ),
            temperature=ask(
                "temperature", lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
            ),
            clock_reasons=ask("clock reasons", lambda: _reasons(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))),
            performance_state=ask("performance state", lambda: _state(pynvml.nvmlDeviceGetPowerState(handle))),
            unified=memory is None and _is_unified(handle),
        )

    def _field(self, name: str, call: Callable[[], T | None], now: float) -> T | None:
        """None for what is not there; a lost driver is raised, so that the whole GPU is given up at once."""
        try:
            value = call()
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                raise
            if error.value not in _ABSENT:
                self.faults.failed(name, str(error), now)
            return None
        self.faults.answered(name)
        return value


def _visible_handles(visible: str | None) -> dict[int, Any]:
    everyone = {index: pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())}
    if visible is None:
        return everyone
    uuids = {index: str(pynvml.nvmlDeviceGetUUID(handle)) for index, handle in everyone.items()}
    chosen: dict[int, Any] = {}
    for entry in visible.split(","):
        index = _index_of(entry.strip(), uuids)
        if index is None or index in chosen:
            break
        chosen[index] = everyone[index]
    return chosen


def _index_of(entry: str, uuids: dict[int, str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) in uuids else None
    found = [index for index, uuid in uuids.items() if entry and uuid.lower().startswith(entry.lower())]
    return found[0] if len(found) == 1 else None


def _own_bytes(handle: Any, own_pids: frozenset[int]) -> int | None:
    """Bytes of our processes; None where the driver lists processes without saying what they use, or not at all.

    A process may compute and draw: it is then in both lists with the same figure. Versioned calls, because pynvml raises
    another kind of error for the plain ones on a driver before 510, which has no version 3.
    """
    used: dict[int, int | None] = {}
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle) + _drawing(handle):
        used[process.pid] = process.usedGpuMemory
    own = [size for pid, size in used.items() if pid in own_pids]
    return None if None in own else sum(size for size in own if size is not None)


def _drawing(handle: Any) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle))
    except pynvml.NVMLError as error:
        if error.value in _ABSENT:
            return []  # a compute board draws nothing
        raise


def _is_unified(handle: Any) -> bool:
    """Boards that share the host's RAM answer "not supported" for memory, and for nothing else that matters."""
    try:
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        return bool(error.value == pynvml.NVML_ERROR_NOT_SUPPORTED)
    return False


def _reasons(bits: int) -> frozenset[str]:
    return frozenset(name for bit, name in CLOCK_REASONS.items() if bits & bit)


def _state(state: int) -> int | None:
    return None if state == pynvml.NVML_PSTATE_UNKNOWN else state


# ---- the host --------------------------------------------------------------------------------------------------------


class HostSensor:
    """Reads the machine. Never raises for what cannot be read."""

    def __init__(self, files: HostFiles | None = None) -> None:
        self._files = files or HostFiles()
        self.faults = SensorFaults()

    def read(self, own_pids: frozenset[int], now: float) -> HostReading:
        """All host readings at `now`; `own_pids` are our processes, whose memory is summed."""

        def ask(sensor: str, call: Callable[[], T | None]) -> T | None:
            return self._field(sensor, call, now)

        container = ask("container", lambda: read_container(self._files.proc, self._files.cgroup))
        ram = ask("ram", psutil.virtual_memory)
        swap = ask("swap", psutil.swap_memory)
        rss, ram_own = ask("own memory", lambda: _own_memory(own_pids)) or (None, None)
        total, available = (None, None) if ram is None else _within(container, ram.total, ram.available)
        battery = ask("battery", psutil.sensors_battery)
        return HostReading(
            ram_total=total,
            ram_available=available,
            ram_own=ram_own,
            rss=rss,
            container_limit=None if container is None else container.limit,
            swap_total=None if swap is None else swap.total,
            swap_used=None if swap is None else swap.used,
            stalled=ask("memory pressure", lambda: _stalled(container, self._files.proc)),
            disk_free=ask("disk", lambda: psutil.disk_usage(str(_existing(self._files.disk))).free),
            on_battery=None if battery is None else not battery.power_plugged,
            battery=None if battery is None else float(battery.percent),
            network_up=ask("network", _network_up),
        )

    def _field(self, sensor: str, call: Callable[[], T | None], now: float) -> T | None:
        try:
            value = call()
        except (OSError, ValueError, psutil.Error) as error:
            self.faults.failed(sensor, str(error), now)
            return None
        self.faults.answered(sensor)
        return value


def _within(container: "Container | None", total: int, available: int) -> tuple[int, int]:
    """The tighter of machine and container. Its page cache can be reclaimed, so it counts as available."""
    if container is None or container.limit is None or container.limit >= total:
        return total, available
    left = max(0, container.limit - container.used)
    return container.limit, min(left, available)


def _own_memory(own_pids: frozenset[int]) -> tuple[int, int]:
    """Resident bytes of our processes, and of them what no file backs. A process that has ended counts nothing."""
    resident = anonymous = 0
    for pid in own_pids:
        try:
            memory = psutil.Process(pid).memory_info()
        except psutil.NoSuchProcess:
            continue
        resident += memory.rss
        anonymous += max(0, memory.rss - getattr(memory, "shared", 0))
    return resident, anonymous


def _stalled(container: "Container | None", proc: Path) -> float | None:
    """Percent of the last 10 s in which some task waited for memory. None on a kernel without PSI.

    "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" (kernel documentation, accounting/psi)
    """
    path = (container and container.pressure) or proc / "pressure" / "memory"
    if not path.exists():
        return None
    some = path.read_text().partition("avg10=")[2]
    return float(some.partition(" ")[0])


def _network_up() -> bool:
    return any(state.isup for name, state in psutil.net_if_stats().items() if name != "lo")


def _existing(path: Path) -> Path:
    """The folder may not have been made yet: its nearest parent is on the same disk."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


# ---- what the container leaves us ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Container:
    """What the container leaves us. `limit` in bytes, None without one; `used` of it without reclaimable page cache.

    `pressure` is its own PSI file.
    """

    limit: int | None
    used: int
    pressure: Path | None


def read_container(proc: Path, cgroup: Path) -> Container | None:
    """The tightest memory limit from our cgroup up to its root: version 2's, where its files are, else version 1's.

    None where there are no cgroup files. OSError and ValueError as reading them gives. Sources: kernel documentation,
    cgroup-v2 and cgroup-v1/memory.
    """
    places = _places(proc / "self" / "cgroup")
    for mount in (cgroup, cgroup / "unified"):
        if (mount / "cgroup.controllers").exists():
            found = _tightest(mount, places.get("", "/"), _read_v2)
            if found is not None:
                return found
    if (cgroup / "memory").exists():
        return _tightest(cgroup / "memory", places.get("memory", "/"), _read_v1)
    return None


def _places(path: Path) -> dict[str, str]:
    """Our place by controller, "" for version 2: lines of `number:controllers:place`."""
    places: dict[str, str] = {}
    if not path.exists():
        return places
    for line in path.read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        places.update(dict.fromkeys(controllers.split(","), place))
    return places


def _tightest(mount: Path, place: str, read: Callable[[Path], Container | None]) -> Container | None:
    """A parent's limit binds its children too. Inside a container the place may name folders that only the host sees."""
    found: Container | None = None
    inner = mount / place.strip("/")
    for folder in (inner, *inner.parents):
        here = read(folder) if folder.is_relative_to(mount) else None
        if here is not None and (found is None or _left(here) < _left(found)):
            found = here
    return found


def _left(container: Container) -> float:
    return float("inf") if container.limit is None else container.limit - container.used


def _read_v2(folder: Path) -> Container | None:
    if not (folder / "memory.max").exists():
        return None  # the root has none
    text = (folder / "memory.max").read_text().strip()
    limit = None if text == "max" else int(text)
    used = int((folder / "memory.current").read_text()) - _cache(folder / "memory.stat", "inactive_file")
    pressure = folder / "memory.pressure"
    return Container(limit, max(0, used), pressure if pressure.exists() else None)


def _read_v1(folder: Path) -> Container | None:
    if not (folder / "memory.limit_in_bytes").exists():
        return None
    limit = int((folder / "memory.limit_in_bytes").read_text())
    used = int((folder / "memory.usage_in_bytes").read_text()) - _cache(folder / "memory.stat", "total_inactive_file")
    return Container(None if limit >= UNLIMITED_V1 else limit, max(0, used), None)


def _cache(stat: Path, name: str) -> int:
    """Page cache that the kernel gives back before anything else."""
    for line in stat.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
