"""systemd's units for the daemon: their text, and where it goes. Knows paths and systemd; nothing of models.

The service is closed as far as the program allows. Left open are the GPU's devices, the rest of /proc (the NVIDIA driver
reads /proc/driver), and memory that is written and then executed (ctypes callbacks).
"""

import asyncio
import ipaddress
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.keys import CREDENTIAL
from orchestrator.settings.paths import Paths
from orchestrator.wire.places import KeySource

SERVICE, SOCKET = "lorekeep.service", "lorekeep.socket"
ACCOUNT = "lorekeep"
KEY_FILE = "key.cred"  # beside the configuration
# Not DynamicUser: the socket's group must be there before the daemon runs, and have members.
SYSUSERS = f'u {ACCOUNT} - "Lorekeep" /var/lib/lorekeep\n'
FOLDERS = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
RULES = "KF_RULE_CACHE_DIR"  # Kingfisher's own variable
LINGER = ("loginctl", "enable-linger")  # of the user who says it
DONE = ("Created symlink", "Removed ")  # systemctl says on stderr also what went well
HARDENING = """\
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
ProtectControlGroups=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
CapabilityBoundingSet=
AmbientCapabilities=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources @debug @mount @cpu-emulation @obsolete @swap @reboot @raw-io @module @clock
# Refused, not killed: llama.cpp asks for thread priorities and goes on without.
SystemCallErrorNumber=EPERM
UMask=0077
# The GPU, and no other device. Names without a driver are passed over.
DevicePolicy=closed
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia-uvm rw
DeviceAllow=char-nvidia-caps rw
DeviceAllow=char-nvidiactl rw
"""
# Peers of the system's daemon must keep their uid: it decides their rights. A private user namespace would hide it.
SYSTEM_HARDENING = f"""\
# No user's files are opened: clients read them, and send them.
ProtectHome=yes
User={ACCOUNT}
Group={ACCOUNT}
StateDirectory=lorekeep
StateDirectoryMode=0700
CacheDirectory=lorekeep
CacheDirectoryMode=0700
ConfigurationDirectory=lorekeep
"""


@dataclass(frozen=True)
class Unit:
    """What differs between installations. `writable` are the folders a user's daemon writes to; systemd makes the
    system's. `tcp`: whether it listens on the network too; `servers`: the hosts of the engine's servers and of the
    archive's object storage, which it speaks to. `environment`: variables that its manager may not have.
    `encrypt`: where the key of what it keeps is; of `credential`, `key_file` is the one that systemd-creds encrypted."""

    executable: Path
    user: bool = True
    writable: Sequence[Path] = ()
    tcp: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    encrypt: KeySource = "off"
    key_file: Path = Path("/etc/lorekeep") / KEY_FILE
    servers: Sequence[str] = ()


@dataclass(frozen=True)
class UnitPlace:
    """Where one installation's units lie, how systemctl is asked about them, and where `lore` is linked to."""

    folder: Path
    systemctl: tuple[str, ...]
    link: Path | None = None
    account: Path | None = None  # the file that asks for the daemon's user and group
    sysusers: str = "systemd-sysusers"  # what makes them

    @property
    def units(self) -> tuple[Path, Path]:
        return self.folder / SERVICE, self.folder / SOCKET

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.units, *((self.account,) if self.account is not None else ()))


def place_of(environ: Mapping[str, str], *, user: bool) -> UnitPlace:
    if not user:
        return UnitPlace(Path("/etc/systemd/system"), ("systemctl",), account=Path("/etc/sysusers.d/lorekeep.conf"))
    home = Path(environ.get("HOME") or Path.home())
    base = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return UnitPlace(base / "systemd" / "user", ("systemctl", "--user"), home / ".local" / "bin" / "lore")


def carried(environ: Mapping[str, str], paths: Paths, *, user: bool) -> dict[str, str]:
    """The variables that decide where the daemon's folders are: the shell has them, systemd's manager may not. And where
    Kingfisher keeps its rules, which else is a folder that the unit cannot write to."""
    if not user:
        return {RULES: "/var/cache/lorekeep/kingfisher"}
    folders = {name: environ[name] for name in FOLDERS if environ.get(name, "").startswith("/")}
    return {**folders, RULES: environ.get(RULES) or str(paths.cache / "kingfisher")}


