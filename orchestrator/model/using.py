"""`lore model use`: a model's name becomes a setting in the user's configuration file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.engine.builtin.files import BUILTINS
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.model.at_hand import builtins, files
from orchestrator.model.model_file import ANOTHER, find_model
from orchestrator.settings.edit import parsed, with_value
from orchestrator.settings.errors import SettingsError
from orchestrator.settings.paths import FILE_MODE, private_folder
from orchestrator.settings.sources import named_file, user_file
from orchestrator.wire.places import path_of


def use_model(path: str, environ: Mapping[str, str], config: Path | None = None) -> dict[str, Any]:
    """Writes `model.path`; what was written, where, and which variable hides it. Raises LoreError."""
    file = named_file(environ, config) or user_file(environ)
    try:
        before = file.read_text("utf-8") if file.exists() else ""
        after = with_value(before, "model", "path", path)
        changed = parsed(before).get("model", {}).get("path") != path
        if changed:
            write(file, after)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{file} cannot be written: {error}", "check the file, its folder and their owner"
        ) from error
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


def write(file: Path, text: str) -> None:
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
