"""What `lore doctor` looks into beside the command line: GPUs, plug-ins, databases, who has the folders. Reads only."""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from formatters.registry import discover
from governor.sensors import Sensors
from orchestrator.instance import daemon_of
from orchestrator.settings.paths import Paths

STORES = ("*.sqlite3", "*.sqlite")  # the second: the catalog
_DELETED = " (deleted)"  # as the kernel says it


def gpu_names(environ: Mapping[str, str]) -> list[str]:
    sensors = Sensors(environ.get("CUDA_VISIBLE_DEVICES"))
    try:
        return [gpu.name for gpu in sensors.read(frozenset(), time.monotonic()).gpus]
    finally:
        sensors.close()


def plugin_failures() -> list[str]:
    return [str(failure) for failure in discover().failures]


def daemon_here(paths: Paths) -> tuple[str, str] | None:
    """The daemon that has these folders: its pid, and the socket that it serves."""
    found = daemon_of(paths)
    return (found.pid, found.about) if found else None


def damaged_stores(paths: Paths) -> list[tuple[Path, str]]:
    return [(store, fault) for store in stores(paths) if (fault := fault_of(store))]


def stores(paths: Paths) -> Iterator[Path]:
    for folder in dict.fromkeys((paths.data, paths.codices)):
        yield from sorted(store for pattern in STORES for store in folder.glob(pattern))


def deleted_stores(paths: Paths) -> list[tuple[Path, str]]:
    """Databases that a process of this user still writes to, though they were deleted: with its pid."""
    homes = {os.path.realpath(folder) for folder in (paths.data, paths.codices)}
    found: set[tuple[Path, str]] = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            opened = os.readlink(descriptor)  # noqa: PTH115 - a thousand of them, and it is text that is looked at
        except OSError:
            continue  # ended meanwhile, or another user's
        store = Path(opened.removesuffix(_DELETED))
        if opened.endswith(_DELETED) and str(store.parent) in homes and any(map(store.match, STORES)):
            found.add((store, descriptor.parts[2]))
    return sorted(found)


def fault_of(store: Path) -> str:
    """SQLite's own quick check, read-only; "" where all is well."""
    try:
        connection = sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
        try:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite may quote the damaged bytes in what it complains of
        return " ".join(str(error).splitlines())
    return "" if said == "ok" else str(said).splitlines()[-1]  # the first line may name the database alone
