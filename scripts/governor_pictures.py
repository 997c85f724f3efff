"""Draws docs/pictures/ for docs/governor.md from the code's own tables: `python scripts/governor_pictures.py`.

A picture is what the code decides, so it can be stale but not wrong; a test holds that it is not stale.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

import governor_day
from governor_day import DAY, MINUTE, PROGRAMS, TOTAL, Day, Moment
from published_models import DESKTOP, MODELS, granted

from governor.ctc import DEPTH, NEVER_CUT, SACRIFICES, ClaimKind, Sacrifice
from governor.pressure import START, Level, PressureReading, step, thresholds
from governor.settings import GIB, PressureSettings, short_count

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH, LEFT, RIGHT = 760, 150, 20
PLOT = WIDTH - LEFT - RIGHT
LEVELS = {Level.CALM: "#d7ead7", Level.ELEVATED: "#f6e7a8", Level.HIGH: "#f2b97f", Level.CRITICAL: "#dd7a72"}
OTHERS, FIXED, KV, SPARE, MARGIN, INK, PALE = "#9aa5b1", "#4f6d8f", "#6fae8f", "#cfe5d8", "#e4e4e4", "#222", "#999"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pictures(days()).items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def days() -> dict[str, Day]:
    return {name: governor_day.lived(program) for name, program in PROGRAMS.items()}


def pictures(lived: Mapping[str, Day]) -> dict[str, str]:
    """Each picture by its file's name."""
    return {
        "levels.svg": svg(250, levels()),
        "card.svg": svg(70 + 34 * len(CARD_MODELS), card()),
        "sacrifice.svg": svg(40 + 38 * (len(SACRIFICES) + 3), sacrifice()),
        "day.svg": svg(60 + ROW * len(lived), day(lived)),
    }


# ---- marks -----------------------------------------------------------------------------------------------------------