def install(unit: Unit, place: UnitPlace) -> list[str]:
    """Writes both units and starts the socket. What could not be told to systemd comes back as words."""
    place.folder.mkdir(parents=True, exist_ok=True)
    for folder in unit.writable:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # systemd binds only what exists
    service, socket = place.units
    service.write_text(service_text(unit))
    socket.write_text(socket_text(user=unit.user))
    return (
        accounted(place) + linked(unit, place.link) + commanded(place, ("daemon-reload",), ("enable", "--now", SOCKET))
    )


def uninstall(unit: Unit, place: UnitPlace) -> list[str]:
    """Stops and removes both units. Data stays."""
    complaints = commanded(place, ("disable", "--now", SOCKET, SERVICE)) if installed(place) else []
    for file in place.files:
        file.unlink(missing_ok=True)
    if place.link is not None and place.link.is_symlink() and place.link.readlink() == unit.executable:
        place.link.unlink()
    return complaints + commanded(place, ("daemon-reload",))


def accounted(place: UnitPlace) -> list[str]:
    """Asks for the daemon's user and group, which stay when it is uninstalled: its files are theirs."""
    if place.account is None:
        return []
    place.account.parent.mkdir(parents=True, exist_ok=True)
    place.account.write_text(SYSUSERS)
    return ran(place.sysusers, str(place.account))


