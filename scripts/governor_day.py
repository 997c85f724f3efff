"""A day on a card: what five kinds of programs hold of it, and what the governor makes of that. Nothing is measured here.

    program(second) -> others' bytes -> reading -> next_outlook -> grant, level -> redecide, change_due -> coverage

Readings come every two seconds, as from the idle sampler; those that can change nothing are left out. A program that asks
for more than is free gets what is free, and the rest when the engine has given it back. Tokens of a floor are computed the
first time and restored from its checkpoint afterwards. A test holds what must never happen; docs/governor.md shows the
table and the picture.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

from published_models import MODELS

from governor.budget import Demand, Ours, Outlook, next_outlook
from governor.footprint import KvPlan, kv_cost
from governor.pressure import Level, PressureState
from governor.readings import GpuReading, HostReading, SensorSnapshot
from governor.settings import GIB, GovernorSettings
from orchestrator.prompt.coverage import (
    Coverage,
    CoverageDecision,
    CoverageSizes,
    FloorRoom,
    Pending,
    change_due,
    decide_coverage,
    redecide,
)

DAY, HOUR, MINUTE = 86_400, 3_600, 60  # seconds
READING = 2
SEED = 12
TOTAL = 24 * GIB
SHAPE = next(model for model in MODELS if model.name == "Qwen2.5 14B")
PLAN = KvPlan("f16", "f16", sequences=32)
SIZES = CoverageSizes(full=40_000, skeleton=11_000, map=11_000)
IDENTITY = 600  # tokens
SETTINGS = GovernorSettings()
HOST = HostReading(64 * GIB, 50 * GIB, 0)
GpuBytes = Callable[[int], int]


@cache
def kv_bytes(cells: int) -> int:
    return kv_cost(SHAPE, PLAN, cells)


# ---- the programs: bytes of the card at a second of the day ----------------------------------------------------------


@cache
def noise(*key: object) -> float:
    """0 to 1, the same for the same key on every machine."""
    digest = hashlib.blake2b(repr((SEED, *key)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / (1 << 32)


def gib(amount: float) -> int:
    return int(amount * GIB)


def hours(second: int, start: float, end: float) -> bool:
    return start * HOUR <= second < end * HOUR


def desktop(second: int) -> int:
    """0.4 GiB at night; by day windows come and go, and one that is drawn anew takes a little for some seconds."""
    windows = 0.6 * noise("windows", second // (10 * MINUTE)) if hours(second, 7, 23) else 0.0
    drawn = 0.15 if windows and noise("drawn", second // 6) < 0.03 else 0.0
    return gib(0.4 + windows + drawn)


def browser(second: int) -> int:
    """The desktop, and videos of twenty minutes, whose buffers change with what is played."""
    playing = hours(second, 8, 24) and noise("video", second // (20 * MINUTE)) < 0.4
    frames = 0.5 + 0.9 * noise("resolution", second // (20 * MINUTE)) + 0.2 * noise("buffers", second // 30)
    return desktop(second) + (gib(frames) if playing else 0)


def game(second: int) -> int:
    """The desktop, and an evening of play: a level takes minutes, and between two most of it is freed and loaded again."""
    if not hours(second, 19, 22):
        return desktop(second)
    level, within = divmod(second - 19 * HOUR, 12 * MINUTE)
    loaded = min(1.0, within / 40)  # read in 40 seconds
    return desktop(second) + gib(2.0 + loaded * (5.0 + 3.0 * noise("level", level)))


def training(second: int) -> int:
    """The desktop, and a run over the office hours: epochs of 25 minutes, each with an evaluation that takes more."""
    if not hours(second, 9.5, 17):
        return desktop(second)
    within = (second - int(9.5 * HOUR)) % (25 * MINUTE)
    evaluating, saving = within >= 22 * MINUTE, within < 8
    return desktop(second) + gib(4.0 if saving else 10.5 if evaluating else 8.5)


def inference_server(second: int) -> int:
    """The desktop, and another server: a model of 5 GiB is loaded when it is asked and leaves five minutes after."""
    asked = [start for start in range(second // MINUTE - 5, second // MINUTE + 1) if server_asked(start)]
    if not asked:
        return desktop(second)
    return desktop(second) + gib(5.0 + 2.5 * noise("its KV", asked[-1]))


def server_asked(minute: int) -> bool:
    return hours(minute * MINUTE, 6, 23.5) and noise("asked", minute) < 0.05


PROGRAMS: dict[str, GpuBytes] = {
    "desktop": desktop,
    "browser with video": browser,
    "game": game,
    "training": training,
    "another inference server": inference_server,
}


# ---- the day ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """After a reading: bytes of others, of ours that are no KV and of the KV that is granted; what was decided."""

    second: int
    others: int
    fixed: int
    kv: int
    cells: int
    level: Level
    coverage: Coverage


@dataclass
class Day:
    """Moments in which something changed, and tokens by how they came back. The last moment lasts until midnight."""

    moments: list[Moment] = field(default_factory=list)
    computed: int = 0
    restored: int = 0

    def changes(self, what: Callable[[Moment], object]) -> list[tuple[Moment, Moment]]:
        """Before and after each change of that."""
        return [(before, after) for before, after in pairwise(self.moments) if what(before) != what(after)]

    def seconds(self, true: Callable[[Moment], bool]) -> int:
        ends = [*(one.second for one in self.moments[1:]), DAY]
        return sum(end - one.second for one, end in zip(self.moments, ends, strict=True) if true(one))


class Engine:
    """Ours on the card: weights and buffers, and as much KV as is granted."""

    def __init__(self) -> None:
        self.held = SHAPE.weights
        self.cells = 0

    def took(self, outlook: Outlook) -> None:
        assert outlook.budget is not None
        self.cells = outlook.budget.cells
        self.held = outlook.budget.fixed + kv_bytes(self.cells)


class CodexFloor:
    """The codex's coverage, as its residents follow the machine."""

    def __init__(self, room: FloorRoom) -> None:
        self.decision = decide_coverage(SIZES, room)
        self.pending: Pending | None = None
        self.frozen: dict[Coverage, int] = {}

    def follow(self, room: FloorRoom, level: Level, now: int) -> bool:
        """Whether another floor is taken."""
        wanted = redecide(self.decision, SIZES, room, level.value)
        dwell = SETTINGS.pressure.worse_s, SETTINGS.pressure.better_s
        self.pending, left = change_due(self.pending, self.decision, wanted, now, *dwell)
        due = self.pending is not None and left <= 0
        if due:
            self.decision, self.pending = wanted, None
        return due

    def tokens(self) -> tuple[int, int]:
        """Tokens to compute and to restore for the floor that was taken: the one of this coverage before, if it is kept."""
        coverage = self.decision.coverage
        frozen = self.frozen.get(coverage)
        if frozen is not None and self.decision.keeps(frozen, frozen):
            self.decision = replace(self.decision, tokens=frozen)
            return 0, IDENTITY + frozen
        self.frozen[coverage] = self.decision.tokens
        return IDENTITY + self.decision.tokens, 0


