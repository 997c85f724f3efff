"""Makes the files of the built-in models on first need, and finds them afterwards.

A file's name holds a hash of everything in this folder: a changed recipe makes a new file beside the old one. It is written
beside its place, synced and renamed, and its digest kept beside it: one that was damaged since is made anew.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

PREFIX = "builtin:"
MIB = 1 << 20


class BuiltinError(Exception):
    """A built-in model has no such name, or its file cannot be made; the message says what to do."""


@dataclass(frozen=True)
class Builtin:
    """A model that we make ourselves; `bytes` is about the size of its file. One that `embeds` writes no text."""

    name: str
    bytes: int
    embeds: bool = False


BUILTINS = {
    model.name: model
    for model in (
        Builtin("builtin:quoter", 8 * MIB),
        Builtin("builtin:noise-s", 142 * MIB),
        Builtin("builtin:noise-m", 562 * MIB),
        Builtin("builtin:words", 4 * MIB, embeds=True),
    )
}


def is_builtin(name: str) -> bool:
    return name.startswith(PREFIX)


def ensure(name: str, folder: Path) -> Path:
    """The file of a built-in model in `folder`, made if it is not there or damaged (seconds). The same bytes everywhere.

    Safe to call from several processes at once: one builds, the others wait. Raises BuiltinError.
    """
    if name not in BUILTINS:
        raise BuiltinError(f"there is no built-in model {name!r}; there are {', '.join(sorted(BUILTINS))}")
    model = BUILTINS[name]
    path = folder / f"{name.removeprefix(PREFIX)}-{recipe_hash()}.gguf"
    if sound(path):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_builder(folder / f".{path.stem}.lock"):
            if not sound(path):
                build(model, path)
    except OSError as error:
        raise BuiltinError(f"{name} cannot be made in {folder}: {error.strerror or error}") from error
    return path


def sound(path: Path) -> bool:
    """Whether the file is there and as it was written. A large one is read once in a process, until it changes."""
    try:
        return digest_of(path) == sum_of(path).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def sum_of(path: Path) -> Path:
    return path.with_name(f".{path.stem}.sha256")


def digest_of(path: Path) -> str:
    """Raises OSError."""
    found = path.stat()
    return digest_at(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=16)
def digest_at(path: Path, _inode: int, _size: int, _written_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build(model: Builtin, path: Path) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < model.bytes:
        raise BuiltinError(
            f"{model.name} needs about {model.bytes // MIB} MiB in {path.parent}, and {free // MIB} MiB are free there: "
            "make room, or choose another cache folder"
        )
    part = path.with_suffix(".part")  # one builder at a time: a dead one's rest is written over
    try:
        write(model.name, part)
        sync(part)
        sum_of(path).write_text(digest_of(part))
        part.replace(path)
        sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write(name: str, path: Path) -> None:
    """Raises OSError. The recipes are imported here: they load numpy and gguf, and most files exist already."""
    from orchestrator.engine.builtin import quoter, shape, words

    vocabulary = shape.tokens()
    if name == "builtin:words":
        words.write(path, vocabulary)
    elif name == "builtin:quoter":
        shape.write(path, quoter.SHAPE, vocabulary, quoter.tensors(vocabulary))
    else:
        size = shape.SMALL if name == "builtin:noise-s" else shape.MEDIUM
        shape.write(path, size, vocabulary, shape.tensors(size, vocabulary))


@contextmanager
def only_builder(lock: Path) -> Iterator[None]:
    """Holds a file lock, which the kernel drops when its holder dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@cache
def recipe_hash() -> str:
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in sorted([*here.glob("*.py"), *here.glob("*.txt")]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
