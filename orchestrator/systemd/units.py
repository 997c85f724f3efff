"""Puts the units in their place, takes them out again, and tells systemd."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.settings.paths import Paths
from orchestrator.systemd.text import Unit, service_text, socket_text

SERVICE, SOCKET = "lorekeep.service", "lorekeep.socket"
FOLDERS = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
RULES = "KF_RULE_CACHE_DIR"  # Kingfisher's own variable
DONE = ("Created symlink", "Removed ")  # systemctl says on stderr also what went well


@dataclass(frozen=True)
class Place:
    """Where one installation's units lie, how systemctl is asked about them, and where `lore` is linked to."""

    folder: Path
    systemctl: tuple[str, ...]
    link: Path | None = None

    @property
    def files(self) -> tuple[Path, Path]:
        return self.folder / SERVICE, self.folder / SOCKET


def place_of(environ: Mapping[str, str], *, user: bool) -> Place:
    if not user:
        return Place(Path("/etc/systemd/system"), ("systemctl",))
    home = Path(environ.get("HOME") or Path.home())
    base = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return Place(base / "systemd" / "user", ("systemctl", "--user"), home / ".local" / "bin" / "lore")


def carried(environ: Mapping[str, str], paths: Paths, *, user: bool) -> dict[str, str]:
    """The variables that decide where the daemon's folders are: the shell has them, systemd's manager may not. And where
    Kingfisher keeps its rules, which else is a folder that the unit cannot write to."""
    if not user:
        return {RULES: "/var/cache/lorekeep/kingfisher"}
    folders = {name: environ[name] for name in FOLDERS if environ.get(name, "").startswith("/")}
    return {**folders, RULES: environ.get(RULES) or str(paths.cache / "kingfisher")}


def install(unit: Unit, place: Place) -> list[str]:
    """Writes both units and starts the socket. What could not be told to systemd comes back as words."""
    place.folder.mkdir(parents=True, exist_ok=True)
    for folder in unit.writable:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # systemd binds only what exists
    service, socket = place.files
    service.write_text(service_text(unit))
    socket.write_text(socket_text())
    return linked(unit, place.link) + told(place, ("daemon-reload",), ("enable", "--now", SOCKET))


def uninstall(unit: Unit, place: Place) -> list[str]:
    """Stops and removes both units. Data stays."""
    complaints = told(place, ("disable", "--now", SOCKET, SERVICE)) if installed(place) else []
    for file in place.files:
        file.unlink(missing_ok=True)
    if place.link is not None and place.link.is_symlink() and place.link.readlink() == unit.executable:
        place.link.unlink()
    return complaints + told(place, ("daemon-reload",))


def linked(unit: Unit, link: Path | None) -> list[str]:
    """Makes `lore` a command of the user's; what stands there already is left alone."""
    if link is None or link.resolve() == unit.executable.resolve():
        return []
    if link.exists() or link.is_symlink():
        return [f"{link} is something else; put {unit.executable.parent} on PATH instead"]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(unit.executable)
    return []


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
            complaints.append(f"{line}: {complaint(done.stderr) or f'exit status {done.returncode}'}")
    return complaints


def complaint(said: str) -> str:
    """What systemctl complains of, in one line."""
    return "; ".join(line.strip() for line in said.splitlines() if line.strip() and not line.startswith(DONE))
