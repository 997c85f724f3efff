"""The view of `lore top` on a terminal: the picture in panes, and the keys of the moment. Asks nothing itself."""

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from orchestrator.cli.client import Failure
from orchestrator.cli.top_feed import Feed, Known, next_codex
from orchestrator.cli.top_page import SECTIONS, Line, fit, head, title, wrapped

LEFT = 130  # by Ctrl-C
SILENT_S = 8.0  # without a word of the daemon: it hangs, or its machine is asleep
WIDE = 100  # columns from which panes stand beside each other
LEAST_ROWS = 3  # of a pane: its border, and a line
FOLDED_ROWS = 2  # of one that is folded: its title, and a line
NAMES = tuple(SECTIONS)
ROWS_BELOW = 6 * len(NAMES)  # from which panes one below the other have four lines each
STYLES = {
    "dim": "dim",
    "bold": "bold",
    "bad": "bold red",
    "good": "green",
    "cached": "green",
    "computed": "yellow",
    "others": "white",
    "weights": "blue",
    "buffers": "magenta",
    "floors": "green",
    "tails": "cyan",
    "room": "yellow",
    "free": "dim",
}
KEYS = {  # by pane, the rarest last: a narrow terminal shows the first ones
    "": ("q quit", "tab next", "z zoom", "↑↓ scroll", "r refresh", "1-4 pane"),
    "files": ("q quit", "c codex", "tab next", "z zoom", "↑↓ scroll", "r refresh", "1-4 pane"),
}


def view(socket: str | None, first: Known) -> int:
    """Draws until a key ends it. Gives the exit status."""
    return TopView(socket, first).run() or 0


class FeedTold(Message):
    """From the feed's thread: what is known now, or why nothing is."""

    def __init__(self, told: Known | Failure) -> None:
        super().__init__()
        self.told = told


class Pane(VerticalScroll, can_focus=True):
    """A section of the picture, scrolled by its own keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.border_title = name
        self._text = Static(id=f"{name}-text", markup=False)
        self._lines: Sequence[Line] = ()

    def compose(self) -> ComposeResult:
        yield self._text

    def show(self, lines: Sequence[Line]) -> None:
        if lines != self._lines:
            self._lines = lines
            self._text.update(drawn(lines))


class TopView(App[int]):
    """`first`: what is shown until the feed tells more."""

    CSS = """
    #head { height: auto; }
    #keys { height: 1; dock: bottom; }
    #panes { height: 1fr; layout: vertical; }
    #panes.beside { layout: grid; grid-size: 2 2; }
    Pane { height: 1fr; border: round $foreground 40%; border-title-color: $foreground; scrollbar-size-vertical: 1; }
    Pane:focus { border: round $success; }
    #panes.stacked Pane { height: 2; border: none; border-top: solid $foreground 40%; padding: 0 1; }
    #panes.stacked Pane.chosen { height: 1fr; border: round $success; padding: 0; }
    #panes.single Pane { display: none; }
    #panes.single Pane.chosen { display: block; }
    """
    TITLE = "lore top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave(0)", show=False),
        Binding("ctrl+c", f"leave({LEFT})", show=False, priority=True),
        Binding("z", "zoom", show=False),
        Binding("r", "refresh_all", show=False),
        Binding("c", "codex(1)", show=False),
        Binding("C", "codex(-1)", show=False),
        Binding("tab", "next(1)", show=False, priority=True),
        Binding("shift+tab", "next(-1)", show=False, priority=True),
        *(Binding(str(at + 1), f"pane({at})", show=False) for at in range(len(SECTIONS))),
    ]

    def __init__(self, socket: str | None, first: Known) -> None:
        super().__init__(ansi_color=True)
        self._known, self._fault = first, ""
        self._heard = time.monotonic()
        self._feed = Feed(socket, first, lambda told: self.post_message(FeedTold(told)))
        self._zoomed, self._chosen = False, NAMES[0]

    # -- what is on the screen

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        with Container(id="panes"):
            for name in SECTIONS:
                yield Pane(name)
        yield Static(id="keys", markup=False)

    def on_mount(self) -> None:
        self.action_pane(0)
        self.set_interval(1.0, self._look)
        self._feed.start()

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_resize(self, _: events.Resize) -> None:
        self.call_after_refresh(self._draw)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Pane) and event.widget.id != self._chosen:  # by a click
            self.action_pane(NAMES.index(event.widget.id or ""))

    def on_feed_told(self, message: FeedTold) -> None:
        self._heard = time.monotonic()
        if isinstance(message.told, Failure):
            self._fault = f"{message.told.message}; {message.told.hint}".rstrip("; ")
        else:
            self._known, self._fault = message.told, ""
        self._draw()

    def _look(self) -> None:
        """Says that the daemon is silent; nothing is drawn where nothing is to be said."""
        silent = time.monotonic() - self._heard
        if silent > SILENT_S and not self._fault.startswith("away"):
            self._fault = f"no word from the daemon for {silent:.0f} s"
            self._draw()

    def _draw(self) -> None:
        now, columns, rows = self._known.picture, self.size.width, self.size.height
        above = head(now, self._fault, columns, rows // 3)
        way = arranged(columns, rows - len(above) - 1, zoomed=self._zoomed)
        self._put("#head", above, columns)
        self.query_one("#panes").set_classes(way)
        room = max(1, (columns // 2 if way == "beside" else columns) - 3)  # borders, and the bar that scrolls
        for pane in self.query(Pane):
            name = pane.id or ""
            is_folded = way == "stacked" and name != self._chosen
            pane.border_title = f" {title(name, now)} " if is_folded else title(name, now)  # without a corner before it
            pane.set_class(name == self._chosen, "chosen")
            pane.show([fit(line, room) for line in SECTIONS[name](now, room)])
        self._put("#keys", keys(self._chosen, columns), columns)

    def _put(self, where: str, lines: Sequence[Line], columns: int) -> None:
        static, text = self.query_one(where, Static), drawn([fit(line, columns) for line in lines])
        if static.content != text:
            static.update(text)

    # -- keys

    def action_leave(self, status: int) -> None:
        self.exit(status)

    def action_zoom(self) -> None:
        self._zoomed = not self._zoomed
        self._draw()

    def action_pane(self, at: int) -> None:
        """A pane that is hidden takes no focus: it is shown first."""
        self._chosen = NAMES[at % len(NAMES)]
        self._draw()
        self.query_one(f"#{self._chosen}").focus()

    def action_next(self, step: int) -> None:
        self.action_pane(NAMES.index(self._chosen) + step)

    def action_refresh_all(self) -> None:
        self._feed.refresh()

    def action_codex(self, step: int) -> None:
        self._feed.choose(next_codex(self._known, step))


def arranged(columns: int, rows: int, *, zoomed: bool) -> str:
    """How panes share so many rows: beside each other, one below the other, all but the focused one folded to a line, or
    that one alone."""
    folded = FOLDED_ROWS * (len(SECTIONS) - 1)
    if zoomed or rows < folded + LEAST_ROWS:
        return "single"
    if columns >= WIDE:
        return "beside"
    return "stacked" if rows < ROWS_BELOW else "below"


def keys(focused: str, columns: int) -> list[Line]:
    """As many as fit into one line."""
    words = [(word, "dim") for word in KEYS.get(focused, KEYS[""])]
    return wrapped(words, columns)[:1]


def drawn(lines: Sequence[Line]) -> Text:
    text = Text(no_wrap=True)
    for at, line in enumerate(lines):
        text.append("\n" if at else "")
        for part, style in line:
            text.append(part, STYLES.get(style, ""))
    return text
