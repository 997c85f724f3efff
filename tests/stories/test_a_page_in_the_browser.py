"""`lore dash` as a user meets it, in a real browser: one Chromium for all of these."""

import base64
import json
import subprocess
from contextlib import contextmanager

import pytest
from chromium import chromium
from many_turns import many_turns
from private_daemon import LORE
from support.house import CODES, ask, begun, blocks, codebase, lent, question, reply
from support.served import served

from orchestrator.wire.places import VERSION

SCRIPT = "<img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"
ACTIVE = (
    "script, img, iframe, object, embed, svg a, base, meta[http-equiv], form:not([method=dialog]), [onerror], [onload]"
)
VIEWS = ("now", "turns", "memories", "decisions")
# WCAG 2's ratio of two colours as the browser computed them.
CONTRAST = """(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map((n) => n / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => { for (; node; node = node.parentElement) { const colour = getComputedStyle(node).backgroundColor; if (!/, 0\\)$/.test(colour)) return colour; } };
  return [...document.querySelectorAll("h1, h2, p, button, span, dd, dt, pre, strong, li, small")].filter((one) => one.checkVisibility() && one.innerText && one.getClientRects().length)
    .map((one) => { const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x); return [(a + 0.05) / (b + 0.05), one.outerHTML.slice(0, 90)]; })
    .sort((x, y) => x[0] - y[0])[0];
})()"""  # noqa: E501 - one expression

PIXELS = """(async () => {
  const image = new Image();
  image.src = "data:image/png;base64,PNG";
  await image.decode();
  const brush = new OffscreenCanvas(image.width, image.height).getContext("2d");
  brush.drawImage(image, 0, 0);
  const pixels = brush.getImageData(0, 0, image.width, image.height).data;
  const colours = new Set();
  let sum = 0;
  for (let at = 0; at < pixels.length; at += 4) {
    sum += pixels[at] + pixels[at + 1] + pixels[at + 2];
    colours.add((pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2]);
  }
  return { light: sum / (3 * 255 * (pixels.length / 4)), colours: colours.size };
})()"""


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        loaded = daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--json")
        assert loaded.returncode == 0, loaded.stderr
        yield daemon


@pytest.fixture(scope="module")
def address(house):
    process = begun(house, "dash")
    yield process.stdout.readline().strip()
    process.terminate()
    process.communicate()


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser, address, house):
    """The page, with a question that was answered in it."""
    ask(house, "zebra")
    tab = browser.page()
    tab.open(address)
    tab.says(question("zebra"), "#card-questions")
    yield tab
    assert tab.value("window.hacked") is None
    assert tab.faults() == []
    tab.close()


def opened(page, trace, kind="query"):
    """The turn's own page, with one of its blocks open."""
    page.press("2")
    page.seen(f"document.querySelector('#turn-list [data-id=\"{trace}\"]')")
    page.value(f"document.querySelector('#turn-list [data-id=\"{trace}\"]').click()")
    page.says("The prompt, block by block", "#turns")
    page.value(f"document.querySelector('[data-block={kind}] summary').click()")
    page.seen(f"document.querySelector('[data-block={kind}] > div').childNodes.length")
    page.value(f"document.querySelectorAll('[data-block={kind}] details').forEach((one) => {{ one.open = true; }})")


def test_what_the_daemon_does_is_seen_and_follows_it(page, house):
    for card, words in (
        ("memory", "engine ready"),
        ("codices", "vaults"),
        ("trees", "floor"),
        ("files", "zebra.py"),
        ("hits", "prompt tokens of the last"),
        ("tickets", "nothing runs"),
    ):
        page.says(words, f"#card-{card}")
    trace = ask(house, "walrus")["lore"]["trace"]
    page.says(question("walrus"), "#card-questions li:first-child")
    page.press("2")
    page.seen(f"document.querySelector('#turn-list li:first-child [data-id=\"{trace}\"]')")


def test_a_prompt_is_six_bars_that_open_to_the_exact_text(page, house):
    lore = ask(house, "zebra")["lore"]
    opened(page, lore["trace"])
    kinds = page.value("[...document.querySelectorAll('[data-block]')].map((one) => one.dataset.block)")
    assert kinds == ["identity", "codex", "environment", "karma", "state", "query"]
    for kind, block in blocks(lore).items():
        label = page.value(f"document.querySelector('[data-block={kind}] .bar').getAttribute('aria-label')")
        assert label == f"{kind}: {block['cached']:,} tokens cached, {block['tokens'] - block['cached']:,} computed"
    items = reply(house, f"/v1/traces/{lore['trace']}?prompt=1")["trace"]["prompt"]
    page.value("document.querySelectorAll('[data-block]').forEach((one) => { one.open = true; })")
    page.seen("[...document.querySelectorAll('[data-block] > div')].every((one) => one.childNodes.length)")
    page.value("document.querySelectorAll('[data-block] details').forEach((one) => { one.open = true; })")
    page.seen("[...document.querySelectorAll('[data-block] pre')].every((one) => one.textContent)")
    for kind in kinds:
        shown = page.value(f"[...document.querySelectorAll('[data-block={kind}] pre')].map((one) => one.textContent)")
        assert shown == [one["text"] for one in items if one["block"] == kind]


