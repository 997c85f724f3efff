"""What the sensors read is reported whole."""

from support.gpus import gpu

from governor.readings import SensorSnapshot
from governor.sensors import HostSensor
from governor.settings import GIB
from orchestrator.reports.status import sensors_report


def test_of_a_gpu_is_reported_what_other_processes_take():
    snapshot = SensorSnapshot(0.0, (gpu(0, 24 * GIB, 20 * GIB, own=GIB),), HostSensor().read(frozenset(), 0.0))
    (report,) = sensors_report(snapshot, 0.0).gpus
    assert (report.used, report.own, report.others) == (4 * GIB, GIB, 3 * GIB)
