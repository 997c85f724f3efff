"""The host as this process may use it: RAM within the container's limit, swap, memory stalls, battery, network, disk.

psutil for what the kernel says of the machine, cgroup files (v2, and v1's limit where v2 is absent) for what it says of
the container. What cannot be read is unknown and reported. Knows nothing of what the figures mean.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from governor.readings import HostReading, Reading
from governor.sensors.cgroup import Container, read_container
from governor.sensors.faults import Faults

T = TypeVar("T")


@dataclass(frozen=True)
class HostFiles:
    """Where the kernel's files are; `disk` is where checkpoints will be written."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    disk: Path = Path("/")


class HostSensor:
    """Reads the machine. Never raises for what cannot be read."""

    def __init__(self, files: HostFiles | None = None) -> None:
        self._files = files or HostFiles()
        self.faults = Faults()

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
