"""The sources of readings: the NVIDIA driver and the host's own files, read in one call.

Does not interpret the figures.
"""

from governor.readings import SensorSnapshot
from governor.sensors.host import HostFiles, HostSensor
from governor.sensors.nvml import NvmlSensor


class Sensors:
    """`visible` is the text of CUDA_VISIBLE_DEVICES, None when it is not set; `files` where the host's figures are."""

    def __init__(self, visible: str | None = None, files: HostFiles | None = None, retry_s: float = 30.0) -> None:
        self._nvml = NvmlSensor(visible, retry_s)
        self._host = HostSensor(files)

    def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot:
        """Everything at `now`. Blocks for as long as the driver does: call it off the event loop. Never raises."""
        gpus = self._nvml.read(own_pids, now)
        host = self._host.read(own_pids, now)
        return SensorSnapshot(now, gpus, host, self._nvml.faults.now() + self._host.faults.now())

    def close(self) -> None:
        self._nvml.close()
