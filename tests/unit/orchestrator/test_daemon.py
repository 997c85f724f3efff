"""systemd hears how far a start is, may not take a long load for one that hangs, and hears how it ended."""

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from support.waiting import SOON

from orchestrator.daemon import tell_ready

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
