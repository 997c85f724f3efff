"""The sources of readings, read in one call: NVIDIA GPUs through NVML, and the host as this process may use it.

What cannot be read is unknown and reported, never raised. Does not interpret the figures.

NVML is started once:

    not started --init--> started --read--> readings
         ^                   |
         +--- driver lost, or a GPU of the first start is missing: shut down, start again after `retry_s`

Which GPUs are visible follows CUDA_VISIBLE_DEVICES, whose text is passed in: indices, or the start of a UUID; the first
entry that names no GPU ends the list. Indices are NVML's, by PCI bus: CUDA counts alike with CUDA_DEVICE_ORDER=PCI_BUS_ID.
Those of the first start are meant from then on, by their UUIDs: behind a GPU that fell off the bus the others are counted
anew, but a process keeps what it has on them. Not thread-safe: one reader.

Of the host, psutil reads the kernel's figures of the machine, cgroup files (v2, and v1's limit where v2 is absent) those of
the container.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pynvml

from governor.readings import GpuReading, HostReading, SensorFaults, SensorSnapshot

T = TypeVar("T")
MILLI = 1000  # NVML counts power in milliwatts
UNLIMITED_V1 = 1 << 60  # version 1 of cgroups writes "no limit" as the largest page-aligned number

# The driver is gone, unloaded or replaced: no handle is of use any more.
_DRIVER_LOST = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
# One GPU is gone: the others answer.
_GPU_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
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
    """`visible` is the text of CUDA_VISIBLE_DEVICES, None when it is not set; `files` where the host's figures are. `gpus`:
    whether any is looked for."""

    def __init__(
        self,
        visible: str | None = None,
        files: HostFiles | None = None,
        retry_s: float = 30.0,
        *,
        gpus: bool = True,
    ) -> None:
        self._nvml = NvmlSensor(visible, retry_s) if gpus else None
        self._host = HostSensor(files)

    def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot:
        """Everything at `now`. Blocks for as long as the driver does: call it off the event loop. Never raises."""
        gpus = self._nvml.read(own_pids, now) if self._nvml is not None else ()
        host = self._host.read(own_pids, now)
        faults = self._nvml.faults.now() if self._nvml is not None else ()
        return SensorSnapshot(now, gpus, host, faults + self._host.faults.now())

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()


# ---- GPUs ------------------------------------------------------------------------------------------------------------


class NvmlSensor:
    """Reads all visible GPUs. `visible` is the text of CUDA_VISIBLE_DEVICES, None when it is not set."""

    def __init__(self, visible: str | None = None, retry_s: float = 30.0) -> None:
        self._visible = visible
        self._retry_s = retry_s
        self._seen: dict[str, GpuReading] = {}  # the GPUs of the first start by UUID: who and where, all else unknown
        self._handles: dict[str, Any] | None = None  # of those that answer; None while NVML is not started
        self._next_start = float("-inf")
        self.faults = SensorFaults()

    def read(self, own_pids: frozenset[int], now: float) -> tuple[GpuReading, ...]:
        """One reading per visible GPU, empty without a driver; `own_pids` are our processes. Never raises NVML errors.

        A GPU that was there and does not answer is unknown, which is not the same as no GPU.
        """
        if self._started(now):
            try:
                return tuple(self._reading(gpu, own_pids, now) for gpu in self._seen)
            except pynvml.NVMLError as error:
                self.faults.failed("nvml", str(error), now)
                self.close()
                self._next_start = now + self._retry_s
        return tuple(self._seen.values())

    def close(self) -> None:
        if self._handles is None:
            return
        self._handles = None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # the driver is gone already: there is nothing left to shut down

    def _started(self, now: float) -> bool:
        whole = self._handles is not None and len(self._handles) == len(self._seen)
        if whole or now < self._next_start:
            return self._handles is not None
        self.close()
        self._next_start = now + self._retry_s
        try:
            pynvml.nvmlInitWithFlags(0)
            self._handles = {}
            self._handles = self._found(now)
        except pynvml.NVMLError as error:
            self.faults.failed("nvml", str(error), now)
            self.close()
            return False
        self.faults.answered("nvml")
        return True

    def _found(self, now: float) -> dict[str, Any]:
        """Handles of the GPUs that are meant, as far as they are there."""
        present = self._present(now)
        if not self._seen:
            chosen = _visible({gpu.index: gpu.uuid for gpu, _ in present.values()}, self._visible)
            by_index = {gpu.index: (key, gpu) for key, (gpu, _) in present.items()}
            self._seen = dict(by_index[index] for index in chosen)
        for gpu in (gpu for key, gpu in self._seen.items() if key not in present):
            self.faults.failed(f"gpu {gpu.index}", "not found by the driver", now)
        return {key: present[key][1] for key in self._seen if key in present}

    def _present(self, now: float) -> dict[str, tuple[GpuReading, Any]]:
        """Every GPU that can be opened. Raises where none of those that there are can be."""
        found: dict[str, tuple[GpuReading, Any]] = {}
        refused: pynvml.NVMLError | None = None
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                gpu = GpuReading(
                    index, _text(pynvml.nvmlDeviceGetUUID, handle), _text(pynvml.nvmlDeviceGetName, handle)
                )
            except pynvml.NVMLError as error:
                self.faults.failed(f"gpu {index}", str(error), now)
                refused = error
            else:
                found[gpu.uuid or str(index)] = gpu, handle
        if refused is not None and not found:
            raise refused
        return found

    def _reading(self, key: str, own_pids: frozenset[int], now: float) -> GpuReading:
        """Raises NVMLError where the driver is lost."""
        assert self._handles is not None
        gpu = self._seen[key]
        if key not in self._handles:
            return gpu
        try:
            return self._gpu(gpu, self._handles[key], own_pids, now)
        except pynvml.NVMLError as error:
            if error.value not in _GPU_LOST:
                raise
            self.faults.failed(f"gpu {gpu.index}", str(error), now)
            del self._handles[key]
            self._next_start = now + self._retry_s
            return gpu

    def _gpu(self, gpu: GpuReading, handle: Any, own_pids: frozenset[int], now: float) -> GpuReading:
        def ask(field: str, call: Callable[[], T | None]) -> T | None:
            return self._field(f"gpu {gpu.index} {field}", call, now)

        memory = ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        total, free = (None, None) if memory is None else (int(memory.total), int(memory.free))
        self.faults.answered(f"gpu {gpu.index}")
        return replace(
            gpu,
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
        """None for what is not there. A lost GPU or driver is raised: no other field would answer."""
        try:
            value = call()
        except pynvml.NVMLError as error:
            if error.value in _GPU_LOST + _DRIVER_LOST:
                raise
            if error.value not in _ABSENT:
                self.faults.failed(name, str(error), now)
            return None
        self.faults.answered(name)
        return value


def _visible(uuids: dict[int, str], visible: str | None) -> list[int]:
    """Indices of the visible GPUs in their order."""
    if visible is None:
        return list(uuids)
    chosen: list[int] = []
    for entry in visible.split(","):
        index = _index_of(entry.strip(), uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return chosen


def _index_of(entry: str, uuids: dict[int, str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) in uuids else None
    found = [index for index, uuid in uuids.items() if entry and uuid.lower().startswith(entry.lower())]
    return found[0] if len(found) == 1 else None


def _text(call: Callable[[Any], Any], handle: Any) -> str:
    """Empty where a board or a driver does not say it."""
    try:
        return str(call(handle))
    except pynvml.NVMLError as error:
        if error.value in _GPU_LOST + _DRIVER_LOST:
            raise
        return ""


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
