"""Puts the units in their place, takes them out again, and tells systemd."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.service_unit.text import Unit, service_text, socket_text

SERVICE, SOCKET = "lorekeep.service", "lorekeep.socket"


@dataclass(frozen=True)
class Place:
    """Where one installation's units lie, and how systemctl is asked about them."""

    folder: Path
    systemctl: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, Path]:
        return self.folder / SERVICE, self.folder / SOCKET


def place_of(environ: Mapping[str, str], *, user: bool) -> Place:
    if not user:
        return Place(Path("/etc/systemd/system"), ("systemctl",))
    base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', str(Path.home()))}/.config"
    return Place(Path(base) / "systemd" / "user", ("systemctl", "--user"))


def install(unit: Unit, place: Place) -> list[str]:
    """Writes both units and starts the socket. What could not be told to systemd comes back as words."""
    place.folder.mkdir(parents=True, exist_ok=True)
    for folder in unit.writable:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # systemd binds only what exists
    service, socket = place.files
    service.write_text(service_text(unit))
    socket.write_text(socket_text())
    return told(place, ("daemon-reload",), ("enable", "--now", SOCKET))


def uninstall(place: Place) -> list[str]:
    """Stops and removes both units. Data stays."""
    complaints = told(place, ("disable", "--now", SOCKET, SERVICE)) if installed(place) else []
    for file in place.files:
        file.unlink(missing_ok=True)
    return complaints + told(place, ("daemon-reload",))


def installed(place: Place) -> bool:
    return any(file.exists() for file in place.files)


def state(place: Place) -> dict[str, str]:
    """What systemd says of each unit: active, inactive, failed; unknown where it cannot be asked."""
    return {file.name: asked(place, "is-active", file.name) for file in place.files}


def asked(place: Place, *words: str) -> str:
    if shutil.which(place.systemctl[0]) is None:
        return "unknown"
    done = subprocess.run([*place.systemctl, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def told(place: Place, *commands: tuple[str, ...]) -> list[str]:
    complaints: list[str] = []
    for words in commands:
        line = " ".join([*place.systemctl, *words])
        if shutil.which(place.systemctl[0]) is None:
            complaints.append(f"systemctl is not here; later: {line}")
            continue
        done = subprocess.run([*place.systemctl, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            complaints.append(f"{line}: {done.stderr.strip() or done.returncode}")
    return complaints