def svg(height: int, marks: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = 'font-family="sans-serif" font-size="12"'
    return "\n".join([f"{head} {style}>", box(0, 0, WIDTH, height, "#fff"), *marks, "</svg>", ""])


def box(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">{told}</rect>'


def words(x: float, y: float, text: str, anchor: str = "start", fill: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'


def line(points: Iterable[tuple[float, float]], stroke: str, dashed: bool = False, width: float = 1.5) -> str:
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<polyline points="{drawn}" fill="none" stroke="{stroke}" stroke-width="{width}"{dashes}/>'


def area(points: Iterable[tuple[float, float]], fill: str) -> str:
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="{fill}"/>'


def key(y: float, names: Iterable[tuple[str, str]]) -> Iterator[str]:
    x = float(LEFT)
    for name, fill in names:
        yield box(x, y - 10, 12, 12, fill)
        yield words(x + 17, y, name)
        x += 34 + 6.4 * len(name)


# ---- levels: ten minutes of pressure through the table of thresholds ---------------------------------------------------

STORY = (  # seconds and pressure
    *((0, 0.55), (60, 0.55), (62, 0.90), (68, 0.90), (70, 0.55)),  # a peak that is too short
    *((150, 0.55), (160, 0.90), (260, 0.90), (270, 0.83), (360, 0.83)),  # a level, and a fall within its hysteresis
    *((370, 0.60), (600, 0.60)),  # the way down
)


def pressure_at(second: float) -> float:
    for (start, before), (end, after) in pairwise(STORY):
        if second <= end:
            return before + (after - before) * (second - start) / (end - start)
    return STORY[-1][1]


def levels() -> Iterator[str]:
    settings, state, top, bottom = PressureSettings(), START, 20, 180
    seconds, last = range(STORY[-1][0] + 1), STORY[-1][0]

    def x(second: float) -> float:
        return LEFT + PLOT * second / last

    def y(pressure: float) -> float:
        return bottom - (bottom - top) * (pressure - 0.5) / 0.5

    for threshold, level in zip(thresholds(settings), list(Level)[1:], strict=True):
        yield words(LEFT - 8, y(threshold) + 4, f"{level} from {threshold:.2f}", "end")
        yield line([(LEFT, y(threshold)), (WIDTH - RIGHT, y(threshold))], PALE, width=1)
        off = y(threshold - settings.hysteresis)
        yield line([(LEFT, off), (WIDTH - RIGHT, off)], PALE, dashed=True, width=1)
    yield line([(x(second), y(pressure_at(second))) for second in seconds], FIXED)
    yield words(LEFT - 8, bottom + 22, "level", "end")
    since = 0
    for second in seconds:
        before = state.level
        state = step(state, PressureReading(pressure_at(second)), float(second), settings)
        if state.level is not before or second == last:
            yield box(x(since), bottom + 10, x(second) - x(since), 16, LEVELS[before], f"{before}, {second - since} s")
            since = second
    yield from minutes(x, last, bottom + 42)
    yield from key(bottom + 62, ((level.value, LEVELS[level]) for level in Level))


def minutes(x: Callable[[float], float], last: int, y: float) -> Iterator[str]:
    for minute in range(0, last // MINUTE + 1, 2):
        yield words(x(minute * MINUTE), y, f"{minute} min", "middle")


# ---- the budget of a card --------------------------------------------------------------------------------------------

CARD = 24  # GiB
SHOWN = ("Qwen2.5 7B", "Llama 3.1 8B", "Qwen2.5 14B", "Mistral Small 24B", "Qwen2.5 32B")
CARD_MODELS = [model for model in MODELS if model.name in SHOWN]


def card() -> Iterator[str]:
    yield words(LEFT, 16, f"{CARD} GiB, a desktop of {DESKTOP / GIB:.1f} GiB on it, f16 KV")
    for at, model in enumerate(CARD_MODELS):
        budget, y = granted(model, CARD, "f16"), 28 + 34 * at
        spare = budget.ceiling - budget.others - budget.fixed - budget.kv
        parts = (
            ("others", budget.others, OTHERS),
            ("weights and buffers", budget.fixed, FIXED),
            ("KV planned", budget.kv, KV),
            ("spare, for others' growth", spare, SPARE),
            ("margin", budget.total - budget.ceiling, MARGIN),
        )
        yield words(LEFT - 8, y + 16, model.name, "end")
        x = float(LEFT)
        for name, size, fill in parts:
            width = PLOT * size / budget.total
            yield box(x, y, width, 24, fill, f"{name}: {size / GIB:.1f} GiB")
            x += width
        kv = LEFT + PLOT * (budget.others + budget.fixed + budget.kv / 2) / budget.total
        yield words(kv, y + 16, f"{short_count(budget.window)} tokens", "middle")
    yield from key(28 + 34 * len(CARD_MODELS) + 20, ((name, fill) for name, _, fill in parts))


# ---- the order of sacrifice ------------------------------------------------------------------------------------------


LEFT_OF = {
    ClaimKind.FILLER: "every word is left, once",
    ClaimKind.TURN: "one gist of them all is left",
}


def _left_of(one: Sacrifice) -> str:
    return "a short form is left" if one.stubbed else LEFT_OF.get(one.kind, "nothing is left")


def sacrifice() -> Iterator[str]:
    rows = [(f"{DEPTH}: turns beyond it", "only where it is set", SPARE)]
    rows += [(one.name, _left_of(one), KV) for one in SACRIFICES]
    rows += [("refused, with the numbers", "nothing has been lost", LEVELS[Level.HIGH])]
    for at, (name, how, fill) in enumerate(rows):
        y = 16 + 38 * at
        yield words(LEFT - 8, y + 17, f"{at}." if at and at < len(rows) - 1 else "", "end")
        yield box(LEFT, y, 330, 26, fill)
        yield words(LEFT + 10, y + 17, name)
        yield words(LEFT + 345, y + 17, how)
        if at:
            yield line([(LEFT + 20, y - 12), (LEFT + 20, y)], INK)
    y = 16 + 38 * len(rows)
    yield box(LEFT, y, 330, 26, MARGIN)
    yield words(LEFT + 10, y + 17, f"never: {', '.join(sorted(NEVER_CUT))}")


# ---- the day ---------------------------------------------------------------------------------------------------------

ROW, GRAPH = 110, 70
SLOT = 10 * MINUTE


@dataclass(frozen=True)
class Slot:
    """The most that is held in some minutes, and the worst level."""

    others: int
    fixed: int
    kv: int
    level: Level


def day(lived: Mapping[str, Day]) -> Iterator[str]:
    for at, (name, one) in enumerate(lived.items()):
        yield from day_row(name, one, 20 + ROW * at)
    bottom = 20 + ROW * len(lived)
    for hour in range(0, 25, 3):
        yield words(LEFT + PLOT * hour / 24, bottom, f"{hour}:00", "middle")
    names = [("others", OTHERS), ("weights and buffers", FIXED), ("KV granted", KV)]
    yield from key(bottom + 26, [*names, *((level.value, LEVELS[level]) for level in Level)])


def day_row(name: str, one: Day, top: float) -> Iterator[str]:
    slots, bottom = list(slots_of(one)), top + GRAPH

    def stacked(size: Callable[[Slot], int]) -> list[tuple[float, float]]:
        heights = [bottom - GRAPH * size(slot) / TOTAL for slot in slots]
        drawn = [(LEFT + PLOT * at / len(slots), height) for at, height in enumerate(heights)]
        return [(LEFT, bottom), *drawn, (LEFT + PLOT, heights[-1]), (LEFT + PLOT, bottom)]

    yield words(LEFT - 8, top + 30, name, "end")
    yield words(LEFT - 8, top + 46, f"{TOTAL // GIB} GiB", "end", PALE)
    yield area(stacked(lambda slot: slot.others + slot.fixed + slot.kv), KV)
    yield area(stacked(lambda slot: slot.others + slot.fixed), FIXED)
    yield area(stacked(lambda slot: slot.others), OTHERS)
    yield line([(LEFT, top), (LEFT + PLOT, top)], PALE, width=1)
    for start, end, level in runs(slots):
        yield box(LEFT + PLOT * start / len(slots), bottom + 2, PLOT * (end - start) / len(slots), 8, LEVELS[level])
    for _, after in one.changes(lambda moment: moment.coverage):
        x = LEFT + PLOT * after.second / DAY
        yield line([(x, top), (x, bottom + 12)], INK, dashed=True, width=1)
        yield words(x + 2, bottom + 22, after.coverage.value.partition("+")[0])


def slots_of(one: Day) -> Iterator[Slot]:
    """The moments by minutes; what held on from before counts too."""
    moments, at, now = one.moments, 0, one.moments[0]
    for start in range(0, DAY, SLOT):
        within: list[Moment] = [now]
        while at < len(moments) and moments[at].second < start + SLOT:
            now = moments[at]
            within.append(now)
            at += 1
        busiest = max(within, key=lambda moment: moment.others)
        yield Slot(busiest.others, busiest.fixed, busiest.kv, max((m.level for m in within), key=lambda one: one.rank))


def runs(slots: list[Slot]) -> Iterator[tuple[int, int, Level]]:
    start = 0
    for at in range(1, len(slots) + 1):
        if at == len(slots) or slots[at].level is not slots[start].level:
            yield start, at, slots[start].level
            start = at


if __name__ == "__main__":
    main()
