"""`lore serve` and `lore service`: the daemon in the foreground, and as a service of systemd."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.client import Failure
from orchestrator.cli.purge import insist
from orchestrator.cli.terminal import is_terminal, listed, note, result, result_json, size, table
from orchestrator.wire import faults

if TYPE_CHECKING:
    from orchestrator.settings import Paths
    from orchestrator.settings.model import Settings
    from orchestrator.systemd import Unit, UnitPlace

app = typer.Typer(no_args_is_help=True, help="The daemon as a service of systemd.")
User = Annotated[bool, given.option("--user/--system", "your own service, or the machine's")]
Purge = Annotated[bool, given.option("--purge", "delete its data, cache and models as well, after asking")]
Yes = Annotated[bool, given.option("--yes", "with --purge: do not ask")]
Tcp = Annotated[str | None, given.option("--tcp HOST:PORT", "listen there as well, for holders of tokens")]
Model = Annotated[
    str | None,
    given.option("--model MODEL", "a GGUF file, builtin:quoter, builtin:noise-s or builtin:noise-m"),
]
Engine = Annotated[
    list[str] | None,
    given.option(
        "--engine URL",
        "a server that computes in the place of a model here, http://HOST:PORT/v1; again for further ones",
    ),
]

LINGER_HINT = "ask who administers this machine: sudo loginctl enable-linger USER"
NEXT = """\
next, as root:
  usermod -aG lorekeep USER        who may connect, from their next login on
  /etc/lorekeep/config.toml        what they may do there:
    [sigils.users]
    groups = ["lorekeep"]
    scopes = ["query", "search", "codex:read", "codex:write", "memory:read", "memory:write"]
  systemctl restart lorekeep       reads the configuration
as the daemon's owner: sudo -u lorekeep lore status"""


