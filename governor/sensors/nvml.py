"""NVIDIA GPUs through NVML, started once. No driver, a lost GPU, a missing field: unknown, reported, tried again later.

    not started --init--> started --read--> readings
         ^                   |
         +--- driver or GPU lost: shut down, start again after `retry_s`

Which GPUs are visible follows CUDA_VISIBLE_DEVICES, whose text is passed in: indices, or the start of a UUID; the first
entry that names no GPU ends the list. Indices are NVML's, by PCI bus: CUDA counts alike with CUDA_DEVICE_ORDER=PCI_BUS_ID.
Knows nothing of what the figures mean. Not thread-safe: one reader.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from governor.readings import GpuReading, Reading, SensorFaults

T = TypeVar("T")
MILLI = 1000  # NVML counts power in milliwatts

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
            return tuple(_silent(index, now) for index in self._seen)
        assert self._handles is not None
        readings = []
        for index, handle in self._handles.items():
            try:
                readings.append(self._gpu(index, handle, own_pids, now))
            except pynvml.NVMLError as error:
                self.faults.failed(f"gpu {index}", str(error), now)
                self._stop()
                self._next_start = now + self._retry_s
                return tuple(_silent(index, now) for index in self._seen)
        return tuple(readings)

    def close(self) -> None:
        self._stop()

    # ---- starting and stopping ---------------------------------------------------------------------------------

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
            self._stop()
            return False
        self.faults.answered("nvml")
        self._seen = tuple(self._handles)
        return True

    def _stop(self) -> None:
        if self._handles is None:
            return
        self._handles = None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # the driver is gone already: there is nothing left to shut down

    # ---- one GPU -----------------------------------------------------------------------------------------------

    def _gpu(self, index: int, handle: Any, own_pids: frozenset[int], now: float) -> GpuReading:
        def ask(unit: str, field: str, call: Callable[[], T | None]) -> Reading[T]:
            return Reading(self._field(f"gpu {index} {field}", call, now), unit, now)

        memory = ask("B", "memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle)).value
        total, free = (None, None) if memory is None else (int(memory.total), int(memory.free))
        used = None if total is None or free is None else total - free
        own = ask("B", "processes", lambda: _own_bytes(handle, own_pids))
        others = None if used is None or own.value is None else max(0, used - own.value)
        self.faults.answered(f"gpu {index}")
        return GpuReading(
            index=index,
            uuid=ask("", "uuid", lambda: str(pynvml.nvmlDeviceGetUUID(handle))).value or "",
            name=ask("", "name", lambda: str(pynvml.nvmlDeviceGetName(handle))).value or "",
            total=Reading(total, "B", now),
            used=Reading(used, "B", now),
            free=Reading(free, "B", now),
            own=own,
            others=Reading(others, "B", now),
            utilisation=ask("%", "utilisation", lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            power=ask("W", "power", lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / MILLI),
            power_limit=ask("W", "power limit", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / MILLI),
            power_default=ask(
                "W", "default power limit", lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / MILLI
            ),
            temperature=ask(
                "C", "temperature", lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
            ),
            clock_reasons=ask(
                "", "clock reasons", lambda: _reasons(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
            ),
            performance_state=ask("P", "performance state", lambda: _state(pynvml.nvmlDeviceGetPowerState(handle))),
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


def _silent(index: int, now: float) -> GpuReading:
    """A GPU that was there and does not answer: everything is unknown, which is not the same as no GPU."""
    none: Reading[Any] = Reading(None, "", now)
    return GpuReading(index, "", "", none, none, none, none, none, none, none, none, none, none, none, none)