def test_why_a_prefix_broke_stands_at_its_block(page, house):
    added = house.json("memory", "add", f"{question('zebra')} painted on its door.", "-c", "none")["memory"]
    first = ask(house, "zebra")["lore"]
    assert [one["id"] for one in first["memories"]] == [added["id"]]
    house.json("memory", "forget", added["id"], "--yes")
    broke = ask(house, "zebra", session=first["session"])["lore"]
    assert broke["broke_at"]["block"] == "karma"
    page.says("broke at", "#card-questions li:first-child")
    opened(page, broke["trace"], broke["broke_at"]["block"])
    page.says("broke here", f"[data-block={broke['broke_at']['block']}] summary")
    page.says(broke["broke_at"]["why"], "#turns .detail")


def test_memories_are_listed_with_their_life(page, house):
    added = house.json("memory", "add", "The zebra vault is painted red.", "-c", "none")["memory"]
    house.json("memory", "confirm", added["id"])
    page.press("3")
    page.says("The zebra vault is painted red.", "#memory-list")
    page.value(f"document.querySelector('#memory-list [data-id=\"{added['id']}\"] summary').click()")
    page.says("made by user", ".life")
    page.says("1 time", "#memory-list dl")
    house.json("memory", "forget", added["id"], "--yes")


def test_decisions_say_what_was_chosen_and_why(page, house):
    chosen = ask(house, "zebra")["lore"]["strategy"]
    page.press("4")
    page.says(chosen["reason"], "#decisions li summary")
    page.says(chosen["name"], "#decisions")


def test_text_of_code_questions_and_memories_is_never_html(page, house):
    hostile = house.folder / "hostile"
    hostile.mkdir()
    (hostile / "<img src=x onerror=alert(1)>.py").write_text(f'"""{SCRIPT}"""\n')
    assert house.lore("load", hostile, "--wait", "--json").returncode == 0
    added = house.json("memory", "add", f"{SCRIPT} is true.", "-c", "none")["memory"]
    body = {
        "model": "lore",
        "messages": [{"role": "user", "content": f"{SCRIPT} what is true?"}],
        "max_completion_tokens": 4,
    }
    lore = reply(house, "/v1/chat/completions", {**body, "lore": {"session": "", "codex": "hostile"}})["lore"]
    page.says(SCRIPT, "#card-questions li:first-child")
    page.seen("document.querySelector('#card-files option[value=hostile]')")
    choose = "const choice = document.querySelector('#card-files select'); choice.value = 'hostile'"
    page.value(f"{choose}; choice.dispatchEvent(new Event('change'))")
    page.says("<img src=x onerror=alert(1)>.py", "#card-files")
    opened(page, lore["trace"], "codex")
    page.says(SCRIPT, "[data-block=codex]")
    page.press("3")
    page.says(SCRIPT, "#memory-list")
    page.value("document.querySelector('#memory-list summary').click()")
    page.says(SCRIPT, "#memory-list pre")
    page.press("4")
    page.says(SCRIPT, "#decisions")
    assert page.value(f"[...document.body.querySelectorAll({json.dumps(ACTIVE)})].length") == 1  # the page's own script
    house.json("memory", "forget", added["id"], "--yes")
    assert house.lore("codex", "drop", "hostile", "--json").returncode == 0
    page.seen("!document.querySelector('#card-codices').innerText.includes('hostile')")


def test_the_page_cannot_write_html_nor_reach_elsewhere(browser, address):
    tab = browser.page()
    tab.open(address)
    tab.says("Memory", "#cards")
    refused = "(act) => { try { act(); return ''; } catch (error) { return error.name; } }"
    assert tab.value(f"({refused})(() => {{ document.body.innerHTML = '<b>x</b>'; }})") == "TypeError"
    assert tab.value(f"({refused})(() => eval('1'))") in ("EvalError", "TypeError")
    assert tab.value("fetch('http://localhost:1/').then(() => 'reached', (error) => error.name)") == "TypeError"
    assert any("Content Security Policy" in one for one in tab.faults())
    tab.close()


