"""Model files: which one to load, which ones there are, and what their headers say. Loads none.

llama.cpp may abort on a damaged file, so damage is found here, by the header and the sizes it promises.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formatters.template import ChatTemplate, Placement, probe
from governor.gguf import Gguf, GgufError, read_gguf
from governor.model_shape import FootprintError, ModelShape, no_chat, shape_of
from orchestrator.engine.builtin.files import BUILTINS, PREFIX, BuiltinError, ensure, is_builtin, recipe_hash
from orchestrator.engine.model import shards
from orchestrator.errors import Conflict, InvalidRequest, NotFound
from orchestrator.settings.sources import write_value
from orchestrator.wire.places import QUOTER, QUOTING, UNCONFIGURED, path_of

DEFAULT = QUOTER
ANOTHER = "another GGUF file: lore model use FILE, or lore serve --model FILE; builtin:quoter always works"
LATER_SHARD = re.compile(r"-(?!00001-)\d{5}-of-\d{5}\.gguf$")
BUILT = re.compile(rf"({'|'.join(name.removeprefix(PREFIX) for name in BUILTINS)})-[0-9a-f]{{12}}\.gguf$")


FileState = tuple[Path, int, int, int]  # with its inode, its bytes, and nanoseconds of the last write


def state_of(path: Path) -> FileState:
    """Raises OSError."""
    found = path.stat()
    return path, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class ModelFile:
    """`setting` is how it was named; `placement` where its chat template puts the blocks; `notice` what must be said
    wherever one of its answers appears. `states` of its files change when they are written to or replaced."""

    setting: str
    path: Path
    shape: ModelShape
    placement: Placement
    states: tuple[FileState, ...]
    notice: str = ""

    def changed(self) -> bool:
        """Whether its files are others than when they were read."""
        try:
            return tuple(state_of(path) for path, *_ in self.states) != self.states
        except OSError:
            return True


def find_model(setting: str, models: Path) -> ModelFile:
    """The model of a setting; an empty one is the built-in, which is built on first need. Raises InvalidRequest."""
    chosen = setting or DEFAULT
    path = _builtin(chosen, models) if is_builtin(chosen) else _local(chosen)
    try:
        gguf = read_gguf(path)
        if why := no_chat(gguf):
            raise InvalidRequest(f"{path} cannot be used as a model: {why}", ANOTHER)
        states = tuple(state_of(shard) for shard in gguf.paths)
        return ModelFile(chosen, path, shape_of(gguf), placement_of(gguf), states, _notice(setting, chosen))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}", ANOTHER) from error
    except GgufError as error:
        why = str(error).removeprefix(f"{path}: ")  # a part that is missing has a path of its own
        raise InvalidRequest(f"{path} cannot be used as a model: {why}", _hint(path, error)) from error
    except FootprintError as error:
        raise InvalidRequest(f"{path} cannot be used as a model: {error}", ANOTHER) from error


def built_in(*, embeds: bool) -> list[str]:
    """The names of those that embed, or of those that answer."""
    return sorted(name for name, model in BUILTINS.items() if model.embeds is embeds)


def _hint(path: Path, error: GgufError) -> str:
    if error.path != path and not error.path.exists():
        return f"put {error.path.name}, another part of the same model, beside it, or name another GGUF file"
    if "Permission denied" in error.what:
        return f"make it readable for the daemon's user: chmod a+r {error.path}"
    return ANOTHER


def _builtin(name: str, models: Path) -> Path:
    if name not in built_in(embeds=False):
        what = "embeds and does not answer" if name in BUILTINS else "does not exist"
        raise InvalidRequest(f"{name} {what}; built in to answer: {', '.join(built_in(embeds=False))}", ANOTHER)
    try:
        return ensure(name, models)
    except BuiltinError as error:
        raise InvalidRequest(str(error), f"free some room in {models}, or name a GGUF file with --model") from error


def _local(name: str) -> Path:
    path = path_of(name)
    try:
        if not path.exists():
            raise InvalidRequest(f"there is no model file {path}", ANOTHER)
        if not path.is_file():
            raise InvalidRequest(f"{path} is not a file", ANOTHER)
        return path.resolve()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}", ANOTHER) from error


def _notice(setting: str, chosen: str) -> str:
    if chosen != DEFAULT:
        return ""
    return QUOTING if setting else UNCONFIGURED


def placement_of(gguf: Gguf) -> Placement:
    return probe(ChatTemplate(gguf.text("tokenizer.chat_template"), piece(gguf, "bos"), piece(gguf, "eos"), False))


def piece(gguf: Gguf, which: str) -> str:
    """The text of a special token; "" where the file names none."""
    number = gguf.number(f"tokenizer.ggml.{which}_token_id")
    if number is None:
        return ""
    try:
        tokens = gguf.array("tokenizer.ggml.tokens")
    except (KeyError, GgufError):
        return ""
    return str(tokens[number]) if 0 <= number < len(tokens) else ""


# -- the models at hand: those of the models folder, and the built-in ones


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


def at_hand(folder: Path, first: AtHand | None) -> tuple[AtHand, ...]:
    """Each file once, `first` before the others. Files of later shards belong to their first."""
    seen: dict[Path, AtHand] = {}
    for one in (*filter(None, [first]), *builtins(folder), *files(folder)):
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


def chosen(known: Sequence[AtHand], name: str) -> AtHand | None:
    """By its name, its file's name or its path."""
    return next((one for one in known if name in (one.id, one.path.name, one.path.stem, str(one.path))), None)


