"""The host as this process may use it: RAM within the container's limit, swap, memory stalls, battery, network, disk.

psutil reads the kernel's figures of the machine, cgroup files (v2, and v1's limit where v2 is absent) those of the
container. A figure that cannot be read is unknown and reported. Does not interpret the figures.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from governor.readings import HostReading, Reading, SensorFaults

UNLIMITED_V1 = 1 << 60  # version 1 of cgroups writes "no limit" as the largest page-aligned number

T = TypeVar("T")


@dataclass(frozen=True)
class HostFiles:
    """Where the kernel's files are; `disk` is where checkpoints will be written."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    disk: Path = Path("/")


@dataclass(frozen=True)
class Container:
    """What the container leaves us. `limit` in bytes, None without one; `used` of it without reclaimable page cache.

    `pressure` is its own PSI file.
    """

    limit: int | None
    used: int
    pressure: Path | None


class HostSensor:
    """Reads the machine. Never raises for what cannot be read."""

    def __init__(self, files: HostFiles | None = None) -> None:
        self._files = files or HostFiles()
        self.faults = SensorFaults()

    def read(self, own_pids: frozenset[int], now: float) -> HostReading:
        """All host readings at `now`; `own_pids` are our processes, whose memory is summed."""

        def ask(unit: str, sensor: str, call: Callable[[], T | None]) -> Reading[T]:
            return Reading(self._field(sensor, call, now), unit, now)

        container = ask("", "container", lambda: read_container(self._files.proc, self._files.cgroup)).value
        ram = ask("", "ram", psutil.virtual_memory).value
        swap = ask("", "swap", psutil.swap_memory).value
        memory = ask("", "own memory", lambda: _own_memory(own_pids)).value
        total, available = (None, None) if ram is None else _within(container, ram.total, ram.available)
        battery = ask("", "battery", psutil.sensors_battery).value
        return HostReading(
            ram_total=Reading(total, "B", now),
            ram_available=Reading(available, "B", now),
            ram_own=Reading(None if memory is None else memory[1], "B", now),
            rss=Reading(None if memory is None else memory[0], "B", now),
            container_limit=Reading(None if container is None else container.limit, "B", now),
            swap_total=Reading(None if swap is None else swap.total, "B", now),
            swap_used=Reading(None if swap is None else swap.used, "B", now),
            stalled=ask("%", "memory pressure", lambda: _stalled(self._pressure_file(container))),
            disk_free=ask("B", "disk", lambda: psutil.disk_usage(str(_existing(self._files.disk))).free),
            on_battery=Reading(None if battery is None else not battery.power_plugged, "", now),
            battery=Reading(None if battery is None else float(battery.percent), "%", now),
            network_up=ask("", "network", _network_up),
        )

    def _field(self, sensor: str, call: Callable[[], T | None], now: float) -> T | None:
        try:
            value = call()
        except (OSError, ValueError, psutil.Error) as error:
            self.faults.failed(sensor, str(error), now)
            return None
        self.faults.answered(sensor)
        return value

    def _pressure_file(self, container: Container | None) -> Path:
        own = None if container is None else container.pressure
        return own or self._files.proc / "pressure" / "memory"


def _within(container: Container | None, total: int, available: int) -> tuple[int, int]:
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


def _stalled(path: Path) -> float | None:
    """Percent of the last 10 s in which some task waited for memory. None on a kernel without PSI.

    "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" (kernel documentation, accounting/psi)
    """
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
