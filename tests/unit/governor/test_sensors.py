"""The sensors: the real machine, container files as kernels write them, and NVML over a stand-in driver."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.nvml import GIB, StandIn, compiled

from governor.sensors import Container, HostFiles, HostSensor, read_container

HERE = Path(__file__).resolve().parent
LOST, UNKNOWN_ERROR, NO_DRIVER = 15, 999, 9

Read = Callable[..., dict[str, Any]]


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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(tmp_path: Path, library: Path) -> StandIn:
    return StandIn(tmp_path, library)


@contextmanager
def sensor(environment: dict[str, str]) -> Iterator[Read]:
    """A running sensor: `read(now, pid, ...)` gives its readings and faults."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    inherited |= {"PYTHONPATH": str(HERE.parents[2])} | environment
    command = [sys.executable, HERE / "read_sensor.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=inherited) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def read(now: float = 0.0, *pids: int) -> dict[str, Any]:
            print(json.dumps([now, pids]), file=process.stdin, flush=True)
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            return answer

        yield read


def value(answer: dict[str, Any], field: str, gpu: int = 0) -> Any:
    return answer["gpus"][gpu][field]


def test_a_gpu_says_all_it_knows(driver: StandIn) -> None:
    driver.show(free=20 * GIB, processes="4242:1073741824,4243:536870912", reasons=4 | 32, power=120_500)
    with sensor(driver.environment) as read:
        answer = read(7.0, 4242)
    gpu = answer["gpus"][0]
    assert (gpu["index"], gpu["name"]) == (0, "NVIDIA Stand-in")
    assert gpu["total"] == 24 * GIB
    assert (value(answer, "used"), value(answer, "free")) == (4 * GIB, 20 * GIB)
    assert value(answer, "own") == GIB
    assert gpu["power"] == 120.5
    assert (value(answer, "power_limit"), value(answer, "power_default")) == (350.0, 350.0)
    assert (value(answer, "temperature"), value(answer, "utilisation")) == (41.0, 3.0)
    assert value(answer, "clock_reasons") == ["power-cap", "thermal"]
    assert value(answer, "performance_state") == 8
    assert answer["faults"] == []


def test_free_memory_that_falls_is_seen_while_the_process_runs(driver: StandIn) -> None:
    with sensor(driver.environment) as read:
        assert value(read(0.0), "free") == 23 * GIB
        driver.show(free=2 * GIB)
        assert value(read(1.0), "free") == 2 * GIB
        driver.show(free=21 * GIB)
        assert value(read(2.0), "free") == 21 * GIB


def test_nvml_is_started_once_however_often_it_is_read(driver: StandIn) -> None:
    with sensor(driver.environment) as read:
        for now in range(5):
            read(float(now))
    assert driver.calls().count("nvmlInitWithFlags") == 1
    assert driver.calls().count("nvmlShutdown") == 1


def test_no_driver_at_all_is_no_gpu_and_is_reported(tmp_path: Path) -> None:
    with sensor({"LD_LIBRARY_PATH": str(tmp_path)}) as read:
        answer = read(0.0)
    assert answer == {"gpus": [], "faults": [["nvml", "NVML Shared Library Not Found", 1]]}


def test_a_driver_that_is_loaded_later_is_found_by_the_retry(driver: StandIn) -> None:
    driver.fail("nvmlInitWithFlags", NO_DRIVER)
    with sensor(driver.environment) as read:
        assert read(0.0)["gpus"] == []
        driver.fail("nvmlInitWithFlags", None)
        assert read(29.0)["gpus"] == []
        answer = read(30.0)
    assert value(answer, "total") == 24 * GIB
    assert answer["faults"] == []


def test_a_lost_gpu_is_unknown_rather_than_gone_and_comes_back(driver: StandIn) -> None:
    with sensor(driver.environment) as read:
        read(0.0)
        driver.show(lost=1)
        lost = read(1.0)
        assert value(lost, "total") is None
        assert lost["faults"] == [["gpu 0", "GPU is lost", 1]]
        driver.show(lost=None)
        assert value(read(2.0), "total") is None
        back = read(31.0)
    assert value(back, "total") == 24 * GIB
    assert back["faults"] == []


@pytest.fixture
def two(driver: StandIn) -> StandIn:
    driver.set(count=2)
    driver.show(1, name="second", uuid="GPU-beef0000", total=8 * GIB, free=7 * GIB)
    return driver


def test_a_lost_gpu_takes_nothing_from_the_others(two: StandIn) -> None:
    with sensor(two.environment) as read:
        read(0.0)
        two.show(0, lost=1)
        lost = read(1.0)
        assert (value(lost, "total", 0), value(lost, "name", 0)) == (None, "NVIDIA Stand-in")
        assert value(lost, "free", 1) == 7 * GIB
        assert value(read(40.0), "free", 1) == 7 * GIB
        two.show(0, lost=None)
        assert value(read(80.0), "total", 0) == 24 * GIB


def test_a_gpu_that_fell_off_the_bus_stays_unknown_and_the_others_keep_their_numbers(two: StandIn) -> None:
    with sensor(two.environment) as read:
        read(0.0)
        two.show(0, lost=1)
        read(1.0)
        two.set(count=1)
        two.show(0, lost=None, name="second", uuid="GPU-beef0000", total=8 * GIB, free=6 * GIB)
        after = read(40.0)
    assert [(gpu["index"], gpu["name"], gpu["free"]) for gpu in after["gpus"]] == [
        (0, "NVIDIA Stand-in", None),
        (1, "second", 6 * GIB),
    ]
    assert [fault[:2] for fault in after["faults"]] == [["gpu 0", "not found by the driver"]]


def test_a_driver_that_is_unloaded_in_mid_run_is_named_and_found_again_with_its_gpus(driver: StandIn) -> None:
    with sensor(driver.environment) as read:
        read(0.0)
        driver.fail("nvmlDeviceGetMemoryInfo", NO_DRIVER)
        driver.fail("nvmlInitWithFlags", NO_DRIVER)
        for now in (1.0, 31.0, 62.0):
            gone = read(now)
            assert (value(gone, "total"), value(gone, "uuid")[:8]) == (None, "GPU-5f3a")
        assert gone["faults"] == [["nvml", "Driver Not Loaded", 3]]
        driver.fail("nvmlDeviceGetMemoryInfo", None)
        driver.fail("nvmlInitWithFlags", None)
        back = read(93.0)
    assert (value(back, "total"), back["faults"]) == (24 * GIB, [])


def test_what_a_board_does_not_have_is_unknown_without_a_fault(driver: StandIn) -> None:
    driver.show(power=None, power_limit=None, temperature=None, utilisation=None, total=None)
    with sensor(driver.environment) as read:
        answer = read()
    for field in ("power", "power_limit", "temperature", "utilisation", "total", "used", "free"):
        assert value(answer, field) is None
    assert value(answer, "performance_state") == 8
    assert answer["faults"] == []


def test_a_board_without_memory_of_its_own_says_that_it_shares_the_hosts(driver: StandIn) -> None:
    with sensor(driver.environment) as read:
        assert not read(0.0)["gpus"][0]["unified"]
        driver.show(total=None)
        assert read(1.0)["gpus"][0]["unified"]
        driver.fail("nvmlDeviceGetMemoryInfo", UNKNOWN_ERROR)
        assert not read(2.0)["gpus"][0]["unified"]


def test_an_older_driver_without_some_calls_still_says_the_rest(driver: StandIn, tmp_path: Path) -> None:
    older = compiled(tmp_path, "-DMISSING_SYMBOLS")
    with sensor(driver.environment | {"LD_LIBRARY_PATH": str(older)}) as read:
        answer = read()
    assert value(answer, "free") == 23 * GIB
    assert value(answer, "own") is None
    assert value(answer, "clock_reasons") is None


def test_a_call_that_fails_is_reported_counted_and_forgotten_when_it_answers(driver: StandIn) -> None:
    driver.fail("nvmlDeviceGetPowerUsage", UNKNOWN_ERROR)
    with sensor(driver.environment) as read:
        read(0.0)
        answer = read(1.0)
        assert answer["faults"] == [["gpu 0 power", "Unknown Error", 2]]
        assert value(answer, "power") is None
        assert value(answer, "free") == 23 * GIB
        driver.fail("nvmlDeviceGetPowerUsage", None)
        assert read(2.0)["faults"] == []


def test_our_process_without_a_figure_makes_own_use_unknown(driver: StandIn) -> None:
    driver.show(processes="4242:-1,4243:1073741824")
    with sensor(driver.environment) as read:
        assert value(read(0.0, 4242), "own") is None
        assert value(read(1.0, 4243), "own") == GIB
        assert value(read(2.0), "own") == 0


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        ("1", [1]),
        ("1,0", [1, 0]),
        ("GPU-beef", [1]),
        ("0,GPU-beef", [0, 1]),
        ("0,7,1", [0]),
        ("-1", []),
        ("", []),
        ("0,0", [0]),
        ("GPU-", []),
    ],
)
def test_cuda_visible_devices_is_honoured(driver: StandIn, visible: str, seen: list[int]) -> None:
    driver.set(count=2)
    driver.show(1, name="second", uuid="GPU-beef0000", total=8 * GIB, free=8 * GIB)
    with sensor(driver.environment | {"CUDA_VISIBLE_DEVICES": visible}) as read:
        assert [gpu["index"] for gpu in read()["gpus"]] == seen
