"""A daemon of one's own: `lore serve` on a private socket with private folders, for demo, benchmarks and stories.

Knows the `lore` command, the XDG variables and systemd's readiness protocol; nothing of what is inside. Waiting is for
events: the daemon's own READY=1, or its end, whichever is first.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from llama_sources import build_cache

LORE = Path(sys.executable).parent / "lore"
XDG = {"XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data", "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state"}
RULES = "KF_RULE_CACHE_DIR"  # Kingfisher's own variable
LIBC = ctypes.CDLL(None)
SET_PARENT_DEATH_SIGNAL = 1


class DaemonError(Exception):
    """The daemon ended or did not get ready; the message holds its log's end."""


class PrivateDaemon:
    """`folder` holds everything it writes. Stop and start it again as often as needed: the folders stay.

    `models` is a folder of built-in models made before, which then need not be made again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        model: str | None = None,
        models: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.model = model
        self.socket = folder / "run" / "lore.sock"
        self.log = folder / "daemon.log"
        self.environment = {**private_environment(folder), "LORE_SOCKET": str(self.socket), **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None
        if models:
            share_models(models, folder)

    # ---- its life ----------------------------------------------------------------------------------------------------

    def start(self, *options: str, timeout_s: float = 120.0) -> "PrivateDaemon":
        """Returns when the daemon has said READY=1. Raises DaemonError when it ends first, or says nothing in time."""
        assert self.process is None, "already running"
        with readiness_socket(self.folder / "run" / "notify") as ready:
            self.process = self.launch(options, {"NOTIFY_SOCKET": str(self.folder / "run" / "notify")})
            if not said_ready(ready, self.process, timeout_s):
                self.stop()
                raise DaemonError(f"the daemon did not get ready in {timeout_s:.0f} s; its log ends:\n{self.log_end()}")
        return self

    def launch(self, options: Sequence[str], extra: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        command = [str(LORE), "serve", "--socket", str(self.socket), *options]
        command += ["--model", self.model] if self.model else []
        with self.log.open("ab") as sink:
            return self.begin(command, {**self.environment, **extra}, sink)

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, as systemd does; SIGKILL to all of it when it does not end in time. Its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return end_group(process)

    def kill(self) -> None:
        """SIGKILL to the daemon alone: its child must notice and end by itself."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def log_end(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    # ---- its use -----------------------------------------------------------------------------------------------------

    def lore(
        self,
        *arguments: str | Path,
        input: str | bytes | None = None,  # noqa: A002 - subprocess names it so
        cwd: Path | None = None,
        timeout_s: float = 120.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """One `lore` command against this daemon. Output is text; what is not UTF-8 in it comes back escaped."""
        given = input.encode() if isinstance(input, str) else input or b""
        command = [str(LORE), *map(str, arguments)]
        done = self.run(command, {**self.environment, **(environment or {})}, cwd or self.folder, given, timeout_s)
        out, err = (text.decode(errors="backslashreplace") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def json(self, *arguments: str | Path, timeout_s: float = 120.0, cwd: Path | None = None) -> Any:
        """The object that a command prints with --json, the last one where it streams lines. It must end with 0."""
        done = self.lore(*arguments, "--json", timeout_s=timeout_s, cwd=cwd)
        if done.returncode != 0:
            raise DaemonError(
                f"lore {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr.strip()}"
            )
        return last_object(done.stdout)

    # ---- its processes -----------------------------------------------------------------------------------------------

    def begin(
        self, command: Sequence[str], environment: Mapping[str, str], sink: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        """The daemon's process; `sink`: where its log goes."""
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,  # so that ending it ends its child too, and Ctrl-C reaches only us
            preexec_fn=end_with_parent,
        )

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, given: bytes, timeout_s: float
    ) -> "subprocess.CompletedProcess[bytes]":
        """A command's process, to its end; `given`: its standard input."""
        return subprocess.run(
            command, env=environment, cwd=cwd, input=given, capture_output=True, timeout=timeout_s, check=False
        )


@contextmanager
def private_daemon(*, model: str | None = None, models: Path | None = None) -> Iterator[PrivateDaemon]:
    """A running daemon in a folder of its own; both are gone afterwards. Its path is short, as sockets need."""
    with ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="lore-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        daemon = PrivateDaemon(folder, model=model, models=models)
        undo.callback(daemon.stop)
        yield daemon.start()


def free_port() -> int:
    """Of loopback, as the system gives one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def private_environment(folder: Path) -> dict[str, str]:
    """This process's environment, but every folder its own and no LORE_* variable: nothing of the user's is met."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("LORE_") and name != "NOTIFY_SOCKET"
    }
    places = {variable: str(folder / name) for variable, name in XDG.items()} | {"XDG_RUNTIME_DIR": str(folder / "run")}
    for place in places.values():
        Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
    return {RULES: _compiled_rules()} | kept | places | {"HOME": str(folder)}


def _compiled_rules() -> str:
    """Where every run finds the rules for secrets compiled, which takes four seconds: nothing of a user's is in them."""
    place = build_cache() / "secret-rules"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(place)


def share_models(models: Path, folder: Path) -> None:
    models.mkdir(parents=True, exist_ok=True)
    place = folder / XDG["XDG_CACHE_HOME"] / "lorekeep"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (place / "models").exists():
        (place / "models").symlink_to(models)


# ---- readiness, as systemd's Type=notify has it ----------------------------------------------------------------------


@contextmanager
def readiness_socket(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(path))
        yield ready
    path.unlink(missing_ok=True)


def said_ready(ready: socket.socket, process: "subprocess.Popen[bytes]", timeout_s: float) -> bool:
    """Whether READY=1 came before the process ended and before `timeout_s` passed without a word from it."""
    try:
        ending = os.pidfd_open(process.pid)
    except ProcessLookupError:  # it has ended, and somebody else waited for it
        return False
    try:
        while True:
            awake, _, _ = select.select([ready, ending], [], [], timeout_s)
            if ready in awake:
                if b"READY=1" in ready.recv(4096).split(b"\n"):
                    return True
            else:
                return False
    finally:
        os.close(ending)


def end_with_parent() -> None:
    """A run that is killed must not leave a daemon that computes for nobody."""
    LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def end_group(process: "subprocess.Popen[bytes]") -> int:
    os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def last_object(text: str) -> Any:
    """The one object, or the last of JSON lines."""
    try:
        return json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        return json.loads(lines[-1]) if lines else None
