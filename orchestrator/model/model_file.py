"""Which model file to load, and what its header says: found, checked and named before llama.cpp sees it.

llama.cpp may abort on a damaged file, so damage is found here, by the header and the sizes it promises.
"""

from dataclasses import dataclass
from pathlib import Path

from formatters.probe import Placement, probe
from formatters.template import ChatTemplate
from governor.gguf import Gguf, GgufError, read_gguf
from governor.shape import FootprintError, ModelShape, no_chat, shape_of
from orchestrator.engine.builtin.files import BUILTINS, BuiltinError, ensure, is_builtin
from orchestrator.errors import InvalidRequest
from orchestrator.wire.places import path_of

DEFAULT = "builtin:quoter"
ANOTHER = "name another GGUF file with --model, LORE_MODEL or model.path; builtin:quoter always works"
QUOTING = "the quoting self-test model: it only continues text that stands in its context, it is no assistant"


@dataclass(frozen=True)
class FileState:
    path: Path
    inode: int
    size: int
    written_ns: int


def state_of(path: Path) -> FileState:
    """Raises OSError."""
    found = path.stat()
    return FileState(path, found.st_ino, found.st_size, found.st_mtime_ns)


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
            return tuple(state_of(one.path) for one in self.states) != self.states
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
    return QUOTING if setting else f"no model is configured, so this is {QUOTING}"


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
