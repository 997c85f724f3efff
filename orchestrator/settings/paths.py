"""Folders of the daemon: XDG's for a user's, systemd's for the system's. Files 0600, folders 0700."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import SettingsError
from orchestrator.wire.places import GATE_FILE, runtime_folder

SYSTEM_CONFIG = Path("/etc/lorekeep/config.toml")
FOLDER_MODE = 0o700
FILE_MODE = 0o600


@dataclass(frozen=True)
class Paths:
    """Where things lie. `data` must be kept, `state` is worth keeping, `cache` may be deleted at any time."""

    config: Path
    data: Path
    state: Path
    cache: Path
    runtime: Path

    @staticmethod
    def of(environ: Mapping[str, str]) -> "Paths":
        """systemd names its folders in variables (several are parted by colons; the unit's first is ours)."""
        home = Path(environ.get("HOME") or Path.home())

        def folder(systemd: str, xdg: str, default: str) -> Path:
            given = environ.get(systemd, "").split(":")[0]
            if given:
                return Path(given)
            base = environ.get(xdg, "")
            # The XDG specification: a path that is not absolute is to be ignored.
            return (Path(base) if base.startswith("/") else home / default) / "lorekeep"

        runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
        return Paths(
            config=folder("CONFIGURATION_DIRECTORY", "XDG_CONFIG_HOME", ".config"),
            data=folder("STATE_DIRECTORY", "XDG_DATA_HOME", ".local/share"),
            state=folder("STATE_DIRECTORY", "XDG_STATE_HOME", ".local/state"),
            cache=folder("CACHE_DIRECTORY", "XDG_CACHE_HOME", ".cache"),
            runtime=Path(runtime) if runtime else runtime_folder(environ),
        )

    @property
    def socket(self) -> Path:
        return self.runtime / "lore.sock"

    @property
    def sessions(self) -> Path:
        """The database of conversations."""
        return self.data / "sessions.sqlite3"

    @property
    def memories(self) -> Path:
        """The database of memories."""
        return self.data / "memories.sqlite3"

    @property
    def traces(self) -> Path:
        """The database of what the model saw and said."""
        return self.data / "traces.sqlite3"

    @property
    def measurements(self) -> Path:
        """How long a text each model follows; it can be measured again, which takes long."""
        return self.state / "context.json"

    @property
    def models(self) -> Path:
        """Where the built-in models are built and fetched ones lie."""
        return self.cache / "models"

    @property
    def checkpoints(self) -> Path:
        return self.cache / "kv"

    @property
    def codices(self) -> Path:
        return self.data / "codices"

    @property
    def archive(self) -> Path:
        return self.data / "archive"

    @property
    def memory_vectors(self) -> Path:
        """Those of memories, made anew where they are gone."""
        return self.data / "memory-vectors"

    @property
    def vectors(self) -> Path:
        """They can be embedded again, which takes long."""
        return self.data / "vectors"

    @property
    def identities(self) -> Path:
        return self.config / "identities"

    @property
    def gate_rules(self) -> tuple[Path, ...]:
        """Where rules of the relevance gate may be: beside each config.toml."""
        return tuple(dict.fromkeys((SYSTEM_CONFIG.with_name(GATE_FILE), self.config / GATE_FILE)))

    def prepare(self) -> None:
        """Makes the folders that are written to, readable by their owner alone."""
        for folder in (self.data, self.state, self.cache, self.runtime):
            private_folder(folder)


def private_folder(folder: Path) -> Path:
    """Makes a folder of mode 0700. Existing ones of ours are narrowed; somebody else's is refused."""
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        state = folder.stat()
        if state.st_uid != os.geteuid():
            raise SettingsError(f"{folder} belongs to uid {state.st_uid}", "remove it, or name another folder")
        if state.st_mode & 0o077:
            folder.chmod(FOLDER_MODE)
    except OSError as error:
        kept = "XDG_DATA_HOME, XDG_STATE_HOME or XDG_CACHE_HOME"
        hint = f"set {'XDG_RUNTIME_DIR or --socket' if 'run' in folder.parts else kept} to a folder you may write to"
        raise SettingsError(f"cannot make {folder}: {error.strerror}", hint) from error
    return folder


def write_whole(file: Path, text: str) -> None:
    """Whole or not at all, and with the mode it had."""
    if not file.parent.exists():
        private_folder(file.parent)
    target = file.resolve()  # a link into a folder of dotfiles stays one
    mode = target.stat().st_mode & 0o777 if target.exists() else FILE_MODE
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(text, "utf-8")
        part.chmod(mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
