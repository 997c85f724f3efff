"""Gives the memory away and takes it back: pauses, other programs' growth, and idleness. The engine's child ends while one
of them holds, so that nothing of the memory is left to us; the daemon itself has none of it.

    cause     begins                                          ends
    --------  ----------------------------------------------  ----------------------------------------------------
    pause     `lore pause`: each is one, and they add up      `lore resume`, its deadline, or the end of its client
    pressure  others' growth makes the level critical while   a question; a calm level
              nobody asks (`yield = "polite"`)
    idle      no work for `idle_unload`                       a question

What brings the engine back while others hold the memory excuses it until nobody has asked for `QUIET_S`, or the level was
calm: others' growth must not end the model between two questions of one conversation, nor as a pause ends, when the
level still is what it was. No question ends a pause.

How long a pause and idleness last is told by a clock that nobody sets: a wall clock that is set forward ends no pause, and
one that is set back makes none longer. What is shown and kept in the file are times of the wall clock.

Pauses are kept in a file, written before they take effect, and outlast the daemon. One that lasts as long as its client's
connection is kept `RETURN_S` for that client to come back.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TypeVar

from governor.settings import YieldSettings
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.machine.clock import SteadyClock

log = logging.getLogger("lorekeep.governor")

QUIET_S = 60.0
RETURN_S = 15.0
AGAIN_S = 5.0  # after a fault of ours
ASLEEP_S = 60.0  # between two looks at the least: a timer does not count the time in which the machine sleeps


class Cause(StrEnum):
    PAUSE = "pause"
    PRESSURE = "pressure"
    IDLE = "idle"


@dataclass(frozen=True)
class Pause:
    """`since` and `until` in seconds of the steady clock, in the file in those of the wall clock; without `until` it ends
    by a request. `held`: its client's connection keeps it."""

    name: str
    since: float
    why: str
    until: float | None = None
    held: bool = False


@dataclass(frozen=True)
class Away:
    """Why the engine is not there. `until`: when it comes back by itself, None where that is not known."""

    cause: Cause
    since: float
    why: str
    until: float | None = None

    def words(self) -> str:
        """In one line, in local time."""
        since = time.strftime("%H:%M", time.localtime(self.since))
        if self.cause is not Cause.PAUSE:
            return f"unloaded since {since}: {self.why}; the next question loads it"
        until = time.strftime(" until %a %H:%M", time.localtime(self.until)) if self.until is not None else ""
        return f"paused since {since}{until} ({self.why}); lore resume ends it"


@dataclass(frozen=True)
class YieldState:
    """`asking`: questions at work; when the engine was last `wanted`, and when it last `worked`, wanted or by itself.
    `scarce`: why the memory is critical by others' growth, "" where it is not."""

    pauses: tuple[Pause, ...] = ()
    automatic: Away | None = None
    scarce: str = ""
    excused: bool = False
    asking: int = 0
    wanted: float = 0.0
    worked: float = 0.0


# -- events: `now` in seconds of the steady clock


@dataclass(frozen=True)
class PauseBegan:
    now: float
    pause: Pause


@dataclass(frozen=True)
class PauseEnded:
    """`name` None: `lore resume`, which ends whatever keeps the engine away."""

    now: float
    name: str | None = None


@dataclass(frozen=True)
class NeedChanged:
    """A question arrived, or, with -1, one has ended."""

    now: float
    more: int = 1


@dataclass(frozen=True)
class Worked:
    """The engine works without a question: it computes a floor, or embeds."""

    now: float


@dataclass(frozen=True)
class MemoryRead:
    """`scarce` as in the state; `calm`: nothing of that is left."""

    now: float
    scarce: str
    calm: bool


@dataclass(frozen=True)
class Looked:
    """Time has passed."""

    now: float


YieldEvent = PauseBegan | PauseEnded | NeedChanged | Worked | MemoryRead | Looked


# -- decisions; pure


def decide(state: YieldState, event: YieldEvent, settings: YieldSettings) -> YieldState:
    """The table above: what the event itself begins or ends, then what time has ended or begun."""
    now = event.now
    match event:
        case PauseBegan(_, pause):
            state = _with_pauses(state, now, (*(one for one in state.pauses if one.name != pause.name), pause))
        case PauseEnded(_, None):
            state = replace(_wanted(state, now), pauses=())
        case PauseEnded(_, name):
            state = _with_pauses(state, now, tuple(one for one in state.pauses if one.name != name))
        case NeedChanged(_, more):
            state = replace(
                _wanted(state, now) if more > 0 else state, asking=state.asking + more, wanted=now, worked=now
            )
        case Worked():
            state = replace(state, worked=now)
        case MemoryRead(_, scarce, calm):
            state = replace(state, scarce=scarce, excused=state.excused and not calm)
            if calm and _is_pressed(state):
                state = replace(state, automatic=None, wanted=now, worked=now)
    left = tuple(one for one in state.pauses if one.until is None or one.until > now)
    return _left_alone(_with_pauses(state, now, left), now, settings)


