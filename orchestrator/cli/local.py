"""The few things the command line does without a daemon. Here alone it loads what is not its own, and only when called."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.client import Failure
from orchestrator.wire import faults

if TYPE_CHECKING:
    from orchestrator.settings import LoadedSettings


def settings(config: str | None = None, options: Mapping[str, Any] | None = None) -> "LoadedSettings":
    """Raises Failure for what cannot be used."""
    from orchestrator.settings import load

    chosen = {key: value for key, value in (options or {}).items() if value is not None}
    with translated():
        return load(os.environ, config=Path(config) if config else None, options=chosen)


def unusable(loaded: "LoadedSettings") -> list[dict[str, str]]:
    """What `lore serve` would refuse of these settings, or do without: key, origin, message and hint of each."""
    from dataclasses import asdict

    from orchestrator.settings import Paths
    from orchestrator.usable import unusable as found

    return [asdict(one) for one in found(loaded, Paths.of(os.environ))]


def known_sigil(name: str) -> None:
    """Raises Failure for a sigil that the settings do not have."""
    wrong = settings().settings.unknown_sigil(name)
    if wrong:
        raise Failure(faults.USAGE, wrong, f"name one of them, or write [sigils.{name}] into the configuration first")


def settings_table(config: str | None, socket: str | None) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from orchestrator.settings.sources import describe

    loaded = settings(config, {"serve.socket": socket})
    return [asdict(row) for row in describe(loaded.settings, loaded.origins)]


def settings_files(config: str | None = None) -> list[dict[str, Any]]:
    """Every file that is looked for, in its order, and whether it is there."""
    from orchestrator.settings.sources import looked_for

    files = looked_for(os.environ, Path(config) if config else None)
    return [{"path": str(file), "exists": file.is_file()} for file in files]


def serve(config: str | None, options: Mapping[str, Any]) -> int:
    """Runs the daemon in this process until it ends; its exit status."""
    from orchestrator.instance import refuse_second
    from orchestrator.settings import Paths

    loaded = settings(config, options)
    with translated():
        refuse_second(loaded.settings.serve, Paths.of(os.environ))

        from orchestrator.daemon import run

        return run(loaded.settings)


def unit(*, user: bool, tcp: bool) -> Any:
    """The installation's Unit and Place: what `lore service` writes and where."""
    from orchestrator.settings import Paths
    from orchestrator.systemd import Unit, carried, place_of

    paths = Paths.of(os.environ)
    writable = (paths.data, paths.state, paths.cache) if user else ()
    executable = Path(sys.argv[0]).resolve()
    return Unit(executable, user, writable, tcp, carried(os.environ, paths, user=user)), place_of(os.environ, user=user)


def unit_action(action: str, *, user: bool) -> Any:
    """Runs install, uninstall or state; install and uninstall answer with what systemd could not be told."""
    from orchestrator import systemd

    tcp = bool(settings().settings.serve.tcp)
    made, place = unit(user=user, tcp=tcp)
    try:
        if action == "install":
            return systemd.install(made, place)
        return systemd.uninstall(made, place) if action == "uninstall" else systemd.state(place)
    except OSError as error:
        hint = "for the system's service, run it as root" if not user else "check the folder's owner"
        raise Failure(faults.NOT_PERMITTED, f"{error.filename}: {error.strerror}", hint) from error


def unit_files(*, user: bool) -> list[str]:
    _, place = unit(user=user, tcp=False)
    return [str(file) for file in place.files]


def folders() -> list[Path]:
    """Those the daemon writes to, the cache first: it grows."""
    from orchestrator.settings import Paths

    paths = Paths.of(os.environ)
    return [paths.cache, paths.data, paths.state, paths.runtime]


def models_folder() -> Path:
    from orchestrator.settings import Paths

    return Paths.of(os.environ).models


