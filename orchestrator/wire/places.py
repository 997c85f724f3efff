"""What both ends of the socket know without asking: paths, the socket, the version, the installation, the model that is
built in.

Loads little: every start of the command line pays for it.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

VERSION = "0.1.0"  # the build reads it here; asking the installed package costs tens of milliseconds
HEADER = "x-lorekeep-version"
SYSTEM_SOCKET = Path("/run/lorekeep/lore.sock")
SOCKET_VARIABLE = "LORE_SOCKET"
SHIPPED_IDENTITY = "lorekeep"
GATE_FILE = "context-relevance.json"  # the rules of relevance, in the package and beside a config.toml
QUOTER = "builtin:quoter"  # the model that answers where none is configured
QUOTING = "the quoting self-test model: it only continues text of its context, it is no assistant"
UNCONFIGURED = f"no model is configured, so this is {QUOTING}"
QUOTING_SHORT = "builtin:quoter only quotes; a real model: lore model use FILE.gguf"
IN_SHORT = {
    QUOTING: QUOTING_SHORT,
    UNCONFIGURED: f"no model is configured: {QUOTING_SHORT}",
}  # its notices, for a terminal
LoadPhase = Literal["pause", "model", "walk", "rules", "read", "index", "count", "outline", "prefill"]
ChangePhase = Literal["checking", "stopping", "loading", "loading the model before", "raising"]
MeasurePhase = Literal["measure"]
PHASES: Mapping[LoadPhase | ChangePhase | MeasurePhase, str] = {  # of what takes its time, for people
    "walk": "listing files",
    "rules": "preparing the search for secrets",
    "read": "reading files",
    "index": "indexing files",
    "pause": "waiting for the model, which is paused",
    "model": "loading the model",
    "count": "counting tokens of files",
    "outline": "outlining files",
    "prefill": "computing tokens",
    "checking": "checking the model",
    "stopping": "waiting for running answers",
    "loading": "loading the model",
    "loading the model before": "loading the model that answered before",
    "raising": "building codices",
    "measure": "measuring the context",
}
KeySource = Literal["off", "credential", "keyring"]  # of what is encrypted on disk: none, systemd, the kernel
BINDING = "'llama-cpp-python<0.4'"
URL = re.compile(r"^(?:https?|ssh|git|file)://|^[\w.-]+@[\w.-]+:", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Whether this is a git URL, also in ssh's short form `user@host:path`."""
    return URL.match(place) is not None


def path_of(named: str) -> Path:
    """The path that somebody wrote, its `~` or `~NAME` replaced.

    Where NAME is nobody, or there is no home, it stays as it was written: a path that does not exist, which whoever looks
    for it says by that name. pathlib raises RuntimeError instead, which nobody expects of a path.
    """
    return Path(os.path.expanduser(named))  # noqa: PTH111 - see above


def runtime_folder(environ: Mapping[str, str]) -> Path:
    """The user's runtime folder, also where a login shell has not set the variable (cron, ssh with a command)."""
    base = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return Path(base) / "lorekeep"


def candidates(option: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Sockets to try in turn: the option alone, else the variable alone, else the user's and then the system's."""
    if named := option or environ.get(SOCKET_VARIABLE):
        return (path_of(named),)
    return runtime_folder(environ) / "lore.sock", SYSTEM_SOCKET


def compile_again(*, cuda: bool = False) -> str:
    """The command that compiles llama.cpp anew for this installation: a checkout has its own, and finds a GPU by itself."""
    if (Path(__file__).parents[2] / "scripts" / "llama_wheel.py").exists():
        return "make install"
    flags = "CMAKE_ARGS=-DGGML_CUDA=on " if cuda else ""
    # pip reaches into the environments of pipx and of uv too, which need not hold one themselves.
    return f"{flags}pip --python {sys.prefix} install --force-reinstall --no-deps --no-cache-dir {BINDING}"
