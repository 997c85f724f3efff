"""One daemon per socket; what a dead one left is replaced; nothing else is touched."""

import os
import signal
import socket
import stat
import subprocess
import sys

import pytest

from orchestrator.api.sockets import activated, listen, listen_tcp
from orchestrator.errors import Conflict
from orchestrator.settings import SettingsError
from orchestrator.systemd import Notifier


def test_the_socket_is_for_its_owner_alone_from_its_first_moment(folder):
    listener = listen(folder / "new" / "lore.sock")
    assert stat.S_IMODE(listener.path.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o700
    listener.close()


def test_a_group_that_was_configured_may_connect(folder):
    import grp

    listener = listen(folder / "lore.sock", grp.getgrgid(os.getgid()).gr_name)
    assert stat.S_IMODE(listener.path.stat().st_mode) == 0o660
    listener.close()


def test_a_second_daemon_is_refused_and_told_of_the_first(folder):
    first = listen(folder / "lore.sock")
    with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
        listen(folder / "lore.sock")
    assert first.path.is_socket()
    first.close()


def test_the_socket_of_a_killed_daemon_is_replaced(folder):
    path = folder / "lore.sock"
    script = f"""
import os, signal
from pathlib import Path
from orchestrator.api.sockets import listen
listener = listen(Path({str(path)!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-P", "-c", script], check=False).returncode == -signal.SIGKILL
    assert path.is_socket()
    listen(path).close()


def test_a_server_that_knows_no_lock_is_found_by_connecting(folder):
    path = folder / "lore.sock"
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        foreign.listen()
        with pytest.raises(Conflict):
            listen(path)
    assert path.exists()


def test_a_file_in_the_way_is_left_alone(folder):
    path = folder / "lore.sock"
    path.write_text("mine")
    with pytest.raises(SettingsError, match="not a socket"):
        listen(path)
    assert path.read_text() == "mine"


def test_beside_what_is_no_socket_nothing_is_left(folder):
    (folder / "code").mkdir()
    with pytest.raises(SettingsError, match="not a socket"):
        listen(folder / "code")
    assert [path.name for path in folder.iterdir()] == ["code"]


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made(folder):
    with pytest.raises(SettingsError, match="107 bytes"):
        listen(folder / ("x" * 110) / "lore.sock")


def test_closing_removes_the_file_unless_another_took_its_place(folder):
    path = folder / "lore.sock"
    listener = listen(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        listener.close()
        assert path.exists()
    path.unlink()
    listen(path).close()
    assert not path.exists()


@pytest.mark.parametrize("address", ["8080", "localhost", "localhost:x", "127.0.0.1:99999", "no.such.host.invalid:1"])
def test_an_address_that_cannot_be_listened_at_is_refused(address):
    with pytest.raises(SettingsError, match="--tcp"):
        listen_tcp(address)


def test_sockets_that_systemd_opened_are_taken_over_and_their_variables_removed(folder):
    path = folder / "lore.sock"
    script = """
import os
from orchestrator.api.sockets import activated
environ = dict(os.environ, LISTEN_PID=str(os.getpid()))
(listener,) = activated(environ, os.getpid())
assert not any(name.startswith("LISTEN_") for name in environ)
print(listener.path, listener.inode, os.get_inheritable(3))
"""
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))
        opened.listen()
        code = f"import os\nos.dup2({opened.fileno()}, 3, inheritable=True)\n{script}"
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            pass_fds=[opened.fileno()],
            env={**os.environ, "LISTEN_FDS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.split() == [str(path), "None", "False"], done.stderr


def test_variables_meant_for_another_process_open_nothing():
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1"}
    assert activated(environ, os.getpid()) == []


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_that_the_daemon_is_ready(folder, abstract):
    address = f"@lore-test-{os.getpid()}" if abstract else str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address[1:] if abstract else address)
        notifier = Notifier.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000000"})
        notifier.ready()
        notifier.status("prefilling\n12 %")
        assert [systemd.recv(100), systemd.recv(100)] == [b"READY=1", b"STATUS=prefilling 12 %"]
        notifier.starting()
        assert systemd.recv(100) == b"EXTEND_TIMEOUT_USEC=900000000"
    assert notifier.watchdog_s == 2.0
    notifier.alive()  # nobody listens any more: no fault
    Notifier.of({}).ready()
