"""The default identity as a setting: which identities there are without a daemon, and the setting that names one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import NotFound, instead
from orchestrator.settings.sources import write_value
from orchestrator.wire.places import SHIPPED_IDENTITY

VARIABLE = "LORE_IDENTITY__DEFAULT"


def refuse_unknown(name: str, folder: Path) -> None:
    """Raises NotFound with the nearest names."""
    known = {SHIPPED_IDENTITY, *(path.stem for path in folder.glob("*.md"))}
    if name not in known:
        raise NotFound(f"no identity named {name!r}", f"{instead(name, sorted(known), '', '')}; they lie in {folder}")


def use_identity(name: str, environ: Mapping[str, str], config: Path | None = None) -> dict[str, Any]:
    """Writes `identity.default`; what was written, where, and which variable hides it. Raises SettingsError."""
    file, changed = write_value("identity", "default", name, environ, config)
    hidden = VARIABLE if environ.get(VARIABLE) else ""
    return {"default": name, "file": str(file), "changed": changed, "overridden": hidden}
