"""What the driver says of itself and of its GPUs' processes, through the real NVML wrapper on a stand-in driver."""

import json
import os
import subprocess
import sys

import pytest
from support.nvml import GIB, StandIn, compiled

from governor.driver import read_driver

ASK = (
    "import json, dataclasses; from governor.driver import read_driver as r; d = r();"
    "print(json.dumps(d and dataclasses.asdict(d)))"
)
MISMATCH, NO_DRIVER, NOT_SUPPORTED = 18, 9, 3


@pytest.fixture
def standing(tmp_path, tmp_path_factory):
    return StandIn(tmp_path, compiled(tmp_path_factory.getbasetemp()))


def asked(driver):
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        env={**os.environ, **driver.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_version_cuda_and_processes_are_told(standing):
    standing.set(driver="550.54.14", cuda=12040)
    standing.show(processes=f"42:{GIB},43:-1")
    assert asked(standing) == {
        "version": "550.54.14",
        "cuda": [12, 4],
        "processes": [{"pid": 42, "gpu": 0, "used": GIB}, {"pid": 43, "gpu": 0, "used": None}],
        "fault": "",
        "replaced": False,
    }


def test_an_older_driver_that_does_not_tell_is_no_fault(standing):
    standing.fail("nvmlSystemGetCudaDriverVersion", NOT_SUPPORTED)
    standing.fail("nvmlDeviceGetComputeRunningProcesses_v3", NOT_SUPPORTED)
    told = asked(standing)
    assert (told["version"], told["cuda"], told["processes"], told["fault"]) == ("", None, [], "")


@pytest.mark.parametrize(("code", "replaced"), [(MISMATCH, True), (NO_DRIVER, False)])
def test_a_driver_that_was_replaced_under_the_kernel_is_told_from_one_that_is_not_loaded(standing, code, replaced):
    standing.fail("nvmlInitWithFlags", code)
    told = asked(standing)
    assert (told["replaced"], bool(told["fault"])) == (replaced, True)


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a driver")  # noqa: PTH110 - a device
def test_without_a_driver_there_is_nothing():
    assert read_driver() is None
