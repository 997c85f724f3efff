"""The loop: numbered outlooks, a rhythm without busy waiting, a driver that hangs, and the way from sensor to grant."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from governor.budget import Demand, Ours, next_outlook, why_scarce
from governor.footprint import KvPlan
from governor.gguf import read_gguf
from governor.model_shape import shape_of
from governor.monitor import SensorSampler
from governor.pressure import Level
from governor.readings import GpuReading, HostReading, SensorFault, SensorSnapshot
from governor.settings import GIB, MIB, GovernorSettings, MemorySettings, PressureSettings, SamplerSettings, size

HOST = HostReading(32 * GIB, 30 * GIB, 0)
GPU = GpuReading(0, "GPU-1", "gpu")


def snapshot(at: float = 0.0, free: float | None = 20, total: float | None = 24) -> SensorSnapshot:
    known = {"total": total, "free": free}
    sizes = {name: None if value is None else int(value * GIB) for name, value in known.items()}
    return SensorSnapshot(at, (replace(GPU, own=0, **sizes),), HOST)


@pytest.fixture
def ours(tiny_model: Any) -> Ours:
    shape = shape_of(read_gguf(tiny_model("llama", context_length=1_000_000)))
    return Ours(frozenset({1}), demand=Demand(shape, KvPlan(), gpu_layers=7))


SETTINGS = GovernorSettings(memory=MemorySettings(margin_bytes=MIB), pressure=PressureSettings(worse_s=1, better_s=2))


# ---- outlooks ------------------------------------------------------------------------------------------------------


def test_the_first_outlook_has_a_grant_numbered_1_and_fixes_the_limit(ours: Ours) -> None:
    outlook = next_outlook(None, snapshot(), ours, SETTINGS)
    assert outlook.limit == 18 * GIB
    assert outlook.budget is not None
    assert outlook.budget.number == 1
    assert outlook.level is Level.CALM
    assert next_outlook(outlook, snapshot(1.0, free=10), ours, SETTINGS).limit == 18 * GIB


def test_a_daemon_that_starts_beside_the_program_it_was_paused_for_is_limited_by_what_that_leaves_later(
    ours: Ours,
) -> None:
    away = replace(ours, away=True)
    beside = next_outlook(None, snapshot(free=2), away, SETTINGS)
    assert beside.limit == int(0.9 * 2 * GIB)
    after = next_outlook(beside, snapshot(1.0, free=20), away, SETTINGS)
    assert after.limit == 18 * GIB
    assert next_outlook(after, snapshot(2.0, free=1), away, SETTINGS).limit == 18 * GIB


def test_memory_is_scarce_by_others_growth_and_not_by_what_else_fills_it(ours: Ours) -> None:
    calm = next_outlook(None, snapshot(), ours, SETTINGS)
    taken = next_outlook(calm, snapshot(1.0, free=0.5), ours, SETTINGS)
    critical = next_outlook(taken, snapshot(2.5, free=0.5), ours, SETTINGS)
    assert critical.budget is not None
    others = critical.budget.others
    assert why_scarce(calm, 0, SETTINGS.pressure) == why_scarce(taken, 0, SETTINGS.pressure) == ""
    assert why_scarce(critical, 0, SETTINGS.pressure) == f"others hold {size(others)} of VRAM"
    assert why_scarce(critical, others, SETTINGS.pressure) == "", "they held as much before"
    ebbing = next_outlook(critical, snapshot(2.6, free=15), ours, SETTINGS)
    assert (ebbing.level, why_scarce(ebbing, 0, SETTINGS.pressure)) == (Level.CRITICAL, "")


def test_readings_that_change_nothing_keep_both_numbers_and_fresh_figures(ours: Ours) -> None:
    first = next_outlook(None, snapshot(), ours, SETTINGS)
    later = next_outlook(first, snapshot(1.0, free=19.999), ours, SETTINGS)
    assert later.number == first.number
    assert first.budget is not None
    assert later.budget == replace(first.budget, others=later.budget.others if later.budget else 0)
    assert later.snapshot.at == 1.0


def test_memory_taken_by_others_makes_a_new_smaller_grant_and_then_a_level(ours: Ours) -> None:
    outlook = next_outlook(None, snapshot(), ours, SETTINGS)
    taken = next_outlook(outlook, snapshot(1.0, free=1), ours, SETTINGS)
    assert taken.budget is not None
    assert outlook.budget is not None
    assert taken.budget.number == 2
    assert taken.budget.cells < outlook.budget.cells
    assert taken.level is Level.CALM
    held = next_outlook(taken, snapshot(2.5, free=1), ours, SETTINGS)
    assert held.level is Level.CRITICAL
    assert held.number == taken.number + 1


def test_unknown_memory_keeps_the_last_grant_and_level(ours: Ours) -> None:
    outlook = next_outlook(None, snapshot(), ours, SETTINGS)
    blind = next_outlook(outlook, snapshot(1.0, free=None, total=None), ours, SETTINGS)
    assert blind.pressure is None
    assert blind.budget == outlook.budget
    assert blind.number == outlook.number


def test_no_gpu_lets_ram_take_its_place(ours: Ours) -> None:
    outlook = next_outlook(None, SensorSnapshot(0.0, (), HOST), ours, SETTINGS)
    assert outlook.budget is not None
    assert outlook.budget.where == "RAM"
    assert outlook.limit == 27 * GIB


def test_a_gpu_that_shares_the_hosts_memory_is_planned_in_ram(ours: Ours) -> None:
    shared = replace(snapshot(), gpus=(replace(GPU, unified=True),))
    outlook = next_outlook(None, shared, ours, SETTINGS)
    assert outlook.budget is not None
    assert outlook.budget.where == "RAM"


def test_a_chosen_gpu_is_found_by_index_or_uuid_and_its_absence_is_no_reason_to_move_to_ram(ours: Ours) -> None:
    for gpu, found in (("0", True), ("gpu-1", True), ("GPU-9", False)):
        settings = replace(SETTINGS, memory=replace(SETTINGS.memory, gpu=gpu))
        outlook = next_outlook(None, snapshot(), ours, settings)
        assert (outlook.budget is not None) is found
        assert outlook.unplanned == (
            "" if found else "the memory of GPU GPU-9, which governor.gpu names, cannot be read"
        )


def test_without_a_model_there_is_pressure_but_no_grant() -> None:
    outlook = next_outlook(None, snapshot(), Ours(), SETTINGS)
    assert outlook.pressure == pytest.approx(4 / (24 * 0.95))
    assert (outlook.budget, outlook.unplanned) == (None, "no model is chosen")


def test_a_fault_that_comes_and_goes_is_news(ours: Ours) -> None:
    outlook = next_outlook(None, snapshot(), ours, SETTINGS)
    fault = SensorFault("gpu 0 power", "Unknown Error", 1.0, 1)
    failing = next_outlook(outlook, replace(snapshot(1.0), faults=(fault,)), ours, SETTINGS)
    again = next_outlook(failing, replace(snapshot(2.0), faults=(replace(fault, count=2),)), ours, SETTINGS)
    assert (failing.number, again.number) == (outlook.number + 1, outlook.number + 1)


# ---- the loop ------------------------------------------------------------------------------------------------------


class Scripted:
    """Sensors that say what a test wrote, one snapshot after the other, then the last one for ever."""

    def __init__(self, *script: SensorSnapshot) -> None:
        self.script = list(script)
        self.asked: list[frozenset[int]] = []

    def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot:
        self.asked.append(own_pids)
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return replace(said, at=now)


class Time:
    """A clock that moves only by being waited on, and remembers the waits."""

    def __init__(self, most: int = 20) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.marks: dict[int, asyncio.Event] = {}
        self._most = most

    def __call__(self) -> float:
        return self.now

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        await asyncio.sleep(0)  # lets others run; no time passes
        if len(self.waits) == self._most:
            await asyncio.Event().wait()
        if not event.is_set():
            self.now += seconds
            self.waits.append(seconds)
            self.marks.setdefault(len(self.waits), asyncio.Event()).set()

    async def waited(self, times: int) -> None:
        await self.marks.setdefault(times, asyncio.Event()).wait()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def sampler(sensors: Any, time: Time, hang_s: float = 5.0) -> SensorSampler:
    settings = replace(SETTINGS, sampler=SamplerSettings(hang_s=hang_s))
    return SensorSampler(sensors, settings, clock=time, wait=time.wait)


@pytest.mark.anyio
async def test_news_wake_those_who_wait_for_a_number(ours: Ours) -> None:
    time = Time()
    sampling = sampler(Scripted(snapshot(), snapshot(), snapshot(free=2)), time)
    sampling.report(ours)
    loop = asyncio.create_task(sampling.run())
    first = await sampling.changed(0)
    second = await sampling.changed(first.number)
    assert first.budget is not None
    assert second.budget is not None
    assert second.budget.number == first.budget.number + 1
    loop.cancel()


@pytest.mark.anyio
async def test_the_clock_is_slow_when_idle_fast_while_a_query_runs_and_never_stands() -> None:
    time = Time(most=6)
    sampling = sampler(Scripted(snapshot()), time)
    loop = asyncio.create_task(sampling.run())
    await time.waited(2)
    sampling.busy(True)
    await time.waited(6)
    loop.cancel()
    assert time.waits[:2] == [0.25, 1.75]
    assert set(time.waits[3:]) == {0.25}


@pytest.mark.anyio
async def test_what_the_engine_tells_is_what_the_next_reading_uses(ours: Ours) -> None:
    sensors = Scripted(snapshot())
    sampling = sampler(sensors, Time())
    assert sampling.latest is None
    await sampling.sample()
    sampling.report(ours)
    outlook = await sampling.sample()
    assert sensors.asked == [frozenset(), frozenset({1})]
    assert outlook.budget is not None
    assert sampling.latest is outlook


@pytest.mark.anyio
async def test_a_reading_that_hangs_is_reported_and_no_second_one_is_started(release: threading.Event) -> None:
    class Hanging(Scripted):
        def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot:
            if self.asked:
                release.wait()
            return super().read(own_pids, now)

    sensors = Hanging(snapshot())
    time = Time()
    sampling = sampler(sensors, time, hang_s=0.01)
    first = await sampling.sample()
    time.now = 3.0
    reading = asyncio.create_task(sampling.sample())
    stuck = await sampling.changed(first.number)
    assert [(fault.sensor, fault.message) for fault in stuck.snapshot.faults] == [
        ("sensors", "a reading does not return")
    ]
    assert len(sensors.asked) == 1
    assert sampling.age_s == 3.0
    release.set()
    assert (await reading).snapshot.faults == ()
    assert sampling.age_s == 0.0


@pytest.mark.anyio
async def test_the_real_sensors_can_be_sampled(tmp_path: Path) -> None:
    from governor.sensors import HostFiles, Sensors

    sensors = Sensors(files=HostFiles(disk=tmp_path))
    outlook = await SensorSampler(sensors, GovernorSettings()).sample()
    sensors.close()
    assert outlook.snapshot.host.ram_total is not None
    assert outlook.pressure is not None


def test_ram_beside_a_gpu_has_a_level_of_its_own(ours: Ours) -> None:
    first = next_outlook(None, snapshot(), ours, SETTINGS)
    assert first.ram.level is Level.CALM
    full = replace(HOST, ram_available=GIB // 2)
    taken = next_outlook(first, replace(snapshot(1.0), host=full), ours, SETTINGS)
    held = next_outlook(taken, replace(snapshot(2.5), host=full), ours, SETTINGS)
    assert (held.level, held.ram.level) == (Level.CALM, Level.CRITICAL)
    assert held.number == taken.number + 1
    given = replace(
        ours, elsewhere=32 * GIB, elsewhere_held=32 * GIB
    )  # what is ours and can be given back does not press
    assert next_outlook(taken, replace(snapshot(2.5), host=full), given, SETTINGS).ram.level is Level.CALM


def test_without_a_gpu_the_hosts_level_is_the_one_that_counts(ours: Ours) -> None:
    outlook = next_outlook(None, SensorSnapshot(0.0, (), HOST), ours, SETTINGS)
    assert outlook.ram is outlook.state
