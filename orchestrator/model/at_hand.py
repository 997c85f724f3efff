"""The models at hand: those of the models folder, the built-in ones, and the one that is configured. Reads headers only."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from governor.errors import FootprintError, GgufError
from governor.gguf import Gguf, read_gguf
from governor.shape import ModelShape, shape_of
from orchestrator.engine.builtin.files import BUILTINS, PREFIX, recipe_hash

SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")
LATER_SHARD = re.compile(r"-(?!00001-)\d{5}-of-\d{5}\.gguf$")
BUILT = re.compile(rf"({'|'.join(name.removeprefix(PREFIX) for name in BUILTINS)})-[0-9a-f]{{12}}\.gguf$")


@dataclass(frozen=True)
class AtHand:
    """`path` is where it lies or would lie; `about` the bytes of a built-in one that has not been made yet, and `embeds`
    whether a built-in one is for `embedding.model`."""

    id: str
    path: Path
    about: int = 0
    embeds: bool = False


@dataclass(frozen=True)
class FileHeader:
    """What a file says of itself; `fault` says why it is no model to load, and then there is no shape."""

    gguf: Gguf | None = None
    shape: ModelShape | None = None
    fault: str = ""


def at_hand(folder: Path, setting: str, path: Path) -> tuple[AtHand, ...]:
    """`setting` and `path` are the loaded model's; it stands first. Files of later shards belong to their first."""
    found = [AtHand(setting, path), *builtins(folder), *files(folder)]
    seen: dict[Path, AtHand] = {}
    for one in found:
        seen.setdefault(one.path, one)
    return tuple(seen.values())


def builtins(folder: Path) -> Iterator[AtHand]:
    for model in BUILTINS.values():
        path = folder / f"{model.name.removeprefix(PREFIX)}-{recipe_hash()}.gguf"
        yield AtHand(model.name, path, 0 if path.exists() else model.bytes, model.embeds)


def files(folder: Path) -> Iterator[AtHand]:
    for path in sorted(folder.rglob("*.gguf")):
        if not LATER_SHARD.search(path.name) and not BUILT.match(path.name):
            yield AtHand(path.stem, path)


def shards(first: Path) -> tuple[Path, ...]:
    """All files of a split model (`name-00001-of-00003.gguf`), or the one file."""
    found = SHARD.fullmatch(first.name)
    if not found:
        return (first,)
    stem, count = found.groups()
    return tuple(first.with_name(f"{stem}-{number:05d}-of-{count}.gguf") for number in range(1, int(count) + 1))


def chosen(known: tuple[AtHand, ...], name: str) -> AtHand | None:
    """By its name, its file's name or its path."""
    return next((one for one in known if name in (one.id, one.path.name, str(one.path))), None)


def lying_at(path: str) -> AtHand | None:
    """A file by its full path, whatever it is."""
    found = Path(path)
    return AtHand(path, found) if found.is_absolute() and found.is_file() else None


def header(path: Path) -> FileHeader:
    try:
        gguf = read_gguf(path)
        shape = shape_of(gguf)
    except (GgufError, FootprintError) as error:
        return FileHeader(fault=str(error))
    except OSError as error:
        return FileHeader(fault=error.strerror or str(error))
    return FileHeader(gguf, shape)


def damage(path: Path) -> str:
    """What is wrong with a file as a GGUF with all its parts, whatever it is for; "" where it is whole."""
    try:
        read_gguf(path)
    except GgufError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
    return ""
