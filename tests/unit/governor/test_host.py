"""Host sensors: the real machine, and container files as kernels write them."""

import os
from pathlib import Path

import psutil
import pytest

from governor.sensors import Container, HostFiles, HostSensor, read_container

GIB = 1024**3


def files(root: Path, **content: str) -> None:
    """`a__b=text` writes root/a/b; dots in names are spelled out by the caller."""
    for name, text in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def v2(root: Path, folder: str, limit: str, current: int, inactive: int = 0) -> None:
    place = f"cgroup/{folder}/" if folder else "cgroup/"
    files(
        root,
        **{
            "cgroup/cgroup.controllers": "memory cpu",
            f"{place}memory.max": f"{limit}\n",
            f"{place}memory.current": f"{current}\n",
            f"{place}memory.stat": f"anon 5\ninactive_file {inactive}\n",
        },
    )


def container(root: Path, place: str) -> Container | None:
    files(root, **{"proc/self/cgroup": place})
    return read_container(root / "proc", root / "cgroup")


def test_the_real_machine_is_read_without_a_fault() -> None:
    sensor = HostSensor()
    reading = sensor.read(frozenset({os.getpid()}), 5.0)
    assert sensor.faults.now() == ()
    assert reading.ram_total is not None
    assert 0 < reading.ram_total <= psutil.virtual_memory().total
    assert reading.ram_available is not None
    assert 0 < reading.ram_available <= reading.ram_total
    assert reading.rss is not None
    assert reading.ram_own is not None
    assert 0 < reading.ram_own <= reading.rss
    assert reading.disk_free is not None


def test_a_process_that_has_ended_counts_nothing() -> None:
    reading = HostSensor().read(frozenset({2**22 + 1}), 0.0)
    assert reading.rss == 0


def test_a_container_limit_takes_the_machines_place(tmp_path: Path) -> None:
    v2(tmp_path, "box", str(GIB), 700 * 1024**2, inactive=300 * 1024**2)
    files(tmp_path, **{"proc/self/cgroup": "0::/box\n"})
    reading = HostSensor(HostFiles(tmp_path / "proc", tmp_path / "cgroup", tmp_path)).read(frozenset(), 0.0)
    assert reading.ram_total == reading.container_limit == GIB
    assert reading.ram_available == GIB - 400 * 1024**2


def test_the_tightest_limit_on_the_way_up_binds(tmp_path: Path) -> None:
    v2(tmp_path, "outer", str(2 * GIB), GIB)
    v2(tmp_path, "outer/inner", "max", 1000)
    assert container(tmp_path, "0::/outer/inner\n") == Container(2 * GIB, GIB, None)


def test_a_place_that_only_the_host_sees_falls_back_to_the_mounts_root(tmp_path: Path) -> None:
    v2(tmp_path, "", str(3 * GIB), 5)
    assert container(tmp_path, "0::/docker/0123\n") == Container(3 * GIB, 5, None)


def test_version_1_files_give_their_limit_where_version_2_is_absent(tmp_path: Path) -> None:
    files(
        tmp_path,
        **{
            "cgroup/memory/box/memory.limit_in_bytes": str(GIB),
            "cgroup/memory/box/memory.usage_in_bytes": "5000",
            "cgroup/memory/box/memory.stat": "total_inactive_file 1000\n",
        },
    )
    assert container(tmp_path, "4:memory:/box\n0::/\n") == Container(GIB, 4000, None)


def test_version_1_without_a_limit_is_no_limit(tmp_path: Path) -> None:
    files(
        tmp_path,
        **{
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "cgroup/memory/memory.usage_in_bytes": "5000",
            "cgroup/memory/memory.stat": "total_inactive_file 0\n",
        },
    )
    found = container(tmp_path, "4:memory:/\n")
    assert found is not None
    assert found.limit is None


def test_damaged_kernel_files_are_a_fault_and_an_unknown_not_an_error(tmp_path: Path) -> None:
    v2(tmp_path, "", "rubbish", 5)
    files(tmp_path, **{"proc/self/cgroup": "0::/\n", "proc/pressure/memory": "nonsense"})
    sensor = HostSensor(HostFiles(tmp_path / "proc", tmp_path / "cgroup", tmp_path))
    reading = sensor.read(frozenset(), 0.0)
    assert [fault.sensor for fault in sensor.faults.now()] == ["container", "memory pressure"]
    assert reading.stalled is None
    assert reading.ram_total is not None


@pytest.mark.parametrize(("text", "stalled"), [("some avg10=12.50 avg60=0 total=1\n", 12.5), (None, None)])
def test_memory_stalls_are_read_where_the_kernel_tells_them(
    tmp_path: Path, text: str | None, stalled: float | None
) -> None:
    if text is not None:
        files(tmp_path, **{"proc/pressure/memory": text})
    reading = HostSensor(HostFiles(tmp_path / "proc", tmp_path / "cgroup", tmp_path)).read(frozenset(), 0.0)
    assert reading.stalled == stalled


def test_free_disk_is_read_for_a_folder_that_is_not_made_yet(tmp_path: Path) -> None:
    reading = HostSensor(HostFiles(disk=tmp_path / "cache" / "checkpoints")).read(frozenset(), 0.0)
    assert reading.disk_free is not None
