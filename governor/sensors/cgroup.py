"""What the container leaves us: the tightest memory limit from our cgroup up to its root.

Version 2 files where they are, version 1's limit otherwise. Sources: kernel documentation, cgroup-v2 and
cgroup-v1/memory. Knows nothing of the machine's own RAM.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Version 1 says "no limit" with the largest page-aligned number.
UNLIMITED_V1 = 1 << 60


@dataclass(frozen=True)
class Container:
    """`limit` in bytes, None without one; `used` of it without reclaimable page cache; `pressure` its own PSI file."""

    limit: int | None
    used: int
    pressure: Path | None


def read_container(proc: Path, cgroup: Path) -> Container | None:
    """None where there are no cgroup files. OSError and ValueError as reading them gives."""
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
