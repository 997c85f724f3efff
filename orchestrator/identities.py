"""The personas: Markdown files in the configuration's `identities/`, and the one that ships.

A change of a file, of the shipped text or of the tools makes a new version and with it a new floor; equal texts with
equal tools are equal versions. Which version is asked under now is decided in `shelf.serving`.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from formatters.context import IdentityView, ToolView
from orchestrator.errors import InvalidRequest, NotFound, instead

DEFAULT = "lorekeep"
MOST_BYTES = 256 * 1024
SHIPPED = (
    "You answer questions about the codebase that follows. Rest every statement on what stands there and cite it as "
    "path:line. When the text does not say, say so.\n"
)

Tools = tuple[ToolView, ...]
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class _Read:
    """What a file said when it had this stamp, and the newest version made of it."""

    stamp: Stamp | None
    view: IdentityView


class Identities:
    """Looks at the files anew at each call, for a person edits them while the daemon runs; reads those that changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, _Read] = {}

    def names(self) -> tuple[str, ...]:
        found = {path.stem for path in self._folder.glob("*.md")} if self._folder.is_dir() else set()
        return tuple(sorted(found | {DEFAULT}))

    def get(self, name: str | None = None, tools: Tools = ()) -> IdentityView:
        """The newest version. Raises NotFound with those there are, InvalidRequest for a file that cannot be used."""
        wanted = name or DEFAULT
        path = self._folder / f"{wanted}.md"
        stamp = self._stamp(wanted, path)
        known = self._read.get(wanted)
        if known is None or known.stamp != stamp or known.view.tools != tools:
            known = _Read(stamp, identity_of(wanted, SHIPPED if stamp is None else text_of(wanted, path), tools))
            self._read[wanted] = known
        return known.view

    def _stamp(self, name: str, path: Path) -> Stamp | None:
        """None for the one that ships, where no file takes its place."""
        is_plain = "/" not in name and "\0" not in name
        if is_plain and os.path.lexists(path):
            return stamp_of(name, path)
        if name == DEFAULT:
            return None
        known = instead(name, self.names(), "", f"ls {self._folder}")
        raise NotFound(f"no identity named {name!r}", f"{known}; they lie in {self._folder}")


def identity_of(name: str, text: str, tools: Tools) -> IdentityView:
    """A version of it, named by what it says: 12 hex digits of a digest over text and tools."""
    material = repr((text, [tool.model_dump_json() for tool in tools]))
    version = hashlib.sha256(material.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return IdentityView(name=name, version=version, text=text, tools=tools)


def stamp_of(name: str, path: Path) -> Stamp:
    """Raises InvalidRequest."""
    try:
        found = path.stat()
    except OSError as error:
        raise unusable(name, path, error) from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def text_of(name: str, path: Path) -> str:
    """Raises InvalidRequest."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidRequest(f"{path} is larger than {MOST_BYTES // 1024} KiB", "shorten the identity")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(name, path, error) from error


def unusable(name: str, path: Path, error: Exception) -> InvalidRequest:
    return InvalidRequest(f"identity {name!r} cannot be read: {error}", f"mend or remove {path}")
