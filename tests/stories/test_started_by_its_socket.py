"""systemd holds the socket: the first question starts the daemon, idleness ends it, the next question starts it again."""

import json
import select
import shutil
import signal
import socket
import subprocess
from contextlib import closing, contextmanager, suppress

import pytest
from private_daemon import LORE, end_with_parent, readiness_socket
from support.forks import ForkedDaemon
from support.house import CODES, ONE_THREAD, begun, codebase, question, until
from support.waiting import SOON

from orchestrator.cli.client import unix_connection

pytestmark = pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd's tools are not here")
IDLE_S = 2.5


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


@contextmanager
def asked(daemon, vault):
    """A question that has been sent to the socket, whoever answers it."""
    with closing(unix_connection(daemon.socket)) as connection:
        said = {"role": "user", "content": question(vault)}
        body = {"model": "lore", "messages": [said], "max_completion_tokens": 8, "lore": {"codex": "vaults"}}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        connection.sock.settimeout(SOON)
        yield connection


def answered(connection):
    reply = connection.getresponse()
    text = reply.read().decode()
    assert reply.status == 200, text
    return json.loads(text)["choices"][0]["message"]["content"].strip()


def readable(connection):
    return bool(select.select([connection], [], [], 0)[0])


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
        said = []
        until(lambda: said.extend(heard(notify)) or '"idle_s"' in daemon.log.read_text())
        waiting = begun(daemon, "ask", question("walrus"), "-c", "vaults", "-s", "talk", "--max-tokens", "8", "--json")
        assert first.wait(SOON) == 0, daemon.log_end()
        said += heard(notify)
        assert ("READY=1" in said, "STOPPING=1" in said) == (True, True)
        assert any(one.startswith("STATUS=") for one in said)

        second = in_front(daemon, held)
        out, err = waiting.communicate(timeout=SOON)
        assert "9273645" in json.loads(out)["answer"], err
        turns = daemon.json("session", "show", "talk")["session"]
        assert "4815162" in json.dumps(turns)
        assert second.wait(SOON) == 0, daemon.log_end()
    assert daemon.socket.exists(), "it is systemd's to remove"


def test_a_question_that_comes_with_the_end_of_idle_time_is_answered_by_that_daemon_or_by_the_next_one(daemon):
    code = codebase(daemon.folder / "vaults")
    with listening(daemon.socket) as held:
        first = in_front(daemon, held)
        assert daemon.lore("load", code, "--wait", "--no-watch").returncode == 0
        first.send_signal(signal.SIGSTOP)
        with asked(daemon, "zebra") as sent:
            with suppress(subprocess.TimeoutExpired):  # or it had decided to leave before it was stopped
                first.wait(1.2 * IDLE_S)  # both are there when it goes on: the question, and the end of its time
            first.send_signal(signal.SIGCONT)
            until(lambda: readable(sent.sock) or first.poll() is not None)
            last = first if readable(sent.sock) else in_front(daemon, held)
            assert answered(sent).startswith(CODES["zebra"])
        last.terminate()
        assert last.wait(SOON) == 0, daemon.log_end()


def test_a_daemon_with_a_socket_of_its_own_never_ends_by_itself(daemon):
    daemon.environment["LORE_SERVE__IDLE_EXIT"] = "0.3"
    daemon.start()
    try:
        assert daemon.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.process.wait(1)
        assert daemon.lore("status").returncode == 0
    finally:
        daemon.stop()
