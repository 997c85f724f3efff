"""A full line in front of the real engine, and a daemon that is stopped while a floor is being computed."""

import os
import signal
import threading
from pathlib import Path

import pytest
from support.house import begun, codebase, engine_child, first_words, living, over_socket, question, reply, until
from support.scarce_memory import scarce

KV = 10_000_000  # about 3,000 cells
# Without drafts two thousand tokens outlast the start of another command, however busy the machine is.
ONE_WAITS = "[serve]\nqueue = 1\n\n[model]\ndrafts = false\n"
PATIENT = "[serve]\nshutdown_grace = 600\n"  # what is waited for outlasts this test
LONG = ("ask", "-c", "none", "tick tock tick tock tick tock tick tock tick", "--max-tokens", "2000")


@pytest.fixture
def narrow(models, tmp_path):
    """Room for one long answer and not for two, and a line for one question."""

    def ask(daemon):
        assert daemon.lore("ask", "-c", "none", "tick", "--max-tokens", "1").returncode == 0

    with scarce(models, tmp_path, KV, ask, ONE_WAITS) as daemon:
        yield daemon


@pytest.fixture
def house(models):
    with living(models, PATIENT) as daemon:
        large = codebase(daemon.folder / "large", functions=300)
        assert daemon.lore("load", large, "--no-watch").returncode == 0
        yield daemon


def post(daemon, model, stream=False):
    with over_socket(daemon) as http:
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": question("zebra")}]}
        return http.post("/v1/chat/completions", json=body)


def queued(daemon):
    return sum(reply(daemon, "/v1/status")["queue"].values())


def connections(daemon):
    """How many are connected to its socket, as the kernel counts: nobody is asked, which would be one more."""
    return sum(
        line.split()[5] == "03" and line.endswith(str(daemon.socket))
        for line in Path("/proc/net/unix").read_text().splitlines()
    )


def test_who_comes_to_a_full_line_is_told_when_to_come_again(narrow):
    first = begun(narrow, *LONG)
    assert first_words(first)
    second = begun(narrow, *LONG)
    until(lambda: reply(narrow, "/v1/status")["queue"]["waiting"] == 1)
    refused = post(narrow, "lore", stream=True)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["error"]["code"] == "full"
    assert "serve.queue" in refused.json()["error"]["hint"]
    for asking in (first, second):
        asking.send_signal(signal.SIGINT)
        asking.communicate(timeout=120)


def test_a_daemon_that_is_stopped_while_a_floor_is_computed_waits_for_nobody_who_waits(house):
    watching = begun(house, "load", house.folder / "large", "--wait")
    until(lambda: connections(house) >= 1)
    asked = []
    asking = threading.Thread(target=lambda: asked.append(post(house, "lore/large")))
    asking.start()
    until(lambda: queued(house) >= 2)
    child = engine_child(house)
    os.kill(house.process.pid, signal.SIGTERM)
    assert house.process.wait(timeout=120) == 0, "somebody who only waited was waited for"
    asking.join(timeout=60)
    assert (asked[0].status_code, asked[0].json()["error"]["code"]) == (503, "not_ready")
    assert watching.wait(timeout=60) != 0
    assert "stopping" in watching.communicate()[1]
    assert not Path(f"/proc/{child}").exists()
