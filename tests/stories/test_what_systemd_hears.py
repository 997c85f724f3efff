"""What a unit's `STATUS=` says: how far a prefix is and how long the rest takes, and why nobody is answered."""

import re

import pytest
from private_daemon import readiness_socket
from support.forks import ForkedDaemon
from support.house import ONE_THREAD, WHOLE_WINDOW
from support.waiting import SOON

FUNCTIONS = 2_500  # some 30,000 tokens, more than a processor computes between two words to systemd
HOW_FAR = re.compile(r"computing a codex: ([\d,]+) of ([\d,]+) tokens \((\d+) %\), (\d+) (?:s|min) left")


@pytest.fixture(scope="module")
def heard(models, tmp_path_factory):
    """A daemon, and a reader of each STATUS that it sends from its start."""
    daemon = ForkedDaemon(tmp_path_factory.mktemp("s"), models=models, environment={**ONE_THREAD, **WHOLE_WINDOW})
    with readiness_socket(daemon.folder / "run" / "notify") as systemd:
        systemd.settimeout(SOON)
        daemon.process = daemon.launch((), {"NOTIFY_SOCKET": str(daemon.folder / "run" / "notify")})
        words = (
            line.removeprefix("STATUS=")
            for message in iter(lambda: systemd.recv(4096).decode(), None)
            for line in message.split("\n")
            if line.startswith("STATUS=")
        )
        yield daemon, words
        daemon.stop()


def test_systemd_hears_how_far_a_prefix_is_and_of_a_pause_as_long_as_it_lasts(heard):
    daemon, words = heard
    assert next(one for one in words if one == "ready")
    source = daemon.folder / "large"
    source.mkdir()
    bodies = (f"def step_{number}(value):\n    return value + {number}\n" for number in range(FUNCTIONS))
    (source / "steps.py").write_text("\n\n".join(bodies))
    assert daemon.lore("load", source).returncode == 0

    told = [match for match in map(HOW_FAR.fullmatch, until(words, HOW_FAR.fullmatch)) if match]
    done, tokens, percent, left = (int(one.replace(",", "")) for one in told[-1].groups())
    assert 0 <= done < tokens
    assert (percent, left > 0) == (100 * done // tokens, True)
    assert "large" not in told[-1].string, "whoever may ask systemd reads it"

    daemon.json("pause")
    paused = until(words, lambda one: one.startswith("paused since "))[-1]
    assert paused.endswith("lore resume ends it")
    daemon.json("resume")
    until(words, lambda one: not one.startswith("paused since "))
    daemon.json("codex", "drop", "large")
    assert until(words, lambda one: one == "ready")[-1] == "ready"


def until(words, true):
    """What is heard up to the first of which this is so."""
    heard = []
    for one in words:
        heard.append(one)
        if true(one):
            return heard
    raise AssertionError(heard)
