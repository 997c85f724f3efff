"""Pressure and power levels: a table of thresholds, each a switch with hysteresis and dwell. Pure: no clock, no sensor.

Pressure is about what can still move: weights and buffers cannot, so they are no part of it.

pressure = others' use / (ceiling of all programs - fixed)
fixed    = our weights, the buffers that compute, the embedding model; 1.0 where they leave nothing

         goes on at          goes off below
elevated 0.70                0.67            each after it held for `worse_s` (on) or `better_s` (off);
high     0.85                0.82            an unknown reading changes nothing and restarts the waiting
critical 0.95                0.92

level = the highest threshold that is on, else calm. A higher threshold is never on without the lower ones: a reading that
turns it on turns those on before, and one that turns those off turns it off.

power  throttled  heat or a power brake holds the clocks down
       low-power  on battery, or the enforced limit under half the default
       normal     otherwise
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from governor.readings import GpuReading, HostReading, MemoryReading
from governor.settings import PressureSettings


class Level(StrEnum):
    CALM = "calm"
    ELEVATED = "elevated"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Level).index(self)


class Power(StrEnum):
    NORMAL = "normal"
    LOW_POWER = "low-power"
    THROTTLED = "throttled"

    @property
    def prefill_share(self) -> float:
        """Of the time that answers leave of a round, for prompts beside them."""
        return 1.0 if self is Power.NORMAL else SAVING_SHARE

    @property
    def why_saving(self) -> str:
        """Why what nobody waits for is put off, '' where it is not."""
        return SAVING[self]


SAVING_SHARE = 0.5
SAVING = {
    Power.NORMAL: "",
    Power.LOW_POWER: "the machine is on battery, or its GPU under half of its power",
    Power.THROTTLED: "heat or a power brake holds the GPU's clocks down",
}

# Clock reasons that mean the hardware protects itself; a power cap under full load is its ordinary state.
THROTTLING = frozenset({"thermal", "hardware-thermal", "slowdown", "power-brake"})


@dataclass(frozen=True)
class ThresholdSwitch:
    """`waiting_since`: since when every reading would turn it; None while the last reading would not."""

    on: bool = False
    waiting_since: float | None = None


@dataclass(frozen=True)
class PressureState:
    """One switch for each threshold, lowest first, and two for power. Starts calm and normal."""

    levels: tuple[ThresholdSwitch, ...] = (ThresholdSwitch(),) * 3
    throttled: ThresholdSwitch = ThresholdSwitch()
    low_power: ThresholdSwitch = ThresholdSwitch()

    @cached_property
    def level(self) -> Level:
        return list(Level)[sum(switch.on for switch in self.levels)]

    @cached_property
    def power(self) -> Power:
        if self.throttled.on:
            return Power.THROTTLED
        return Power.LOW_POWER if self.low_power.on else Power.NORMAL


@dataclass(frozen=True)
class PressureReading:
    """The inputs of a step; None is unknown."""

    pressure: float | None
    throttled: bool | None = None
    low_power: bool | None = None


START = PressureState()


def step(state: PressureState, reading: PressureReading, now: float, settings: PressureSettings) -> PressureState:
    """The state after a reading at `now` (seconds, never going back)."""
    elevated, high, critical = (
        _turn(switch, _beyond(switch, reading.pressure, threshold, settings.hysteresis), now, settings)
        for switch, threshold in zip(state.levels, thresholds(settings), strict=True)
    )
    return PressureState(
        (elevated, high, critical),
        _turn(state.throttled, reading.throttled, now, settings),
        _turn(state.low_power, reading.low_power, now, settings),
    )


def thresholds(settings: PressureSettings) -> tuple[float, float, float]:
    return settings.elevated, settings.high, settings.critical


def pressure_of(memory: MemoryReading, ceiling: int, fixed: int) -> float:
    """How much of the memory that can move others hold, where 1.0 is all. `fixed`: bytes of ours that are no KV. Our KV
    is no pressure: grants bound it, and follow what others hold."""
    room = ceiling - fixed
    return memory.others / room if room > 0 else 1.0


def reading_of(
    pressure: float | None, gpu: GpuReading | None, host: HostReading, settings: PressureSettings
) -> PressureReading:
    """The table's inputs from the sensors. Power is low when any sensor reports it, unknown when none reports anything."""
    reasons = None if gpu is None else gpu.clock_reasons
    throttled = None if reasons is None else bool(reasons & THROTTLING)
    return PressureReading(pressure, throttled, _any((host.on_battery, _limited(gpu, settings))))


def _beyond(switch: ThresholdSwitch, pressure: float | None, threshold: float, hysteresis: float) -> bool | None:
    if pressure is None:
        return None
    return pressure >= (threshold - hysteresis if switch.on else threshold)


def _turn(switch: ThresholdSwitch, wanted: bool | None, now: float, settings: PressureSettings) -> ThresholdSwitch:
    if wanted is None or wanted == switch.on:
        return replace(switch, waiting_since=None)
    since = now if switch.waiting_since is None else switch.waiting_since
    dwell = settings.worse_s if wanted else settings.better_s
    return ThresholdSwitch(wanted) if now - since >= dwell else ThresholdSwitch(switch.on, since)


def _limited(gpu: GpuReading | None, settings: PressureSettings) -> bool | None:
    if gpu is None or gpu.power_limit is None or not gpu.power_default:
        return None
    return gpu.power_limit < gpu.power_default * settings.low_power_share


def _any(answers: Iterable[bool | None]) -> bool | None:
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None
