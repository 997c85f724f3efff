"""A private daemon meets nothing of the user's, and waiting for it ends with its word or with its death."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import private_daemon as private
import pytest

SAYS_READY = """
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b"STATUS=loading", os.environ["NOTIFY_SOCKET"])
s.sendto(b"READY=1\\nSTATUS=ready", os.environ["NOTIFY_SOCKET"])
"""


@pytest.fixture
def place():
    """A folder with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="lore-") as folder:
        yield Path(folder)


def said_ready(place, program, timeout_s=30.0):
    with private.readiness_socket(place / "notify") as ready:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program], env={**os.environ, "NOTIFY_SOCKET": str(place / "notify")}
        )
        try:
            return private.said_ready(ready, process, timeout_s)
        finally:
            process.kill()
            process.wait()


def test_ready_is_heard_also_behind_other_news(place):
    assert said_ready(place, SAYS_READY)


def test_an_end_without_a_word_is_not_ready(place):
    assert not said_ready(place, "raise SystemExit(1)")


def test_silence_ends_at_the_limit(place):
    assert not said_ready(place, "import sys; sys.stdin.read(); import signal; signal.pause()", timeout_s=0.1)


def test_every_folder_of_a_daemon_lies_in_its_own(place, monkeypatch):
    monkeypatch.setenv("LORE_MODEL", "/the/users/own.gguf")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    environment = private.private_environment(place)
    assert not [name for name in environment if name.startswith("LORE_")]
    assert "NOTIFY_SOCKET" not in environment
    assert all(environment[name].startswith(str(place)) for name in [*private.XDG, "XDG_RUNTIME_DIR", "HOME"])
    assert (place / "run").stat().st_mode & 0o777 == 0o700


def test_the_notify_socket_is_gone_afterwards(place):
    with private.readiness_socket(place / "notify"):
        assert (place / "notify").is_socket()
    assert not (place / "notify").exists()


@pytest.mark.parametrize(
    ("printed", "value"),
    [('{"a": 1}', {"a": 1}), ('{"a": 1}\n{"b": 2}\n', {"b": 2}), ('{\n "a": 1\n}\n', {"a": 1}), ("", None)],
)
def test_the_last_object_of_what_a_command_printed_is_read(printed, value):
    assert private.last_object(printed) == value


def test_a_notify_socket_left_by_another_run_is_replaced(place):
    old = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    old.bind(str(place / "notify"))
    old.close()
    with private.readiness_socket(place / "notify"):
        assert (place / "notify").is_socket()


def test_models_made_before_are_met_where_the_daemon_looks_for_them(place):
    (place / "models").mkdir()
    (place / "models" / "quoter.gguf").touch()
    daemon = private.PrivateDaemon(place / "daemon", models=place / "models")
    cache = Path(daemon.environment["XDG_CACHE_HOME"])
    assert (cache / "lorekeep" / "models" / "quoter.gguf").exists()