def model_setting(name: str) -> str:
    """The setting that names this model, its file looked into. Raises Failure."""
    from orchestrator.model.folder import setting_of

    with translated():
        return setting_of(name, models_folder())


def use_model(setting: str, config: str | None) -> dict[str, Any]:
    """Writes it into the configuration. Raises Failure."""
    from orchestrator.model.folder import use_model as written

    with translated():
        return written(setting, os.environ, Path(config) if config else None)


def gguf_fault(path: Path) -> str:
    """What is wrong with a file as a GGUF with all its parts, whatever it is for; "" where it is whole."""
    from orchestrator.model.folder import damage

    return damage(path)


def doomed_model(name: str, running: str | None) -> Any:
    """What `lore model drop` would remove. `running`: the path of the model that a daemon holds. Raises Failure."""
    from orchestrator.model.folder import removal_of

    given = settings().settings
    configured = [given.model.path, given.embedding.model]
    with translated():
        return removal_of(name, models_folder(), [path for path in (running, *configured) if path])


def remove_model(model: Any) -> None:
    """Raises Failure."""
    from orchestrator.model.folder import remove

    try:
        remove(model, models_folder())
    except OSError as error:
        raise Failure(
            faults.FAILED, f"{error.filename}: {error.strerror}", "check the owner of the file and its folder"
        ) from error


@contextmanager
def translated() -> Iterator[None]:
    """The daemon's kind of fault as the command line's."""
    from orchestrator.errors import LoreError

    try:
        yield
    except LoreError as error:
        raise Failure(faults.exit_status(error.code), error.message, error.hint) from error


def models_at_hand() -> list[dict[str, Any]]:
    """What `lore model list` shows, read from the files' headers and the sensors."""
    from orchestrator.reports.models_here import models_here
    from orchestrator.settings import Paths

    return [one.model_dump(mode="json") for one in models_here(settings().settings, Paths.of(os.environ))]


def model_at_hand(name: str) -> dict[str, Any]:
    """What `lore model show` shows; '' is the configured model. Raises Failure."""
    from orchestrator.reports.models_here import model_here
    from orchestrator.settings import Paths

    with translated():
        return model_here(name, settings().settings, Paths.of(os.environ)).model_dump(mode="json")


def model_findings() -> dict[str, Any]:
    """What the configured model's file and settings say: faults, whether KV can be cut, where the template puts blocks."""
    from orchestrator.reports.doctor import model_findings as found

    return found(settings().settings, models_folder())


def floors_on_disk(path: str) -> dict[str, int]:
    """Bytes of checkpoints that this model's file can use with the settings, and of others. Loads llama.cpp."""
    from orchestrator.reports.doctor import floors_on_disk as held
    from orchestrator.settings import Paths

    return held(path, settings().settings.model, Paths.of(os.environ).checkpoints)


def other_daemon() -> tuple[str, str] | None:
    """The daemon that has our folders, whatever socket was asked: its pid, and the socket that it serves."""
    from orchestrator.reports.doctor import daemon_here
    from orchestrator.settings import Paths

    return daemon_here(Paths.of(os.environ))


def gpu_names() -> list[str]:
    """GPUs that the NVIDIA driver tells of, whatever the engine was built for."""
    from orchestrator.reports.doctor import gpu_names as seen

    return seen(os.environ)


def plugin_failures() -> list[str]:
    from orchestrator.reports.doctor import plugin_failures as broken

    return broken()


def deleted_stores() -> list[tuple[Path, str]]:
    """Databases of ours that were deleted under a process that uses them, each with its pid."""
    from orchestrator.reports.doctor import deleted_stores as deleted
    from orchestrator.settings import Paths

    return deleted(Paths.of(os.environ))


def damaged_stores() -> list[tuple[Path, str]]:
    """Databases of ours that do not pass their own check, each with what it says."""
    from orchestrator.reports.doctor import damaged_stores as damaged
    from orchestrator.settings import Paths

    return damaged(Paths.of(os.environ))