def lying_at(path: str) -> AtHand | None:
    """A file by its full path, whatever it is; none where it cannot be reached, or no file can have the name."""
    is_file = os.path.isfile(path)  # noqa: PTH113 - that of pathlib raises
    return AtHand(path, Path(path)) if is_file and Path(path).is_absolute() else None


def header_of(model: AtHand) -> FileHeader:
    """Nothing yet of a built-in one that has not been made."""
    return FileHeader() if model.about else header(model.path)


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


def use_model(path: str, environ: Mapping[str, str], config: Path | None = None) -> dict[str, Any]:
    """Writes `model.path`; what was written, where, and which variable hides it. Raises LoreError."""
    file, changed = write_value("model", "path", path, environ, config)
    hidden = next((one for one in ("LORE_MODEL", "LORE_MODEL__PATH") if environ.get(one)), "")
    return {"path": path, "file": str(file), "changed": changed, "overridden": hidden}


def setting_of(name: str, folder: Path) -> str:
    """The setting that names this model. Raises NotFound for a name, InvalidRequest for a file that is none or missing."""
    if name in BUILTINS:
        if BUILTINS[name].embeds:
            raise InvalidRequest(f"{name} cannot be used as a model: it embeds and writes no text", ANOTHER)
        return name
    given = path_of(name)
    known = tuple(files(folder))
    found = next((one.path for one in known if name in (one.id, one.path.name)), None)
    is_path = "/" in name or given.suffix == ".gguf"  # one that is not there is refused as in every other place
    if found is None and not is_path and not os.path.lexists(given):
        names = [one.id for one in (*builtins(folder), *known)]
        raise NotFound(f"no model {name}", f"there are: {', '.join(names)}; or name a GGUF file")
    return str(find_model(str(found or given), folder).path)


@dataclass(frozen=True)
class Removal:
    """`paths` that would be removed, with the bytes they take."""

    id: str
    paths: tuple[Path, ...]
    bytes: int


def removal_of(name: str, folder: Path, used: Iterable[str]) -> Removal:
    """`used`: paths of models that run or are configured. Raises NotFound, Conflict, InvalidRequest for other files."""
    known = tuple(files(folder))
    named = [one for one in known if name in (one.id, one.path.name, str(one.path))]
    if len(named) > 1:
        raise InvalidRequest(
            f"{len(named)} models are named {name}", f"say which: {', '.join(str(one.path) for one in named)}"
        )
    if not named:
        names = ", ".join(one.id for one in known) or "none"
        if path_of(name).is_file() or name.startswith("builtin:"):
            raise InvalidRequest(
                f"{name} was not downloaded to {folder}", f"lore removes only what lies there: {names}"
            )
        raise NotFound(f"no downloaded model {name}", f"in {folder} there are: {names}")
    (found,) = named
    target = found.path.resolve()
    for path in used:
        if path_of(path).resolve() == target:
            raise Conflict(f"{found.path} is in use", "take another first: lore model use NAME")
    paths = tuple(one for one in shards(found.path) if one.exists() or one.is_symlink())
    return Removal(found.id, paths, sum(one.lstat().st_size for one in paths))


def remove(model: Removal, folder: Path) -> None:
    """Removes its files, and the folders that are empty then. A link is removed, not what it leads to. Raises OSError."""
    for path in model.paths:
        path.unlink()
    for parent in model.paths[0].parents:
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()
