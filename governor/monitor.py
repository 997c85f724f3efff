"""The loop that reads the sensors: often while a query runs, seldom when idle, never without a pause.

    report(ours), busy(on) --> [ read in a thread -> next outlook -> wake who waits ] --> latest, changed(after)

A daemon thread reads, not the event loop: a faulty driver can hang for seconds or for ever, and must not delay queries or
the end of the program. A read that hangs is reported and waited for; no second read is started meanwhile. Does not know
the use of the outlook.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from governor.budget import Ours, Outlook, next_outlook
from governor.readings import SensorFault, SensorSnapshot
from governor.settings import GovernorSettings

Wait = Callable[[asyncio.Event, float], Awaitable[None]]


class Reads(Protocol):
    """What is sampled. `read` may block and never raises; it is called from one thread at a time."""

    def read(self, own_pids: frozenset[int], now: float) -> SensorSnapshot: ...


async def until(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


class SensorSampler:
    """Publishes outlooks. One writer of them: everyone else reports, asks or waits. Use within one event loop."""

    def __init__(
        self,
        sensors: Reads,
        settings: GovernorSettings,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = until,
    ) -> None:
        self._sensors = sensors
        self._settings = settings
        self._clock = clock
        self._wait = wait
        self._ours = Ours()
        self._queries = 0
        self._latest: Outlook | None = None
        self._hurry = asyncio.Event()
        self._news = asyncio.Condition()

    @property
    def latest(self) -> Outlook | None:
        """The newest outlook; None before the first reading."""
        return self._latest

    @property
    def age_s(self) -> float | None:
        """Seconds since the newest readings were taken; None before the first."""
        if self._latest is None:
            return None
        return self._clock() - self._latest.snapshot.at + self._latest.snapshot.stale_s

    def report(self, ours: Ours) -> None:
        """What the engine holds now. A new demand is looked at soon, not at the next tick of an idle clock."""
        if ours != self._ours:
            self._ours = ours
            self._hurry.set()

    def busy(self, on: bool) -> None:
        """A query begins or ends; while one runs the clock is fast."""
        self._queries += 1 if on else -1
        assert self._queries >= 0, "a query ended that never began"
        if on:
            self._hurry.set()

    async def changed(self, after: int) -> Outlook:
        """The next outlook whose number is above `after`."""
        async with self._news:
            await self._news.wait_for(lambda: self._latest is not None and self._latest.number > after)
        assert self._latest is not None
        return self._latest

    async def run(self) -> None:
        """Samples until it is cancelled."""
        while True:
            await self.sample()
            await self._pause()

    async def sample(self) -> Outlook:
        """One reading, published."""
        self._hurry.clear()
        ours = self._ours
        reading = _in_thread(self._sensors.read, ours.pids, self._clock())
        while True:
            await asyncio.wait({reading}, timeout=self._settings.sampler.hang_s)
            if reading.done():
                return await self._publish(reading.result(), ours)
            if self._latest is not None:
                await self._publish(_hanging(self._latest.snapshot, self._clock()), ours)

    async def _publish(self, snapshot: SensorSnapshot, ours: Ours) -> Outlook:
        self._latest = next_outlook(self._latest, snapshot, ours, self._settings)
        async with self._news:
            self._news.notify_all()
        return self._latest

    async def _pause(self) -> None:
        """The busy beat is kept also by those who hurry: a flood of news must not become a flood of readings."""
        rhythm = self._settings.sampler
        await self._wait(asyncio.Event(), rhythm.busy_s)
        if not self._queries:
            await self._wait(self._hurry, rhythm.idle_s - rhythm.busy_s)


def _hanging(last: SensorSnapshot, now: float) -> SensorSnapshot:
    """The last readings at a later time, and the fault."""
    before = [fault for fault in last.faults if fault.sensor == "sensors"]
    since, count = (before[0].since, before[0].count + 1) if before else (now, 1)
    others = tuple(fault for fault in last.faults if fault.sensor != "sensors")
    fault = SensorFault("sensors", "a reading does not return", since, count)
    return replace(last, at=now, faults=(*others, fault), stale_s=last.stale_s + now - last.at)


def _in_thread(
    read: Callable[[frozenset[int], float], SensorSnapshot], pids: frozenset[int], now: float
) -> "asyncio.Future[SensorSnapshot]":
    """Runs a blocking read in a thread that does not keep the program alive, unlike an executor's."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[SensorSnapshot] = loop.create_future()

    def deliver(snapshot: SensorSnapshot) -> None:
        if not done.done():
            done.set_result(snapshot)

    def work() -> None:
        snapshot = read(pids, now)
        with suppress(RuntimeError):  # the loop was closed while the driver hung: nothing is left to notify
            loop.call_soon_threadsafe(deliver, snapshot)

    threading.Thread(target=work, name="sensors", daemon=True).start()
    return done
