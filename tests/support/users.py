"""Daemons and commands of other users than the one who runs the tests: real processes with another uid."""

import http.client
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

from private_daemon import LORE, RULES, PrivateDaemon, last_object
from support.house import ONE_THREAD, WHOLE_WINDOW, configure

MODEL = "quoter"  # the built-in model's files begin so


ROOT = Path(__file__).parents[2]
NEEDED = tuple(dict.fromkeys(str(Path(one).resolve()) for one in (sys.base_prefix, sys.prefix, ROOT)))


def hidden_by(place: Path) -> Path | None:
    """The highest folder above, that others may not enter."""
    closed = [above for above in place.parents if not above.stat().st_mode & 0o001]
    return closed[-1] if closed else None


def as_user(uid: int, command: Sequence[str], groups: Sequence[int] = ()) -> list[str]:
    """The command as this user's process, in these groups beside its own; it ends with ours. An interpreter or a checkout
    below a closed folder, such as root's home, is shown to it by mounts that this one process has."""
    beside = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    person = ["setpriv", f"--reuid={uid}", f"--regid={uid}", beside, "--pdeathsig=TERM", *command]
    needed = [Path(one) for one in NEEDED]
    hidden = {over: [one for one in needed if one.is_relative_to(over)] for one in needed if (over := hidden_by(one))}
    if not hidden:
        return person
    steps = ["set -e"]
    for over, places in hidden.items():
        steps += ["room=$(mktemp -d)", 'mount -t tmpfs -o mode=755 none "$room"']
        for place in places:
            at = f'"$room"/{shlex.quote(str(place.relative_to(over)))}'
            steps += [f"mkdir -p {at}", f"mount --rbind {shlex.quote(str(place))} {at}"]
        steps += [f'mount --move "$room" {shlex.quote(str(over))}', 'rmdir "$room"']
    return ["unshare", "--mount", "sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh", *person]


def can_become(uid: int) -> bool:
    """Whether a process of this user can run the checkout's Python here."""
    command = as_user(uid, [sys.executable, "-P", "-c", "import orchestrator.cli.commands"])
    return os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


class UsersDaemon(PrivateDaemon):
    """Runs as `uid`, in a folder of that user's. `groups`: those of each user beside their own."""

    def __init__(self, folder: Path, uid: int, groups: Mapping[int, Sequence[int]], **options: Any) -> None:
        super().__init__(folder, **options)
        self.uid, self.groups = uid, groups

    def begin(
        self, command: Sequence[str], environment: Mapping[str, str], sink: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            as_user(self.uid, command, self.groups.get(self.uid, ())),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )

    def launch(self, options: Sequence[str], extra: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        Path(extra["NOTIFY_SOCKET"]).chmod(0o666)  # ours, and the daemon says there that it is ready
        return super().launch(options, extra)

    def of(self, uid: int, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        """A `lore` command of a user, who has a home of their own; to its end."""
        with self.begun_of(uid, *arguments) as command:
            out, err = command.communicate(timeout=100)
        return subprocess.CompletedProcess(command.args, command.returncode, out, err)

    @contextmanager
    def begun_of(self, uid: int, *arguments: str | Path) -> "Iterator[subprocess.Popen[str]]":
        """The same while it runs; it is ended behind the block."""
        home = self.home(uid)
        kept = {name: value for name, value in self.environment.items() if not name.startswith(("XDG_", "LORE_MODEL"))}
        with subprocess.Popen(
            as_user(uid, [str(LORE), *map(str, arguments)], self.groups.get(uid, ())),
            env={**kept, "HOME": str(home), RULES: str(home / "rules")},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            try:
                yield command
            finally:
                command.kill()

    def json_of(self, uid: int, *arguments: str | Path) -> Any:
        """The object that the command prints, the last one where it streams lines. It must end with 0."""
        done = self.of(uid, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return last_object(done.stdout)

    def home(self, uid: int) -> Path:
        place = self.folder.parent / f"home-{uid}"
        if not place.exists():
            place.mkdir(mode=0o700)
            shutil.copytree(self.environment[RULES], place / "rules")
            give(place, uid)
        return place

    def reply(
        self, uid: int, method: str, path: str, body: Mapping[str, Any] | bytes | None = None, *, head: bool = False
    ) -> tuple[int, str]:
        return reply_to(uid, self.socket, method, path, body, head=head)


@contextmanager
def connected(uid: int, place: Path) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("localhost", timeout=60)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        os.seteuid(uid)  # the kernel notes the effective uid at connect()
        try:
            connection.sock.connect(str(place))
        finally:
            os.seteuid(0)
        yield connection


def reply_to(
    uid: int, place: Path, method: str, path: str, body: Mapping[str, Any] | bytes | None = None, *, head: bool = False
) -> tuple[int, str]:
    """The status and the reply that a user gets; with `head` the first event of an endless one."""
    with connected(uid, place) as connection:
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, raw, {} if body is None else {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, (answer.readline() if head else answer.read()).decode()


@contextmanager
def daemon_of(
    uid: int, models: Path, config: str, groups: Mapping[int, Sequence[int]] | None = None
) -> Iterator[UsersDaemon]:
    """Its socket is open to all, or with `groups` as the daemon makes it; nothing else of it is."""
    with tempfile.TemporaryDirectory(prefix="lore-") as name:
        Path(name).chmod(0o711)
        folder = Path(name) / "daemon"
        folder.mkdir(mode=0o711)
        daemon = UsersDaemon(folder, uid, groups or {}, environment={**ONE_THREAD, **WHOLE_WINDOW})
        rules = shutil.copytree(daemon.environment[RULES], folder / "rules")
        daemon.environment[RULES] = str(rules)
        configure(daemon, config)
        place = folder / "cache" / "lorekeep" / "models"
        place.mkdir(parents=True)
        for model in models.glob(f"*{MODEL}*"):
            shutil.copy(model, place)
        give(folder, uid)
        try:
            daemon.start()
            daemon.socket.parent.chmod(0o711)
            if groups is None:
                daemon.socket.chmod(0o666)
            yield daemon
        finally:
            daemon.stop()


def give(place: Path, uid: int) -> None:
    for one in (place, *place.rglob("*")):
        os.chown(one, uid, uid)
