"""The way to a daemon: none, another's, one of another version."""

import json
import os

import pytest
from support.served import served


@pytest.mark.parametrize(
    "command", [["ask", "q"], ["load"], ["plan", "q"], ["search", "q"], ["status"], ["codex", "list"]]
)
def test_without_a_daemon_every_command_ends_with_3_and_the_line_that_starts_one(lore, folder, command):
    done = lore(*command)
    assert done.returncode == 3
    assert str(folder / "lore.sock") in done.stderr
    assert "lore serve" in done.stderr


def test_the_option_goes_before_the_variable(lore, lorekeep, folder):
    assert lore("status", LORE_SOCKET="/nowhere").returncode == 3
    assert lore("status", "--socket", str(folder / "lore.sock"), LORE_SOCKET="/nowhere").returncode == 0


@pytest.mark.skipif(os.getuid() == 0, reason="root may use every socket")
def test_a_socket_that_is_somebody_else_s_ends_with_6(lore, lorekeep):
    lorekeep.socket.chmod(0)
    assert lore("status").returncode == 6


def test_a_stranger_is_told_that_nothing_is_permitted(lore, folder):
    with served(folder, owner=os.getuid() + 1):
        assert lore("status").returncode == 6


def test_client_and_daemon_of_different_versions_say_so(lore, folder):
    with served(folder, version="9.9.9"):
        done = lore("status", "--json")
    assert "9.9.9" in done.stderr
    assert json.loads(done.stdout)["version"] == "9.9.9"
