"""The daemon's listening sockets: its own, systemd's, and TCP where asked for. One daemon per socket.

A daemon that died leaves its socket's file; the file alone says nothing. The lock beside it, which the kernel lets go
with the process, says who lives; a connection says it for servers that know no lock.
"""

import errno
import grp
import os
import socket
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.instance import HeldError, lock_file, lock_of, served
from orchestrator.settings import SettingsError

FIRST_FD = 3  # SD_LISTEN_FDS_START
LONGEST_PATH = 107  # bytes of sockaddr_un.sun_path without its end
BACKLOG = 1024  # who comes in a crowd waits: a Unix socket whose queue is full refuses clients that do not block
LAST_PORT = 65_535


@dataclass(frozen=True)
class Listener:
    """A bound, listening socket. `close` removes the file if it is still ours."""

    socket: socket.socket
    path: Path | None = None
    lock: int | None = None
    inode: int | None = None  # None: the file is not ours to remove

    @property
    def is_systemds(self) -> bool:
        """Whether systemd goes on listening when we have ended, and starts the next daemon for who comes then."""
        return self.path is not None and self.inode is None

    def close(self) -> None:
        self.socket.close()
        if self.path is not None and self.inode is not None and inode_of(self.path) == self.inode:
            self.path.unlink()
        if self.lock is not None:
            os.close(self.lock)


def listen(path: Path, group: str = "") -> Listener:
    """Our own socket at `path`, mode 0600, or 0660 with a group. Raises Conflict where a daemon lives there."""
    check_path(path)
    check_kind(path)  # before there is a lock beside it: beside what is not ours nothing is left
    make_folder(path.parent, 0o711 if group else 0o700)
    lock = locked(path)
    try:
        clear(path)
        bound = bind(path, group)
    except BaseException:
        os.close(lock)
        raise
    return Listener(bound, path, lock, inode_of(path))


def check_path(path: Path) -> None:
    """Raises SettingsError for what no socket can be called."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise SettingsError(
            f"{path} is longer than {LONGEST_PATH} bytes, too long for a socket", "use a shorter --socket"
        )


def check_kind(path: Path) -> None:
    """Raises SettingsError where something stands that is no socket."""
    try:
        kind = path.lstat().st_mode
    except OSError:
        return  # nothing, or nothing that can be reached: what is done with it next says so
    if not stat.S_ISSOCK(kind):
        raise SettingsError(f"{path} is not a socket", "move it away, or use another --socket")


def make_folder(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"cannot make {folder}: {error.strerror}", "set --socket to a place you may write to"
        ) from error


def locked(path: Path) -> int:
    """The descriptor of the lock beside a socket; open for as long as the daemon lives."""
    file = lock_of(path)
    try:
        return lock_file(file)
    except HeldError as held:
        raise served(path, held.holder) from None
    except OSError as error:
        raise SettingsError(f"cannot open {file}: {error.strerror}", "use another --socket") from error


def clear(path: Path) -> None:
    """Removes what a dead daemon left; refuses to touch anything else."""
    check_kind(path)
    if inode_of(path) is None:
        return
    if answers(path):
        raise served(path)
    path.unlink()


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # it cannot be told: a full queue, or no permission. Then something lives there.
    return True


def bind(path: Path, group: str) -> socket.socket:
    """The mode is set before the name appears: nobody can connect in between."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        bound.bind(os.fspath(path))
    except OSError as error:
        bound.close()
        raise SettingsError(f"cannot bind {path}: {error.strerror}", "use another --socket") from error
    finally:
        os.umask(before)
    if group:
        share(path, group)
    bound.listen(BACKLOG)
    return bound


def share(path: Path, group: str) -> None:
    try:
        os.chown(path, -1, group_number(group))
        path.chmod(0o660)
    except PermissionError as error:
        raise SettingsError(f"serve.socket_group: not a member of {group}", "join it, or serve as root") from error


def group_number(group: str) -> int:
    """Raises SettingsError."""
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise SettingsError(f"serve.socket_group: no group {group}", "name one that exists") from None


def inode_of(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def activated(environ: MutableMapping[str, str], pid: int) -> list[Listener]:
    """Sockets that systemd opened for us; their files are systemd's. The variables are taken out for our children."""
    handed = environ.pop("LISTEN_PID", "") == str(pid)
    count = environ.pop("LISTEN_FDS", "0")
    environ.pop("LISTEN_FDNAMES", None)
    if not handed:
        return []
    return [adopted(FIRST_FD + number) for number in range(int(count))]


def adopted(descriptor: int) -> Listener:
    os.set_inheritable(descriptor, False)
    given = socket.socket(fileno=descriptor)
    if given.family != socket.AF_UNIX or given.type != socket.SOCK_STREAM:
        raise SettingsError("systemd handed over a socket that is no Unix stream socket", "correct lorekeep.socket")
    path = Path(given.getsockname())
    return Listener(given, path, locked(path))


def listen_tcp(address: str) -> Listener:
    """`HOST:PORT`; an IPv6 host in brackets."""
    host, port = tcp_address(address)
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = "in use" if getattr(error, "errno", 0) == errno.EADDRINUSE else str(error)
        raise SettingsError(f"--tcp {address}: {reason}", "use another address") from error
    bound.listen(BACKLOG)
    return Listener(bound)


def tcp_address(address: str) -> tuple[str, int]:
    """Host and port as they are written. Raises SettingsError."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > LAST_PORT:
        raise SettingsError(f"--tcp {address}: not HOST:PORT", "write it like 127.0.0.1:8080")
    return host, int(port)


def open_all(environ: MutableMapping[str, str], path: Path, group: str, tcp: str) -> list[Listener]:
    """Every socket the settings ask for; systemd's take the place of our own."""
    listeners = activated(environ, os.getpid()) or [listen(path, group)]
    return [*listeners, listen_tcp(tcp)] if tcp else listeners


def tcp_hosts(tcp: str) -> frozenset[str]:
    """Host headers that a TCP client may send: anything else is a page in a browser that was tricked here."""
    if not tcp:
        return frozenset()
    host, _, port = tcp.rpartition(":")
    names = {host, "localhost", "127.0.0.1", "[::1]"}
    return frozenset(names | {f"{name}:{port}" for name in names})
