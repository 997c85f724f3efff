"""Which model file to load, and what its header says: found, checked and named before llama.cpp sees it.

llama.cpp may abort on a damaged file, so damage is told here, by the header and the sizes it promises.
"""

from dataclasses import dataclass
from pathlib import Path

from governor.errors import FootprintError, GgufError
from governor.gguf import read_gguf
from governor.shape import ModelShape, shape_of
from orchestrator.engine.builtin.files import BuiltinError, ensure, is_builtin
from orchestrator.errors import InvalidRequest

DEFAULT = "builtin:quoter"
QUOTING = "the quoting self-test model: it only continues text that stands in its context, it is no assistant"


@dataclass(frozen=True)
class ModelFile:
    """`setting` is how it was named; `notice` what must be said wherever one of its answers appears."""

    setting: str
    path: Path
    shape: ModelShape
    notice: str = ""


def find_model(setting: str, models: Path) -> ModelFile:
    """The model of a setting; an empty one is the built-in, which is built on first need. Raises InvalidRequest."""
    chosen = setting or DEFAULT
    path = _builtin(chosen, models) if is_builtin(chosen) else _local(chosen)
    try:
        shape = shape_of(read_gguf(path))
    except GgufError as error:
        raise InvalidRequest(f"{path} cannot be used as a model: {error}", _ANOTHER) from error
    except FootprintError as error:
        raise InvalidRequest(f"{path}: {error}", _ANOTHER) from error
    return ModelFile(chosen, path, shape, _notice(setting, chosen))


_ANOTHER = "name another GGUF file with --model, LORE_MODEL or model.path; builtin:quoter always works"


def _builtin(name: str, models: Path) -> Path:
    try:
        return ensure(name, models)
    except BuiltinError as error:
        raise InvalidRequest(str(error), f"free some room in {models}, or name a GGUF file with --model") from error


def _local(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.exists():
        raise InvalidRequest(f"there is no model file {path}", _ANOTHER)
    if not path.is_file():
        raise InvalidRequest(f"{path} is not a file", _ANOTHER)
    return path.resolve()


def _notice(setting: str, chosen: str) -> str:
    if chosen != DEFAULT:
        return ""
    return QUOTING if setting else f"no model is configured, so this is {QUOTING}"
