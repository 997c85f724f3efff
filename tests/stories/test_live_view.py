"""The live view on a real daemon: what it tells of caches, files and questions, and what it shows when the daemon goes."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.house import ask, begun, codebase, lent, shown
from support.waiting import SOON
from textual.pilot import Pilot
from textual.widgets import Static

from orchestrator.cli import top_feed
from orchestrator.cli.client import Daemon
from orchestrator.cli.top_feed import Known, gathered
from orchestrator.cli.top_view import TopView


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        loaded = daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--json")
        assert loaded.returncode == 0, loaded.stderr
        yield daemon


def picture(house: Any) -> Any:
    return house.json("top", "--once")


def test_caches_files_and_questions_are_as_other_commands_tell_them(house):
    first, second = ask(house, "zebra"), ask(house, "walrus")
    now, codex = picture(house), shown(house, "vaults")
    assert sum(now["memory"]["parts"].values()) == now["memory"]["whole"] > 0
    (tree,) = [one for one in now["trees"] if one["codex"] == "vaults"]
    assert (tree["branches"][0]["kind"], tree["branches"][0]["tokens"]) == ("floor", codex["floor_tokens"])
    assert sum(one["tokens"] - one["promised"] for one in tree["branches"]) == tree["floors"] + tree["tails"]
    assert (now["files"]["codex"], now["files"]["tokens"]) == ("vaults", codex["tier_tokens"])
    assert {one["path"] for one in now["files"]["lines"]} == {"steps.py", "walrus.py", "zebra.py"}
    assert 0 < sum(one["tokens"] for one in now["files"]["lines"]) <= codex["tier_tokens"]
    asked = {one["trace"]: one for one in now["questions"]}
    for answer in (first, second):
        told = asked[answer["lore"]["trace"]]
        assert [told["cached"], told["computed"]] == [answer["lore"]["prompt"][name] for name in ("cached", "computed")]
        assert [one["kind"] for one in told["blocks"]] == [one["kind"] for one in answer["lore"]["blocks"]]


def test_a_question_is_seen_by_who_follows_and_ctrl_c_ends_that(house):
    follower = begun(house, "top", "--json")
    try:
        assert follower.stdout is not None
        before = json.loads(follower.stdout.readline())
        trace = ask(house, "zebra")["lore"]["trace"]
        assert trace not in [one["trace"] for one in before["questions"]]
        lines = (json.loads(line) for line in follower.stdout)
        assert next(line for line in lines if trace in [one["trace"] for one in line["questions"]])
    finally:
        os.killpg(follower.pid, signal.SIGINT)
        _, said = follower.communicate(timeout=SOON)
    assert (follower.returncode, "Traceback" in said) == (130, False)


def test_a_load_is_seen_while_it_runs_and_its_end_is_told_to_who_follows_events(house):
    """Held by a pause, in the phase in which it waits for the model."""
    with followed(house) as events:
        assert next(events)["loads"][-1]["ended"], "the fixture's load"
        house.json("pause")
        loading = begun(house, "load", codebase(house.folder / "more"), "--wait")
        try:
            told = next(one for one in events if one["event"] == "load" and one["phase"] == "pause")
            assert (told["codex"], told["ended"]) == ("more", False)
            line = codex_of(picture(house), "more")["load"]
            assert line["phase"] == "waiting for the model, which is paused"
            assert line["phase"] in house.lore("top", "--once").stdout
        finally:
            house.lore("resume")
            loading.communicate(timeout=SOON)
        last = next(one for one in events if one["event"] == "load" and one["ended"])
        assert (last["codex"], last["number"], last["failed"]) == ("more", told["number"], "")
    assert codex_of(picture(house), "more")["load"] is None


@contextmanager
def followed(house: Any) -> Iterator[Iterator[Any]]:
    daemon = Daemon(str(house.socket), quiet=True)
    try:
        yield (event.data for event in daemon.stream("/v1/events", method="GET"))
    finally:
        daemon.leave()


def codex_of(now: Any, name: str) -> Any:
    return next(one for one in now["codices"] if one["name"] == name)


async def until(pilot: Pilot[int], true: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not true():
            await pilot.pause(0.02)


def test_a_daemon_that_is_killed_is_shown_as_away_and_the_view_goes_on_when_it_is_back(house, monkeypatch):
    monkeypatch.setattr(top_feed, "AWAY_S", 0.05)

    async def run() -> None:
        app = TopView(str(house.socket), gathered(Daemon(str(house.socket)), Known()))

        def text(where: str) -> str:
            return str(app.query_one(where, Static).content)

        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            files = text("#files-text")
            await asyncio.to_thread(house.kill)
            await until(pilot, lambda: text("#head").startswith("away: "))
            assert text("#files-text") == files
            house.start()  # not in a thread that ends: a real process ends with the thread that has begun it
            await until(pilot, lambda: "away: " not in text("#head"))
            await until(pilot, lambda: "floor" in text("#caches-text"))

    asyncio.run(run())
