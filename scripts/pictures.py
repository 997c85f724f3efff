"""`make pictures`: what the documents show of the terminal, `lore top` and `lore dash`, taken from one real run.

    a private daemon, the built-in model, the demo's two codebases
      ├─ lore load, lore ask in a real terminal ──────▶ terminal.svg
      └─ while the second codebase is being computed:
           ├─ lore top, by its own view ──────────────▶ top.svg
           └─ lore dash in Chromium, light and dark ──▶ dash-light.png, dash-dark.png, turn.png

Nothing in a picture is drawn by hand or mended afterwards. Times in them are those of the machine that made them.
"""

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from chromium import Chromium, Page, chromium
from demo import WINDOW, codebases
from demo_quotes import quotes
from llama_sources import ROOT, build_cache
from private_daemon import LORE, PrivateDaemon, end_with_parent
from rich.console import Console
from rich.text import Text
from terminals import terminal
from textual.widgets import Static

from orchestrator.cli.client import Daemon
from orchestrator.cli.top_feed import Known, gathered
from orchestrator.cli.top_view import TopView

FOLDER = ROOT / "docs" / "pictures"
NAMES = ("blinker", "flask")  # of the codebases
MADE = ("terminal.svg", "top.svg", "dash-light.png", "dash-dark.png", "turn.png")
LARGEST = 300 * 1024  # bytes of one picture: who reads the README fetches it
COLUMNS, TOP_SIZE, PAGE_SIZE = 100, (120, 40), (1280, 1000)
ERASED = re.compile(r"[^\n]*\r+\x1b\[[KJ]")  # a line that was written over: progress, an answer that is still open
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # rich names fonts of a foreign host


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lore-") as name:
        place = Path(name)
        small, large = (found.rename(place / name) for found, name in zip(codebases(place), NAMES, strict=True))
        daemon = PrivateDaemon(place / "daemon", models=build_cache() / "models", environment=WINDOW)
        try:
            daemon.start()
            FOLDER.mkdir(exist_ok=True)
            write("terminal.svg", asked(daemon, small).encode())
            daemon.json("load", large)
            write("top.svg", seen_live(daemon).encode())
            with chromium() as browser:
                dash(daemon, browser)
        finally:
            daemon.stop()


def write(name: str, data: bytes) -> None:
    """Raises SystemExit where it is too large to be shown in a document."""
    if len(data) > LARGEST:
        raise SystemExit(f"{name} has {len(data):,} bytes; {LARGEST:,} are allowed")
    (FOLDER / name).write_bytes(data)
    print(f"docs/pictures/{name}: {len(data):,} bytes", flush=True)


# ---- the terminal ----------------------------------------------------------------------------------------------------


def asked(daemon: PrivateDaemon, folder: Path) -> str:
    """Loads and asks, as a person does in one terminal; an SVG."""
    plain = [one.question for one in quotes(folder, 8) if one.question.replace(" ", "").isalpha()]
    commands = [f"lore load {folder.name} --wait", *(f'lore ask "{question}"' for question in plain[:2])]
    script = "; echo; ".join(f"printf '\\033[1m$ %s\\033[0m\\n' '{command}'; {command}" for command in commands)
    path = {"PATH": f"{LORE.parent}:{os.environ['PATH']}"}
    environment = {**daemon.environment, **path}
    with terminal("sh", "-c", script, environment=environment, cwd=folder.parent, columns=COLUMNS) as seen:
        seen.rest()
        return framed(settled(seen.said.decode()))


def settled(said: str) -> str:
    """Without what was erased on its own line. What moves the cursor up is in no answer of one line."""
    return ERASED.sub("", said.replace("\r\n", "\n")).replace("\r", "")


def framed(text: str) -> str:
    """Rich's frame of a window around what a terminal shows."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text))
    return local(console.export_svg(title="lore"))


def local(svg: str) -> str:
    """With fonts of this machine alone: a picture fetches nothing."""
    return FONTS.sub("", svg).replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


# ---- lore top --------------------------------------------------------------------------------------------------------


def seen_live(daemon: PrivateDaemon) -> str:
    """The view while a floor is being computed; an SVG."""

    async def run() -> str:
        app = TopView(str(daemon.socket), gathered(Daemon(str(daemon.socket)), Known()))
        async with app.run_test(size=TOP_SIZE) as pilot:
            async with asyncio.timeout(60):
                while "tokens/s" not in str(app.query_one("#jobs-text", Static).content):
                    await pilot.pause(0.05)
            await pilot.pause()
            return app.export_screenshot(title="lore top")

    return local(asyncio.run(run()))


# ---- lore dash -------------------------------------------------------------------------------------------------------


def dash(daemon: PrivateDaemon, browser: Chromium) -> None:
    with address(daemon) as url:
        page = browser.page(*PAGE_SIZE)
        page.open(url)
        page.says("cached", "#card-questions")
        page.seen("document.querySelector('#card-files li')")
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            write(f"dash-{scheme}.png", still(page))
        page.prefer("light")
        page.press("2")
        page.press("j")
        page.press("Enter")
        page.says("The prompt, block by block", "#turns")
        write("turn.png", still(page))


def still(page: Page) -> bytes:
    """Once what moves has come to rest."""
    page.value("Promise.all(document.getAnimations().map((one) => one.finished.catch(() => null))).then(() => true)")
    return page.picture()


@contextmanager
def address(daemon: PrivateDaemon) -> Iterator[str]:
    """Of a `lore dash` that ends with the block."""
    process = subprocess.Popen(
        [LORE, "dash"],
        env=daemon.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=end_with_parent,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
