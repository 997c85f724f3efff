"""A full line in front of the real engine, and a daemon that is stopped while a floor is being computed."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support.house import begun, codebase, engine_child, living, over_socket, question, reply, until

GRACE_SECONDS = 10.0  # serve.shutdown_grace


@pytest.fixture
def house(models):
    with living(models, config="[serve]\nqueue = 1\n") as daemon:
        large = codebase(daemon.folder / "large", functions=1200)
        assert daemon.lore("load", large, "--no-watch").returncode == 0
        yield daemon


def post(daemon, stream=False):
    with over_socket(daemon) as http:
        body = {"model": "lore/large", "stream": stream, "messages": [{"role": "user", "content": question("zebra")}]}
        return http.post("/v1/chat/completions", json=body)


def queued(daemon):
    return sum(reply(daemon, "/v1/status")["queue"].values())


def test_who_comes_to_a_full_line_is_told_when_to_come_again(house):
    first = begun(house, "ask", question("zebra"), "-c", "large")
    until(lambda: queued(house) >= 2)
    second = begun(house, "ask", question("walrus"), "-c", "large")
    until(lambda: queued(house) >= 3)
    refused = post(house, stream=True)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["error"]["code"] == "full"
    assert "serve.queue" in refused.json()["error"]["hint"]
    for asking in (first, second):
        asking.send_signal(signal.SIGINT)
        asking.communicate(timeout=120)


def test_a_daemon_that_is_stopped_while_a_floor_is_computed_waits_for_nobody_who_waits(house):
    watching = begun(house, "load", house.folder / "large", "--wait")
    asked = []
    asking = threading.Thread(target=lambda: asked.append(post(house)))
    asking.start()
    until(lambda: queued(house) >= 2)
    child, began = engine_child(house), time.monotonic()
    os.kill(house.process.pid, signal.SIGTERM)
    assert house.process.wait(timeout=60) == 0
    assert time.monotonic() - began < GRACE_SECONDS, "somebody who only waited was waited for"
    asking.join(timeout=60)
    assert (asked[0].status_code, asked[0].json()["error"]["code"]) == (503, "not_ready")
    assert watching.wait(timeout=60) != 0
    assert "stopping" in watching.communicate()[1]
    assert not Path(f"/proc/{child}").exists()