def serve(
    socket: given.Socket = None,
    tcp: Tcp = None,
    config: given.Config = None,
    model: Model = None,
    engine: Engine = None,
) -> None:
    """Runs the daemon until SIGTERM or Ctrl-C. The exit status is then 0, also while it starts."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the daemon hears signals itself
    with suppress(KeyboardInterrupt), local.translated():
        from orchestrator.instance import refuse_second

        options = {"serve.socket": socket, "serve.tcp": tcp, "model.path": model, "engine.url": engine or None}
        settings = local.settings(config, options).settings
        refuse_second(settings.serve, local.paths())

        from orchestrator.daemon import run

        run(settings)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # All is closed; the interpreter would take half a second to free the libraries' objects one by one.
    os._exit(0)


@app.command()
def install(user: User = True, as_json: given.Json = False) -> None:
    """Writes the units and starts the socket: the first question starts the daemon. On a terminal it offers to keep your
    services running after you log out."""
    set_up(user=user, as_json=as_json, may_ask=is_terminal(sys.stdin))


def set_up(*, user: bool, may_ask: bool, as_json: bool = False) -> None:
    """Raises Failure."""
    from orchestrator import systemd

    files, complaints = changed(systemd.install, user=user, as_json=as_json)
    for file in files:
        note(f"wrote {file}")
    settings = local.settings().settings
    for words in (reached(settings.engine.url), reached_archive(settings)):
        if words:
            note(words)
    complete(complaints, "the units are written, but not all else worked")
    if user:
        keep_running(may_ask=may_ask)
    else:
        note(NEXT)


def reached(urls: Sequence[str]) -> str:
    """What the unit may speak to because of engine.url; '' without one."""
    from orchestrator.systemd import is_address

    if not urls:
        return ""
    hosts = [str(urlsplit(url).hostname) for url in urls]
    names = [host for host in hosts if not is_address(host)]
    again = "install again when engine.url changes"
    if names:
        return (
            f"the unit has the network, because {listed(*names)} in engine.url is a name: an address bounds it; {again}"
        )
    return f"the unit may speak to {listed(*hosts)} (engine.url); to no other address but those named here; {again}"


def reached_archive(settings: "Settings") -> str:
    """What the unit may speak to because of archive.uri; '' where the archive is in a folder."""
    from orchestrator.settings.archive import host_of
    from orchestrator.systemd import is_address

    host = host_of(settings)
    if not host:
        return ""
    keys = "" if settings.archive.key_file else "; it has no variables of this shell: name the keys in archive.key_file"
    again = f"install again when archive.uri or its endpoint changes{keys}"
    if is_address(host):
        return f"the unit may speak to {host} (archive.uri); {again}"
    return f"the unit has the network, because {host} (archive.uri) is a name: an address bounds it; {again}"


def keep_running(*, may_ask: bool) -> None:
    """Offers what lets the user's services outlast a logout; says it where nobody may be asked. Raises Failure where it is
    wanted and systemd refuses."""
    from orchestrator import systemd

    if systemd.lingers():
        return
    command = " ".join(systemd.LINGER)
    if not may_ask or not typer.confirm(f"keep it running after you log out ({command})?", default=True, err=True):
        note(f"it ends when you log out; to keep it running: {command}")
    elif complaints := systemd.ran(*systemd.LINGER):
        raise Failure(faults.FAILED, f"the units work, but end when you log out: {'; '.join(complaints)}", LINGER_HINT)


@app.command()
def uninstall(user: User = True, purge: Purge = False, yes: Yes = False, as_json: given.Json = False) -> None:
    """Stops the service and removes the units. Data stays, unless --purge is given; the configuration stays in any case."""
    from orchestrator import systemd

    paths = paths_of(user=user)
    folders = [folder for folder in data_folders(paths) if os.path.lexists(folder)] if purge else []
    if folders:
        note(table(("to be deleted", "size"), [(str(folder), size(bytes_in(folder))) for folder in folders]))
        insist("delete conversations, memories, codices, traces, checkpoints and models for good?", yes=yes)
    files, complaints = changed(systemd.uninstall, user=user, as_json=False)
    if folders:
        delete(folders, paths)
    if as_json:
        result_json({"files": files, "todo": complaints, "purged": [str(folder) for folder in folders]})
        raise typer.Exit(faults.FAILED if complaints else faults.OK)
    complete(complaints, "the units are removed, but systemd could not be told")
    note(f"removed; {paths.config} stays" if purge else "removed")


def paths_of(*, user: bool) -> "Paths":
    """The folders of the user's daemon, or of the system's, which are those of its unit."""
    from orchestrator.settings import Paths

    named = {"STATE_DIRECTORY": "/var/lib", "CACHE_DIRECTORY": "/var/cache", "CONFIGURATION_DIRECTORY": "/etc"}
    return local.paths() if user else Paths.of({name: f"{folder}/lorekeep" for name, folder in named.items()})


def data_folders(paths: "Paths") -> list[Path]:
    """What the daemon has written, but for its configuration; systemd has one folder for data and state."""
    return list(dict.fromkeys((paths.data, paths.state, paths.cache)))


def bytes_in(folder: Path) -> int:
    """Of the files in it; a link counts as itself."""
    found = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - tens of thousands
    return found


def delete(folders: Sequence[Path], paths: "Paths") -> None:
    """For good. A link goes, and what it leads to stays. Raises Failure while a daemon uses them, and for what stays."""
    from orchestrator.instance import daemon_of

    if other := daemon_of(paths):
        raise Failure(
            faults.FAILED,
            f"the units are removed and nothing was deleted: {other} still uses {paths.data}",
            f"end it (kill {other.pid}), then: lore service uninstall --purge",
        )
    for folder in folders:
        try:
            folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
        except OSError as error:
            hint = "rights: sudo rm -r of the folder named; then the same command again for the others"
            raise Failure(
                faults.FAILED, f"{folder} is deleted in part: {error.filename}: {error.strerror}", hint
            ) from error


@app.command()
def status(user: User = True, as_json: given.Json = False) -> None:
    """Says what systemd makes of the units."""
    states = unit_states(user=user)
    if as_json:
        result_json({"units": states})
    else:
        result("\n".join(f"{name}  {state}" for name, state in states.items()))
    if set(states.values()) == {"unknown"}:
        raise Failure(faults.FAILED, "systemd cannot be asked here", "lore serve runs without it")


def unit_states(*, user: bool) -> dict[str, str]:
    """What systemd says of each unit."""
    from orchestrator.systemd import place_of, state

    return state(place_of(os.environ, user=user))


def changed(
    action: Callable[["Unit", "UnitPlace"], list[str]], *, user: bool, as_json: bool
) -> tuple[list[str], list[str]]:
    """The units' files, and what systemd could not be told of an action on this installation's units. With `as_json` both
    are printed, and the command ends. Raises Failure."""
    from orchestrator.settings.archive import host_of
    from orchestrator.systemd import KEY_FILE, Unit, carried, place_of

    paths, place, settings = local.paths(), place_of(os.environ, user=user), local.settings().settings
    writable = (paths.data, paths.state, paths.cache, paths.identities) if user else ()
    unit = Unit(
        Path(sys.argv[0]).resolve(),
        user,
        writable,
        bool(settings.serve.tcp),
        carried(os.environ, paths, user=user),
        settings.security.encrypt,
        paths_of(user=user).config / KEY_FILE,
        [*(str(urlsplit(url).hostname) for url in settings.engine.url), *filter(None, [host_of(settings)])],
    )
    try:
        complaints = action(unit, place)
    except OSError as error:
        hint = "for the system's service, run it as root" if not user else "check the folder's owner"
        raise Failure(faults.NOT_PERMITTED, f"{error.filename}: {error.strerror}", hint) from error
    files = [str(file) for file in place.files]
    if as_json:
        result_json({"files": files, "todo": complaints})
        raise typer.Exit(faults.FAILED if complaints else faults.OK)
    return files, complaints


def complete(complaints: list[str], done: str) -> None:
    """Raises Failure where something is left to do: `done` says what was done."""
    if complaints:
        raise Failure(faults.FAILED, f"{done}: {'; '.join(complaints)}", "lore serve runs without systemd")