def _with_pauses(state: YieldState, now: float, pauses: tuple[Pause, ...]) -> YieldState:
    """The end of the last one is a wish to have the engine back."""
    if pauses == state.pauses:
        return state
    ended = bool(state.pauses) and not pauses
    return replace(_wanted(state, now) if ended else state, pauses=pauses)


def _wanted(state: YieldState, now: float) -> YieldState:
    excused = state.excused or bool(state.pauses and state.scarce) or _is_pressed(state)
    return replace(state, automatic=None, excused=excused, wanted=now, worked=now)


def _is_pressed(state: YieldState) -> bool:
    return state.automatic is not None and state.automatic.cause is Cause.PRESSURE


def _left_alone(state: YieldState, now: float, settings: YieldSettings) -> YieldState:
    """What begins by itself."""
    if state.automatic is not None or state.asking or state.pauses:
        return state
    if settings.polite and state.scarce and not (state.excused and now < state.wanted + QUIET_S):
        return replace(state, automatic=Away(Cause.PRESSURE, now, state.scarce), excused=False)
    if settings.idle_s and now >= state.worked + settings.idle_s:
        minutes = f"{settings.idle_s / 60:.0f} minutes" if settings.idle_s >= 60 else f"{settings.idle_s:g} s"
        return replace(state, automatic=Away(Cause.IDLE, now, f"nobody asked for {minutes}"))
    return state


def away_of(state: YieldState) -> Away | None:
    """Why the engine is to be away; None where it is to be there. Pauses are named before what a question would end."""
    if not state.pauses:
        return state.automatic
    ends = [pause.until for pause in state.pauses]
    until = None if None in ends else max(end for end in ends if end is not None)
    why = ", ".join(dict.fromkeys(pause.why for pause in state.pauses))
    return Away(Cause.PAUSE, min(pause.since for pause in state.pauses), why, until)


def next_look(state: YieldState, settings: YieldSettings) -> float | None:
    """When time alone changes the state next; None where it never does."""
    if state.pauses:
        return min((pause.until for pause in state.pauses if pause.until is not None), default=None)
    if state.automatic is not None or state.asking:
        return None
    moments = [state.worked + settings.idle_s] if settings.idle_s else []
    if settings.polite and state.scarce and state.excused:
        moments.append(state.wanted + QUIET_S)
    return min(moments, default=None)


Timed = TypeVar("Timed", Pause, Away)


def shifted(one: Timed, by: float) -> Timed:
    """The same in seconds of another clock."""
    return replace(one, since=one.since + by, until=None if one.until is None else one.until + by)


# -- pauses on disk


def read_pauses(file: Path, now: float) -> tuple[Pause, ...]:
    """Those that are not over. A held one waits for its client to come back. A file that cannot be read holds none."""
    try:
        found = [Pause(**one) for one in json.loads(file.read_text("utf-8"))["pauses"]]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as fault:
        log.warning("pauses of the daemon before are lost: %s: %s", file, fault)
        return ()
    waited = (
        replace(one, until=min(one.until or now + RETURN_S, now + RETURN_S)) if one.held else one for one in found
    )
    return tuple(one for one in waited if one.until is None or one.until > now)


def write_pauses(file: Path, pauses: tuple[Pause, ...]) -> None:
    """Whole or not at all. Raises OSError."""
    if not pauses:
        file.unlink(missing_ok=True)
        return
    fresh = file.with_name(file.name + ".new")
    with fresh.open("w", encoding="utf-8") as out:
        json.dump({"pauses": [asdict(pause) for pause in pauses]}, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)


# -- the decisions carried out