def lived(program: GpuBytes) -> Day:
    """A day beside this program, from midnight on with everything calm."""
    day, engine, outlook = Day(), Engine(), None
    floor: CodexFloor | None = None
    known: tuple[int, int] | None = None
    for second in range(0, DAY, READING):
        others = min(program(second), TOTAL - engine.held)
        same = (others, engine.held) == known
        if same and outlook and floor and rests(outlook.state) and floor.pending is None:
            continue
        known = others, engine.held
        outlook = next_outlook(outlook, reading(second, others, engine.held), ours(engine), SETTINGS)
        engine.took(outlook)
        room = FloorRoom(min(engine.cells, SHAPE.trained), IDENTITY, engine.cells)
        fresh = floor is None
        floor = floor or CodexFloor(room)
        if floor.follow(room, outlook.level, second) or fresh:
            computed, restored = floor.tokens()
            day.computed, day.restored = day.computed + computed, day.restored + restored
        note(day, second, others, outlook, floor.decision)
    return day


def reading(second: int, others: int, held: int) -> SensorSnapshot:
    gpu = GpuReading(0, "GPU-0", "a card", TOTAL, TOTAL - others - held, held)
    return SensorSnapshot(float(second), (gpu,), HOST)


def ours(engine: Engine) -> Ours:
    return Ours(held=engine.held, demand=Demand(SHAPE, PLAN, gpu_layers=len(SHAPE.layers) + 1))


def rests(state: PressureState) -> bool:
    """Nothing waits for its dwell time: the same reading again changes nothing."""
    return all(switch.waiting_since is None for switch in (*state.levels, state.throttled, state.low_power))


def note(day: Day, second: int, others: int, outlook: Outlook, decision: CoverageDecision) -> None:
    assert outlook.budget is not None
    kv = kv_bytes(outlook.budget.cells)
    moment = Moment(second, others, outlook.budget.fixed, kv, outlook.budget.cells, outlook.level, decision.coverage)
    if not day.moments or vars(day.moments[-1]) | {"second": 0} != vars(moment) | {"second": 0}:
        day.moments.append(moment)


# ---- the table -------------------------------------------------------------------------------------------------------


HEAD = (
    "| beside | others hold, GiB | tokens granted | changes of level | steps of coverage | tokens computed | restored "
    "| at high or critical |\n|---|---|---|---|---|---|---|---|"
)


def row(name: str, day: Day) -> str:
    """A line of the table in docs/governor.md."""
    others = [one.others / GIB for one in day.moments]
    cells = [one.cells / 1000 for one in day.moments]
    pressed = day.seconds(lambda one: one.level.rank >= Level.HIGH.rank) / HOUR
    return (
        f"| {name} | {min(others):.1f} to {max(others):.1f} | {min(cells):.0f}k to {max(cells):.0f}k "
        f"| {len(day.changes(lambda one: one.level))} | {len(day.changes(lambda one: one.coverage))} "
        f"| {day.computed:,} | {day.restored:,} | {pressed:.1f} h |"
    )


def table(days: dict[str, Day]) -> Iterator[str]:
    yield HEAD
    yield from (row(name, day) for name, day in days.items())


if __name__ == "__main__":
    print("\n".join(table({name: lived(program) for name, program in PROGRAMS.items()})))