def test_all_is_reached_by_keys_alone(page, house):
    trace = ask(house, "walrus")["lore"]["trace"]
    page.press("2")
    page.seen(f"document.querySelector('#turn-list li:first-child [data-id=\"{trace}\"]')")
    page.press("j")
    assert page.value("document.activeElement.matches('#turn-list li:first-child .row')")
    page.press("j")
    page.press("k")
    page.press("Enter")
    page.says("The prompt, block by block", "#turns")
    page.press("j")
    page.press("Escape")
    page.seen("document.querySelector('#turns .detail').hidden")
    assert page.value("document.activeElement.matches('#turn-list .row')")
    page.press("/")
    page.type("no such turn")
    page.seen("[...document.querySelectorAll('#turn-list li')].every((one) => one.hidden)")
    page.press("Escape")
    page.press("?")
    page.says("next, previous row", "#help[open]")
    page.press("Escape")
    page.seen("!document.querySelector('#help').open")
    named = "[...document.querySelectorAll('button, input, select, summary, [role=img]')].filter((one) => one.checkVisibility() && !(one.innerText || one.getAttribute('aria-label'))).map((one) => one.outerHTML)"  # noqa: E501
    for key in "1234":
        page.press(key)
        assert page.value(named) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_it_is_readable_on_a_telephone_and_on_a_large_screen(page, house, scheme, width, tmp_path):
    page.prefer(scheme)
    page.resize(width)
    opened(page, reply(house, "/v1/traces?n=1")["traces"][0]["id"], "codex")
    page.press("3")
    page.press("4")
    page.seen("document.querySelector('#decisions summary')")
    for place, view in enumerate(VIEWS):
        page.press(str(place + 1))
        assert page.value("document.documentElement.scrollWidth") <= width, view
        ratio, where = page.value(CONTRAST)
        assert ratio >= 4.5, (view, where)


def seen(browser, png):
    """How light a picture is, 0 to 1, and how many colours it has, by the browser's own decoder."""
    tab = browser.page()
    found = tab.value(PIXELS.replace("PNG", base64.b64encode(png).decode()))
    tab.close()
    return found["light"], found["colours"]


def test_what_is_seen_is_light_or_dark_as_the_browser_prefers_and_never_blank(browser, page):
    assert seen(browser, browser.page().picture()) == (1, 1), "an empty page has one colour"
    page.says("zebra.py", "#card-files")
    for scheme, is_right in (("light", lambda light: light > 0.8), ("dark", lambda light: light < 0.3)):
        page.prefer(scheme)
        light, colours = seen(browser, page.picture())
        assert (is_right(light), colours > 100) == (True, True), (scheme, light, colours)


def test_the_least_part_of_a_bar_is_seen(page, house):
    lore = ask(house, "walrus")["lore"]
    opened(page, lore["trace"])
    (query,) = [one for one in lore["blocks"] if one["kind"] == "query"]
    assert query["tokens"] > query["cached"]
    bars = "[...document.querySelectorAll('[data-block=query] .bar > span')]"
    assert page.value(f"Math.min(...{bars}.map((one) => one.getBoundingClientRect().width))") >= 3


def test_of_two_thousand_turns_those_are_in_the_page_that_were_scrolled_to_and_a_filter_finds_the_oldest(page, house):
    many_turns(house.folder / "data" / "lorekeep" / "traces.sqlite3", 2_000)
    ask(house, "walrus")
    rows = "document.querySelectorAll('#turn-list li').length"
    page.press("2")
    page.says("#02000", "#turn-list")
    few = page.value(rows)
    assert 0 < few <= 600
    page.value("window.scrollTo(0, document.body.scrollHeight)")
    page.seen(f"{rows} > {few}")
    assert page.value(rows) <= few + 400
    page.press("/")
    page.type("#00001")
    page.says("#00001", "#turn-list")
    assert page.value(rows) == 1
    assert house.lore("purge", "--traces", "--yes").returncode == 0


def test_the_page_says_that_the_daemon_is_away_and_goes_on_when_it_is_back(page, house):
    house.stop()
    page.says("The daemon is away", "#banner")
    house.start()
    page.seen("document.querySelector('#banner').hidden")
    page.says("engine ready", "#card-memory")
    ask(house, "walrus")
    page.says(question("walrus"), "#card-questions li:first-child")


def test_a_load_that_runs_is_seen_with_what_it_does(page, house):
    """Held by a pause, in the phase in which it waits for the model."""
    house.json("pause")
    loading = begun(house, "load", codebase(house.folder / "more"), "--wait")
    try:
        page.says("waiting for the model, which is paused", "#card-codices")
    finally:
        house.json("resume")
        loading.communicate()
    page.seen("!document.querySelector('#card-codices').innerText.includes('waiting for the model')")


def test_a_daemon_of_another_version_is_told_over_the_page_and_all_else_is_shown(browser, tmp_path):
    with served(tmp_path, version="9.9.9") as daemon, dash(daemon.socket) as address:
        tab = browser.page()
        tab.open(address)
        tab.says(f"lore is version {VERSION}, the daemon 9.9.9: restart the daemon", "#banner")
        tab.says("demo", "#card-codices")
        assert tab.faults() == []
        tab.close()


@contextmanager
def dash(socket):
    with subprocess.Popen([LORE, "dash", "--socket", socket], stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.terminate()


def test_without_the_token_a_browser_is_shown_nothing(browser, address):
    tab = browser.page()
    for wrong in (address.partition("?")[0], address[:-1], f"{address}x"):
        tab.open(wrong)
        tab.says("no valid token")
        assert CODES["zebra"] not in tab.text()
    tab.close()
