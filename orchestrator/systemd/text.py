"""lorekeep.service and lorekeep.socket as text. Pure.

Closed as far as the program allows. Deliberately left open, each with its reason in the text: the GPU's devices, the rest
of /proc (the NVIDIA driver reads /proc/driver), and memory that is written and then executed (ctypes callbacks).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Unit:
    """What differs between installations. `writable` are the folders a user's daemon writes to; systemd makes the
    system's. `tcp`: whether it listens on the network too. `environment`: variables that its manager may not have."""

    executable: Path
    user: bool = True
    writable: Sequence[Path] = ()
    tcp: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


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
KeyringMode=private
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
SYSTEM_HARDENING = """\
ProtectHome=read-only
DynamicUser=yes
StateDirectory=lorekeep
StateDirectoryMode=0700
CacheDirectory=lorekeep
CacheDirectoryMode=0700
ConfigurationDirectory=lorekeep
"""


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
RuntimeDirectory=lorekeep
RuntimeDirectoryMode=0700
# The socket's file is in it, and belongs to lorekeep.socket.
RuntimeDirectoryPreserve=yes
{variables(unit)}{HARDENING}{network(unit)}{placement(unit)}
[Install]
WantedBy={"default.target" if unit.user else "multi-user.target"}
"""


def variables(unit: Unit) -> str:
    return "".join(f"Environment={assigned(name, value)}\n" for name, value in unit.environment.items())


def network(unit: Unit) -> str:
    if unit.tcp:
        return "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n"
    return "RestrictAddressFamilies=AF_UNIX\nPrivateNetwork=yes\nIPAddressDeny=any\n"


def placement(unit: Unit) -> str:
    if not unit.user:
        return SYSTEM_HARDENING
    writable = "".join(f"ReadWritePaths={quoted(folder)}\n" for folder in unit.writable)
    return f"ProtectHome=read-only\nPrivateUsers=yes\n{writable}"


def socket_text() -> str:
    """The first question starts the daemon."""
    return """\
[Unit]
Description=Lorekeep's socket

[Socket]
ListenStream=%t/lorekeep/lore.sock
SocketMode=0600
DirectoryMode=0700
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
