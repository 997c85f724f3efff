"""systemd hears how far a start is, may not take a long load for one that hangs, and hears how it ended."""

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from support.waiting import SOON

from orchestrator.daemon import tell_ready, when_idle

pytestmark = pytest.mark.anyio


class Systemd:
    """What it heard."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.told = asyncio.Event()

    def status(self, text: str) -> None:
        self.heard.append(text)
        self.told.set()

    def starting(self) -> None:
        self.heard.append("go on waiting")

    def ready(self) -> None:
        self.heard.append("ready now")


async def test_each_step_of_a_load_is_told_and_extends_the_time_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.model.chat_model.LOOK_SECONDS", 0.001)
    model_ready = asyncio.get_running_loop().create_future()
    client = SimpleNamespace(loaded=0.0, reason="the model is loading")

    async def ready() -> tuple[bool, str]:
        return True, ""

    systemd: Any = Systemd()
    program: Any = SimpleNamespace(
        model_ready=lambda: model_ready, client=client, ready=ready, yielding=SimpleNamespace(gone=False)
    )
    telling = asyncio.create_task(tell_ready(program, systemd))
    with anyio.fail_after(SOON):
        await systemd.told.wait()
        systemd.told.clear()
        client.loaded, client.reason = 0.43, "the model is loading, 43 %"
        await systemd.told.wait()
        model_ready.set_result("the chat model")
        await telling
    assert systemd.heard == [
        "the model is loading",
        "the model is loading, 43 %",
        "go on waiting",
        "ready",
        "ready now",
    ]


async def test_a_daemon_that_nobody_asks_stops_and_one_that_works_or_is_asked_in_between_stays() -> None:
    stop, looks = asyncio.Event(), iter([(True, 1), (True, 1), (False, 1), (False, 2), (False, 3)])
    seen: list[tuple[bool, int]] = []

    def work() -> tuple[bool, int]:
        seen.append(next(looks, (False, 3)))
        return seen[-1]

    with anyio.fail_after(SOON):
        await when_idle(0.02, work, stop)
    assert stop.is_set()
    assert seen[:5] == [(True, 1), (True, 1), (False, 1), (False, 2), (False, 3)]
    assert len(seen) > 5, "it was quiet for all of that time"


async def test_a_wall_clock_that_jumps_ends_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1e12)
    stop = asyncio.Event()
    with anyio.move_on_after(0.05):
        await when_idle(60.0, lambda: (False, 0), stop)
    assert not stop.is_set()