def ran(*command: str) -> list[str]:
    """What went wrong, in words."""
    line = " ".join(command)
    if shutil.which(command[0]) is None:
        return [f"{command[0]} is not here; later: {line}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [f"{line}: {complaint(done.stderr) or f'exit status {done.returncode}'}"] if done.returncode else []


def lingers() -> bool:
    """Whether this user's services go on after the last logout. False where logind cannot be asked."""
    if shutil.which("loginctl") is None:
        return False
    asking = ["loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value"]
    return subprocess.run(asking, capture_output=True, text=True, check=False).stdout.strip() == "yes"


def linked(unit: Unit, link: Path | None) -> list[str]:
    """Makes `lore` a command of the user's; what stands there already is left alone."""
    if link is None or link.resolve() == unit.executable.resolve():
        return []
    if link.exists() or link.is_symlink():
        return [f"{link} is something else; put {unit.executable.parent} on PATH instead"]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(unit.executable)
    return []


def installed(place: UnitPlace) -> bool:
    return any(file.exists() for file in place.files)


def state(place: UnitPlace) -> dict[str, str]:
    """What systemd says of each unit: active, inactive, failed; unknown where it cannot be asked."""
    return {file.name: asked(place, "is-active", file.name) for file in place.units}


def asked(place: UnitPlace, *words: str) -> str:
    if shutil.which(place.systemctl[0]) is None:
        return "unknown"
    done = subprocess.run([*place.systemctl, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def commanded(place: UnitPlace, *commands: tuple[str, ...]) -> list[str]:
    return [complaint for words in commands for complaint in ran(*place.systemctl, *words)]


def complaint(said: str) -> str:
    """What systemctl complains of, in one line."""
    return "; ".join(line.strip() for line in said.splitlines() if line.strip() and not line.startswith(DONE))


# -- the text of the units. Pure.


def service_text(unit: Unit) -> str:
    return f"""\
[Unit]
Description=Lorekeep: answers from a codebase kept in the model's cache
Documentation=man:systemd.service(5)

[Service]
Type=notify
NotifyAccess=main
ExecStart={quoted(unit.executable)} serve
# Python takes no module from the folder it is started in.
Environment=PYTHONSAFEPATH=1
Restart=on-failure
RestartSec=2
# A large model takes its time to load; STATUS= tells how far it is.
TimeoutStartSec=15min
TimeoutStopSec=30
WatchdogSec=60
KillMode=mixed
# Where the kernel ends the engine for want of memory, the daemon stays and starts another one.
OOMPolicy=continue
RuntimeDirectory=lorekeep
RuntimeDirectoryMode={"0700" if unit.user else "0755"}
# The socket's file is in it, and belongs to lorekeep.socket.
RuntimeDirectoryPreserve=yes
{variables(unit)}{key_of(unit)}{HARDENING}{network(unit)}{placement(unit)}
[Install]
WantedBy={"default.target" if unit.user else "multi-user.target"}
"""


def variables(unit: Unit) -> str:
    return "".join(f"Environment={assigned(name, value)}\n" for name, value in unit.environment.items())


def key_of(unit: Unit) -> str:
    """A user's keyring has its keys for the service only where its own has that one in it."""
    keyring = f"KeyringMode={'shared' if unit.encrypt == 'keyring' else 'private'}\n"
    if unit.encrypt != "credential":
        return keyring
    path = str(unit.key_file).replace("%", "%%")  # not quoted: systemd takes quotes here as part of the name
    return f"{keyring}LoadCredentialEncrypted={CREDENTIAL}:{path}\n"


def network(unit: Unit) -> str:
    """With servers given by address, those and no others can be spoken to; systemd resolves no names for that."""
    if not unit.tcp and not unit.servers:
        return "RestrictAddressFamilies=AF_UNIX\nPrivateNetwork=yes\nIPAddressDeny=any\n"
    families = "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n"
    if unit.tcp or not all(map(is_address, unit.servers)):
        return families
    allowed = " ".join(dict.fromkeys(unit.servers))
    return f"{families}IPAddressDeny=any\nIPAddressAllow={allowed}\n"


def is_address(host: str) -> bool:
    """As IPAddressAllow= takes it; `localhost` is a word of its own there."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def placement(unit: Unit) -> str:
    if not unit.user:
        return SYSTEM_HARDENING
    writable = "".join(f"ReadWritePaths={quoted(folder)}\n" for folder in unit.writable)
    return f"ProtectHome=read-only\nPrivateUsers=yes\n{writable}"


def socket_text(*, user: bool) -> str:
    """The first question starts the daemon. The system's is for the members of a group."""
    mode, folder = ("0600", "0700") if user else ("0660", "0755")
    return f"""\
[Unit]
Description=Lorekeep's socket

[Socket]
ListenStream=%t/lorekeep/lore.sock
SocketMode={mode}
{"" if user else f"SocketUser={ACCOUNT}{chr(10)}SocketGroup={ACCOUNT}{chr(10)}"}DirectoryMode={folder}
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""


def assigned(name: str, value: str) -> str:
    return quoted(f"{name}={value}")


def quoted(given: Path | str) -> str:
    """As systemd.syntax(7) has it: percent signs doubled, and quotes where blanks or quotes are."""
    text = str(given).replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
    return f'"{text}"' if any(sign in text for sign in " \t'\";") else text


# -- what systemd hears while the daemon runs


def prefill_words(codices: int, done: int, tokens: int, left_s: float | None) -> str:
    """`computing a codex: 12,345 of 60,000 tokens (20 %), 3 min left`; '' for none. `left_s`: as predicted, None where
    nothing is known."""
    if not codices:
        return ""
    what = "a codex" if codices == 1 else f"{codices} codices"
    left = (
        ""
        if left_s is None
        else f", {left_s / 60:.0f} min left"
        if left_s >= MINUTES_FROM_S
        else f", {left_s:.0f} s left"
    )
    return f"computing {what}: {done:,} of {tokens:,} tokens ({100 * done // max(1, tokens)} %){left}"


MINUTES_FROM_S = 120.0
EXTENSION_US = 15 * 60 * 1_000_000
MOST_WAIT_S = 1.0


@dataclass(frozen=True)
class Notifier:
    """`address` is $NOTIFY_SOCKET, `watchdog_s` the time within which systemd wants to hear from us (0: never)."""

    address: str = ""
    watchdog_s: float = 0.0

    @staticmethod
    def of(environ: Mapping[str, str]) -> "Notifier":
        microseconds = environ.get("WATCHDOG_USEC", "0")
        return Notifier(environ.get("NOTIFY_SOCKET", ""), int(microseconds) / 1e6 if microseconds.isdigit() else 0.0)

    def ready(self) -> None:
        self.send("READY=1", MOST_WAIT_S)

    def starting(self) -> None:
        """Readiness may take longer than the unit says: as long as this is said again and again within EXTENSION_US."""
        self.send(f"EXTEND_TIMEOUT_USEC={EXTENSION_US}")

    def status(self, text: str) -> None:
        self.send(f"STATUS={text}".replace("\n", " "))

    def alive(self) -> None:
        self.send("WATCHDOG=1")

    def stopping(self) -> None:
        self.send("STOPPING=1", MOST_WAIT_S)

    async def keep_alive(self) -> None:
        """Tells systemd twice in each interval that the event loop still turns. Runs until cancelled."""
        while self.watchdog_s > 0:
            self.alive()
            await asyncio.sleep(self.watchdog_s / 2)

    def send(self, message: str, wait_s: float = 0.0) -> None:
        """Within that time. The kernel keeps ten messages that nobody has read: the next would stop all answers."""
        if not self.address:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.settimeout(wait_s)
            try:
                out.sendto(message.encode(), address)
            except OSError:
                return  # a supervisor that does not listen is no reason to stop answering
