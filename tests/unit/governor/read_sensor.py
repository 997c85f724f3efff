"""Runs the NVIDIA sensor in a process of its own, whose linker finds the stand-in driver.

Reads JSON lines [now, own pids] from standard input and answers each with the readings and the faults.
"""

import json
import os
import sys
from dataclasses import asdict

from governor.sensors import NvmlSensor


def main() -> None:
    sensor = NvmlSensor(os.environ.get("CUDA_VISIBLE_DEVICES"), retry_s=30.0)
    for line in sys.stdin:
        now, pids = json.loads(line)
        gpus = [asdict(gpu) | {"used": gpu.used} for gpu in sensor.read(frozenset(pids), now)]
        faults = [[fault.sensor, fault.message, fault.count] for fault in sensor.faults.now()]
        print(json.dumps({"gpus": gpus, "faults": faults}, default=sorted), flush=True)  # noqa: T201 - its answer
    sensor.close()


if __name__ == "__main__":
    main()
