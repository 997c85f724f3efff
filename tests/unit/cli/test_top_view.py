"""The view of `lore top` by its keys: what the panes and the last line show."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.served import Served
from support.waiting import SOON
from textual.pilot import Pilot
from textual.widgets import Static

from orchestrator.cli.client import Daemon
from orchestrator.cli.top_feed import Known, gathered
from orchestrator.cli.top_page import SECTIONS, cells
from orchestrator.cli.top_view import Pane, TopView, arranged, keys

Steps = Callable[[TopView, Pilot[int]], Awaitable[None]]


def viewed(socket: Path, steps: Steps, size: tuple[int, int] = (80, 24)) -> int | None:
    """What the view returns when these steps are done with it."""

    async def run() -> int | None:
        app = TopView(str(socket), gathered(Daemon(str(socket)), Known()))
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(app, pilot)
            await pilot.exit(0) if app.is_running and app.return_value is None else None
        return app.return_value

    return asyncio.run(run())


def text(app: TopView, where: str) -> str:
    return str(app.query_one(where, Static).content)


def shown(app: TopView) -> list[str]:
    return [pane.id or "" for pane in app.query(Pane) if pane.display]


async def until(pilot: Pilot[int], true: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not true():
            await pilot.pause(0.02)


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio of two colours such as #292929."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_each_pane_is_drawn_with_a_title_that_can_be_read(lorekeep: Served):
    drawn: list[str] = []

    async def steps(app: TopView, pilot: Pilot[int]) -> None:
        drawn.append(app.export_screenshot().replace("&#160;", " "))

    viewed(lorekeep.socket, steps, size=(120, 40))
    (svg,) = drawn
    (window,) = set(re.findall(r'<rect fill="(#[0-9a-f]{6})" stroke=', svg))
    fills = dict(re.findall(r"\.([\w-]+) \{ fill: (#[0-9a-f]{6})", svg))
    texts = [(words.strip(), style) for style, words in re.findall(r'<text class="([\w-]+-r\d+)"[^>]*>([^<]*)<', svg)]
    for title in SECTIONS:
        (style,) = {style for words, style in texts if words.partition(" of ")[0] == title}
        assert contrast(fills[style], window) >= 4.5, title


def test_the_last_line_has_the_keys_of_the_chosen_pane(lorekeep: Served):
    async def steps(app: TopView, pilot: Pilot[int]) -> None:
        assert "c codex" not in text(app, "#keys")
        await pilot.press("4")
        assert (app.focused and app.focused.id, "c codex" in text(app, "#keys")) == ("files", True)
        await pilot.press("tab")
        assert (app.focused and app.focused.id, "c codex" in text(app, "#keys")) == ("caches", False)
        await pilot.press("shift+tab")
        assert app.focused
        assert app.focused.id == "files"

    viewed(lorekeep.socket, steps)


def test_a_pane_stands_alone_and_goes_back_and_tab_leads_from_one_to_the_next(lorekeep: Served):
    async def steps(app: TopView, pilot: Pilot[int]) -> None:
        assert shown(app) == list(SECTIONS)
        await pilot.press("z")
        assert shown(app) == ["caches"]
        await pilot.press("tab")
        assert (shown(app), app.focused and app.focused.id) == (["jobs"], "jobs")
        await pilot.press("z")
        assert shown(app) == list(SECTIONS)

    viewed(lorekeep.socket, steps)


@pytest.mark.parametrize(("key", "status"), [("q", 0), ("ctrl+c", 130)])
def test_it_is_left_by_a_key(lorekeep: Served, key: str, status: int):
    async def steps(_: TopView, pilot: Pilot[int]) -> None:
        await pilot.press(key)

    assert viewed(lorekeep.socket, steps) == status


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (20, 24), (20, 8), (1, 1)])
def test_on_any_terminal_lines_end_inside_it(lorekeep: Served, size: tuple[int, int]):
    async def steps(app: TopView, pilot: Pilot[int]) -> None:
        for key in ("1", "2", "3", "4", "z"):
            await pilot.press(key)
            await pilot.pause()
            lines = [*text(app, "#head").splitlines(), *text(app, "#keys").splitlines()]
            assert max(map(cells, lines)) <= size[0]
            for pane in filter(lambda one: one.display and one.size.width > 1, app.query(Pane)):
                inside = str(pane.query_one(Static).content).splitlines()
                assert max(map(cells, inside)) <= pane.scrollable_content_region.width

    viewed(lorekeep.socket, steps, size)


@pytest.mark.parametrize(
    ("columns", "rows", "way"),
    [
        (120, 30, "beside"),
        (80, 40, "below"),
        (80, 17, "stacked"),
        (20, 14, "stacked"),
        (80, 9, "stacked"),
        (80, 8, "single"),
    ],
)
def test_panes_share_the_rows_that_there_are(columns: int, rows: int, way: str):
    assert arranged(columns, rows, zoomed=False) == way
    assert arranged(columns, rows, zoomed=True) == "single"


def test_a_narrow_last_line_has_whole_keys_alone():
    ((first, *rest),) = keys("files", 20)
    assert "".join(word for word, _ in (first, *rest)) == "q quit  c codex"


def test_a_daemon_that_does_not_answer_holds_up_no_key(lorekeep: Served):
    asked, never = asyncio.Event(), asyncio.Event()

    async def silent(*_: object) -> object:
        asked.set()
        await never.wait()
        raise AssertionError("nobody waits any more")

    async def steps(app: TopView, pilot: Pilot[int]) -> None:
        lorekeep.service.engine_work = silent  # type: ignore[method-assign,assignment]
        await pilot.press("r")
        await until(pilot, asked.is_set)
        await pilot.press("3", "z")
        assert shown(app) == ["questions"]
        await pilot.press("q")

    assert viewed(lorekeep.socket, steps) == 0