class Yielding:
    """Has the engine follow the table. One event loop calls all of it.

    `grace_s`: how long answers that have begun may go on when the memory is given away. `busy` is told of questions.
    `look` reads the machine anew before the engine returns.
    """

    def __init__(
        self,
        client: EngineClient,
        settings: YieldSettings,
        file: Path,
        grace_s: float,
        busy: Callable[[bool], None],
        look: Callable[[], Awaitable[object]],
        clock: SteadyClock | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._file = file
        self._grace_s = grace_s
        self._busy = busy
        self._look = look
        self._clock = clock = clock or SteadyClock()
        self._moved = asyncio.Event()
        self._due: float | None = None  # when `_follow` looks again by itself
        self._names = count(1)
        self._task: asyncio.Task[None] | None = None
        self._gone: bool | None = None  # None before the beginning
        self._state = YieldState(read_pauses(file, clock()), worked=clock())

    # -- life

    def begin(self) -> None:
        """Starts the engine, unless the daemon before was paused. Once: does nothing where it has begun."""
        if self._gone is None:
            away = self.away
            self._gone = away is not None
            self._client.start(away.words() if away is not None else "")

    def start(self) -> None:
        self._task = asyncio.create_task(self._follow(), name="giving memory away")

    async def stop(self) -> None:
        """Pauses stay in their file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- what is so

    @property
    def away(self) -> Away | None:
        """Why the engine is away, or about to leave; in times of the wall clock."""
        found, shift = away_of(self._state), self._clock.shift
        return found if found is None or not shift else shifted(found, shift)

    @property
    def paused(self) -> Away | None:
        """The same of pauses alone, which no question ends."""
        found = self.away
        return found if found is not None and found.cause is Cause.PAUSE else None

    @property
    def gone(self) -> bool:
        """Whether nothing of the memory is ours."""
        return bool(self._gone)

    # -- what happens

    @contextmanager
    def question(self) -> Iterator[None]:
        """Somebody needs the engine until the block ends."""
        self._busy(True)
        self._report(NeedChanged(self._clock()))
        try:
            yield
        finally:
            self._report(NeedChanged(self._clock(), -1))
            self._busy(False)

    def memory_read(self, scarce: str, calm: bool) -> None:
        self._report(MemoryRead(self._clock(), scarce, calm))

    async def pause(self, why: str, seconds: float | None = None) -> Pause:
        """Returns when the memory is free, or the pause has ended before. Raises OSError where it cannot be kept."""
        pause = self._begun(why, seconds)
        await self._until(lambda: self._gone or pause not in self._state.pauses)
        return pause

    async def hold(self, why: str, seconds: float | None = None, name: str = "") -> AsyncIterator[Pause | None]:
        """A pause that lasts until `end`: yields it when it begins and when the memory is free, and None when it has ended
        before. `name`: one that the daemon before has begun."""
        pause = self._begun(why, seconds, name, held=True)
        yield pause
        await self._until(lambda: self._gone or pause not in self._state.pauses)
        if pause in self._state.pauses:
            yield pause
            await self._until(lambda: pause not in self._state.pauses)
        yield None

    def end(self, name: str | None = None) -> tuple[Pause, ...]:
        """Ends one pause, or all that keeps the engine away; those that have ended."""
        before = self._state.pauses
        self._report(PauseEnded(self._clock(), name))
        return tuple(pause for pause in before if pause not in self._state.pauses)

    def _begun(self, why: str, seconds: float | None, name: str = "", *, held: bool = False) -> Pause:
        now = self._clock()
        until = None if seconds is None else now + seconds
        since = next((one.since for one in self._state.pauses if one.name == name), now)
        pause = Pause(name or f"{os.getpid()}-{next(self._names)}", since, why, until, held)
        self._report(PauseBegan(now, pause))
        return pause

    def _report(self, event: YieldEvent) -> None:
        state = decide(self._state, event, self._settings)
        if state.pauses != self._state.pauses:
            try:
                write_pauses(self._file, tuple(shifted(one, self._clock.shift) for one in state.pauses))
            except OSError as fault:
                if isinstance(event, PauseBegan):
                    raise
                log.warning("a pause that has ended may come back with the next daemon: %s", fault)
        if state != self._state:
            before, self._state = self._state, state
            if (away := self.away) is not None:
                self._client.paused_for(away.words())
            if self._is_news(before):
                self._wake()

    def _is_news(self, before: YieldState) -> bool:
        """Whether somebody waits for this change: not one of every question that comes and goes."""
        if (before.pauses, away_of(before)) != (self._state.pauses, away_of(self._state)):
            return True
        at = next_look(self._state, self._settings)
        return at is not None and (self._due is None or at < self._due)

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self._moved.wait()

    # -- the engine follows

    async def _follow(self) -> None:
        while True:
            try:
                await self._step()
            except Exception:  # of ours: nobody else would bring the engine back
                log.exception("the memory could not be given away or taken back")
                await asyncio.sleep(AGAIN_S)

    async def _step(self) -> None:
        moved, away = self._moved, self.away
        if away is None and self._gone:
            await self._return()
        elif away is not None and not self._gone:
            await self._leave(away)
        else:
            await self._pass(moved)

    async def _leave(self, away: Away) -> None:
        log.info("the engine leaves the memory", extra={"fields": {"cause": away.cause.value, "why": away.why}})
        await self._client.pause(away.words(), self._grace_s)
        self._gone = True
        self._wake()

    async def _return(self) -> None:
        log.info("the engine comes back")
        await self._look()
        self._gone = False
        self._client.resume()
        self._wake()

    async def _pass(self, moved: asyncio.Event) -> None:
        """Until something happens, or time alone changes the state."""
        self._due = at = next_look(self._state, self._settings)
        try:
            async with asyncio.timeout(None if at is None else min(ASLEEP_S, max(0.0, at - self._clock()))):
                await moved.wait()
        except TimeoutError:
            now = self._clock()
            works = self._client.busy or self._client.state is ChildState.STARTING
            self._report(Worked(now) if works else Looked(now))
