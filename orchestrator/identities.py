"""The personas: Markdown files in the configuration's `identities/`, and the one that ships.

A change of a file makes a new version and with it a new floor; equal texts are equal versions.
"""

import hashlib
from pathlib import Path

from formatters.context import IdentityView, ToolView
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.nearest import instead

DEFAULT = "lorekeep"
MOST_BYTES = 256 * 1024
SHIPPED = (
    "You answer questions about the codebase that follows. Rest every statement on what stands there and cite it as "
    "path:line. When the text does not say, say so.\n"
)


class Identities:
    """Reads the folder anew at each call: a person edits these files while the daemon runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> tuple[str, ...]:
        found = {path.stem for path in self._folder.glob("*.md")} if self._folder.is_dir() else set()
        return tuple(sorted(found | {DEFAULT}))

    def get(self, name: str | None = None, tools: tuple[ToolView, ...] = ()) -> IdentityView:
        """Raises NotFound with those there are, InvalidRequest for a file that cannot be used."""
        wanted = name or DEFAULT
        if wanted not in self.names():
            known = instead(wanted, self.names(), "", f"ls {self._folder}")
            raise NotFound(f"no identity named {wanted!r}", f"{known}; they lie in {self._folder}")
        text = self._read(wanted)
        material = repr((text, [tool.model_dump_json() for tool in tools]))
        version = hashlib.sha256(material.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return IdentityView(name=wanted, version=version, text=text, tools=tools)

    def _read(self, name: str) -> str:
        path = self._folder / f"{name}.md"
        if name == DEFAULT and not path.exists():
            return SHIPPED
        try:
            if path.stat().st_size > MOST_BYTES:
                raise InvalidRequest(f"{path} is larger than {MOST_BYTES // 1024} KiB", "shorten the identity")
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"identity {name!r} cannot be read: {error}", f"mend or remove {path}") from error
