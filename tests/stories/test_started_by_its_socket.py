"""systemd holds the socket: the first question starts the daemon, idleness ends it, the next question starts it again."""

import json
import shutil
import socket
import subprocess
from contextlib import contextmanager

import pytest
from private_daemon import LORE, end_with_parent, readiness_socket
from support.forks import ForkedDaemon
from support.house import ONE_THREAD, begun, codebase, question
from support.waiting import SOON

pytestmark = pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd's tools are not here")
IDLE_S = 1.5


@contextmanager
def listening(path):
    """The socket as systemd has it: it outlives every daemon."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(path))
        path.chmod(0o600)
        held.listen(16)
        yield held


def in_front(daemon, held):
    """`systemd-socket-activate` on this socket, which becomes the daemon when somebody connects."""
    names = [name for name in daemon.environment if name.startswith(("XDG_", "LORE_", "KF_")) or name == "HOME"]
    passed = [f"--setenv={name}" for name in (*names, "NOTIFY_SOCKET", "PATH")]
    line = f'LISTEN_PID=$$ LISTEN_FDS=1 exec systemd-socket-activate "$@" 3<&{held.fileno()}'
    notify = str(daemon.folder / "run" / "notify")
    with daemon.log.open("ab") as log:
        return subprocess.Popen(
            ["bash", "-c", line, "-", *passed, str(LORE), "serve"],
            env={**daemon.environment, "NOTIFY_SOCKET": notify},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(held.fileno(),),
            preexec_fn=end_with_parent,
        )


def heard(notify):
    notify.setblocking(False)
    found = []
    while True:
        try:
            found.append(notify.recv(4096).decode())
        except BlockingIOError:
            return found


@pytest.fixture
def daemon(models, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("s")
    environment = {**ONE_THREAD, "LORE_SERVE__IDLE_EXIT": str(IDLE_S)}
    return ForkedDaemon(folder, models=models, environment=environment)


def test_nothing_is_lost_between_two_daemons_that_the_socket_starts(daemon):
    code = codebase(daemon.folder / "vaults")
    with listening(daemon.socket) as held, readiness_socket(daemon.folder / "run" / "notify") as notify:
        first = in_front(daemon, held)
        assert daemon.lore("load", code, "--wait", "--no-watch").returncode == 0
        told = daemon.json("ask", question("zebra"), "-c", "vaults", "-s", "talk", "--max-tokens", "8")
        assert "4815162" in told["answer"]
        assert first.wait(SOON) == 0, daemon.log_end()
        said = heard(notify)
        assert ("READY=1" in said, "STOPPING=1" in said) == (True, True)
        assert any(one.startswith("STATUS=") for one in said)

        waiting = begun(daemon, "ask", question("walrus"), "-c", "vaults", "-s", "talk", "--max-tokens", "8", "--json")
        second = in_front(daemon, held)
        out, err = waiting.communicate(timeout=SOON)
        assert "9273645" in json.loads(out)["answer"], err
        turns = daemon.json("session", "show", "talk")["session"]
        assert "4815162" in json.dumps(turns)
        assert second.wait(SOON) == 0, daemon.log_end()
    assert daemon.socket.exists(), "it is systemd's to remove"


def test_a_daemon_with_a_socket_of_its_own_never_ends_by_itself(daemon):
    daemon.start()
    try:
        assert daemon.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.process.wait(2 * IDLE_S)
        assert daemon.lore("status").returncode == 0
    finally:
        daemon.stop()
