"""The page of `lore dash` over 10,000 turns, in Chromium: the first paint, the list, a filter, a scroll, the memory."""

from collections.abc import Callable, Iterator
from statistics import median

from cases_engine import Bench
from chromium import Page, chromium
from many_turns import many_turns
from pictures import address
from private_daemon import private_daemon
from report import Row, at_most

TURNS = 10_000
CASE = f"lore dash, {TURNS:,} turns"
PAINTED = """new Promise((done) => new PerformanceObserver((told) => {
  const first = told.getEntriesByName("first-contentful-paint")[0];
  if (first) done(first.startTime);
}).observe({ type: "paint", buffered: true }))"""
LISTED = "document.querySelector('#turn-list li') && performance.now()"
# Milliseconds from what is done until the condition holds, looked at in each frame.
TAKEN = """new Promise((done) => {
  const begun = performance.now();
  ACT;
  const look = () => { if (CONDITION) done(performance.now() - begun); else requestAnimationFrame(look); };
  requestAnimationFrame(look);
})"""
FILTERED = (
    "const field = document.querySelector('#turns input'); field.value = '#00001'; "
    "field.dispatchEvent(new Event('input'))"
)
SCROLLED = (
    "const had = document.querySelectorAll('#turn-list li').length; window.scrollTo(0, document.body.scrollHeight)"
)


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {CASE: page}


def page(bench: Bench) -> Iterator[Row]:
    with private_daemon(models=bench.model.parent) as daemon, chromium() as browser:
        code = daemon.folder / "code"
        code.mkdir()
        (code / "a.py").write_text('"""Where the main loop begins and where it ends."""\n')
        daemon.json("load", code, "--wait")
        daemon.json("ask", "Where the main loop begins", "-c", "code")
        many_turns(daemon.folder / "data" / "lorekeep" / "traces.sqlite3", TURNS)
        with address(daemon) as url:
            seen = [times(browser.page(), url) for _ in range(bench.runs)]
    painted, listed, scrolled, filtered, heap, rows = (median(one) for one in zip(*seen, strict=True))
    yield at_most(CASE, "first paint", painted, 300, "ms")
    yield Row(CASE, "the newest turns are listed", listed, unit="ms")
    yield Row(CASE, "scrolled to the end of the list: more rows", scrolled, unit="ms")
    yield Row(CASE, "a filter finds the oldest of all", filtered, unit="ms")
    yield Row(CASE, "memory of the page's objects, all turns read", heap / 2**20, unit="MiB")
    yield Row(CASE, "rows in the page before the filter", rows)


def times(tab: Page, url: str) -> tuple[float, ...]:
    """Milliseconds but for the last two: bytes, and rows."""
    tab.open(f"{url}#turns")
    listed = tab.seen(LISTED)
    painted = tab.value(PAINTED)
    scrolled = tab.value(taken(SCROLLED, "document.querySelectorAll('#turn-list li').length > had"))
    rows = tab.value("document.querySelectorAll('#turn-list li').length")
    filtered = tab.value(taken(FILTERED, "document.querySelector('#turn-list').innerText.includes('#00001')"))
    heap = tab.call("Runtime.getHeapUsage")["usedSize"]
    tab.close()
    return painted, listed, scrolled, filtered, heap, rows


def taken(act: str, condition: str) -> str:
    return TAKEN.replace("ACT", act).replace("CONDITION", condition)
