"""`lore model drop`: a downloaded model's files go, all its parts; nothing outside the models folder, nothing in use."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Conflict, InvalidRequest, NotFound
from orchestrator.model.at_hand import files, shards
from orchestrator.wire.places import path_of


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
