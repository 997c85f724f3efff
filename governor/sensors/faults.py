"""Keeps what failed and for how long: a sensor that fails is reported, never raised.

Knows no sensor.
"""

from dataclasses import replace

from governor.readings import SensorFault


class Faults:
    """Faults by sensor; a sensor that answers again is forgotten."""

    def __init__(self) -> None:
        self._found: dict[str, SensorFault] = {}

    def failed(self, sensor: str, message: str, now: float) -> None:
        before = self._found.get(sensor)
        if before is None:
            self._found[sensor] = SensorFault(sensor, message, now, 1)
        else:
            self._found[sensor] = replace(before, message=message, count=before.count + 1)

    def answered(self, sensor: str) -> None:
        self._found.pop(sensor, None)

    def now(self) -> tuple[SensorFault, ...]:
        return tuple(self._found[sensor] for sensor in sorted(self._found))
