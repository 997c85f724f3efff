"""Identities: Markdown files in the configuration's `identities/` and the one that ships, and which version a codex serves.

A version is named by what it says and the tools that it names. A change of a file, of the shipped text or of the tools
makes a new version, and with it a new floor: the resident one answers until the new one is computed, by the same steps as
for changed files (`transitions`). The text of what was resident outlasts a restart, so that its floor can be restored.
Knows no engine: it is told which floors are resident.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codex.errors import CodexError
from formatters.context import CodexView, IdentityView, ToolView
from orchestrator.codices.state import FloorKey
from orchestrator.codices.state_store import CodexStateStore, ResidentIdentity
from orchestrator.errors import InvalidRequest, LoreError, NotFound, instead
from orchestrator.wire.lore import IdentityState

log = logging.getLogger("lorekeep.codices")

DEFAULT = "lorekeep"
MOST_BYTES = 256 * 1024
SHIPPED = (
    "You answer questions about the codebase that follows. Rest every statement on what stands there and cite it as "
    "path:line. When the text does not say, say so.\n"
)

Tools = tuple[ToolView, ...]
Stamp = tuple[int, int, int]
LoadedModel = tuple[str, Tools]  # its fingerprint and the tools that it can call


@dataclass(frozen=True)
class _Read:
    """What a file said when it had this stamp, and the newest version made of it."""

    stamp: Stamp | None
    view: IdentityView


class IdentityFiles:
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


# -- which one a codex serves


@dataclass(frozen=True)
class ServingIdentity:
    """`view` answers now. `coming`: the newest version, while its floor does not stand; `fault`: why the newest cannot be
    read. `doubted`: it stood in an earlier run, and nobody has looked whether that was kept."""

    view: IdentityView
    coming: IdentityView | None = None
    fault: str = ""
    doubted: bool = False

    @property
    def notice(self) -> str:
        """What whoever reads an answer should know of it."""
        if self.fault:
            return f"{self.fault}; version {self.view.version} of it, which could be read last, answers"
        if self.coming is not None:
            return (
                f"identity {self.view.name} has changed: version {self.view.version} answers until the prefix of "
                f"{self.coming.version} is computed"
            )
        return ""

    def state(self) -> IdentityState:
        coming = self.coming.version if self.coming else None
        return IdentityState(name=self.view.name, version=self.view.version, preparing=coming, fault=self.fault)


class ServingIdentities:
    """`model` gives the fingerprint of the loaded model, which floors depend on, and the tools that identities name. It
    raises NotReady before that is loaded, and so does what needs it."""

    def __init__(self, identities: IdentityFiles, ledger: CodexStateStore, model: Callable[[], LoadedModel]) -> None:
        self._identities = identities
        self._ledger = ledger
        self._model = model
        self._stood: dict[
            tuple[str, str], ResidentIdentity | None
        ] = {}  # by codex and identity; the bare identity's codex is ''
        self._sure: set[tuple[str, str]] = set()  # stood in this run

    # -- what answers

    def now(self, codex: CodexView | None, name: str | None = None) -> ServingIdentity:
        """Table, first match wins:

        1  the newest version cannot be read         what was resident last; raises InvalidRequest without
        2  the bare identity, or nothing resident    the newest: there is nothing to wait for
        3  the newest itself was resident last       the newest
        4  that was another generation or model      the newest: a floor must be computed in any case
        5  otherwise                                 what was resident last, and the newest is coming

        Raises NotFound.
        """
        wanted = name or DEFAULT
        key = codex.name if codex else "", wanted
        stood = self._last(*key)
        try:
            newest = self._identities.get(wanted, self._model()[1])
        except InvalidRequest as fault:
            if stood is None:
                raise
            return ServingIdentity(stood.view, fault=fault.message)
        if codex is None or stood is None or stood.view.version == newest.version or stood.base != self._base(codex):
            return ServingIdentity(newest)
        return ServingIdentity(stood.view, newest, doubted=key not in self._sure)

    def newest(self, codex: str) -> IdentityView:
        """The default identity, whatever stands; where it cannot be read, what stood last. Raises InvalidRequest."""
        try:
            return self._identities.get(DEFAULT, self._model()[1])
        except InvalidRequest:
            stood = self._last(codex, DEFAULT)
            if stood is None:
                raise
            return stood.view

    def coming(self, codex: CodexView) -> IdentityView | None:
        """A version that waits for its floor: of the default identity before those that were asked by name."""
        named = [identity for of_codex, identity in self._stood if of_codex == codex.name and identity != DEFAULT]
        for name in (DEFAULT, *named):
            try:
                served = self.now(codex, name)
            except LoreError:
                continue  # its file is gone, or cannot be read: whoever asks for it is told
            if served.coming is not None:
                return served.coming
        return None

    # -- what stands

    def stood(self, place: FloorKey) -> None:
        """A floor stands here: from now on this version answers, until the next one stands."""
        key = place.codex, place.identity.name
        stood = ResidentIdentity(self._base_of(place.generation, place.tier), place.identity)
        self._sure.add(key)
        if self._last(*key) != stood:
            self._stood[key] = stood
            if place.codex:
                self._ledger.stood(place.codex, stood)

    def lost(self, codex: str, name: str) -> None:
        """Its checkpoints are gone: nothing is won by the old version."""
        self._stood[codex, name] = None

    def confirmed(self, codex: str, name: str) -> None:
        """What stood in an earlier run stands again."""
        self._sure.add((codex, name))

    def forget(self, codex: str) -> None:
        for key in [key for key in self._stood if key[0] == codex]:
            del self._stood[key]
            self._sure.discard(key)

    # -- inside

    def _last(self, codex: str, name: str) -> ResidentIdentity | None:
        key = codex, name
        if key not in self._stood:
            self._stood[key] = self._kept(*key) if codex else None
        return self._stood[key]

    def _kept(self, codex: str, name: str) -> ResidentIdentity | None:
        try:
            return self._ledger.last_stood(codex, name)
        except CodexError as fault:
            log.warning("which identity the floor of %s was made of cannot be read: %s", codex, fault)
            return None

    def _base(self, codex: CodexView) -> str:
        return self._base_of(codex.generation, codex.tier)

    def _base_of(self, generation: int, tier: str) -> str:
        return f"{generation} {tier} {self._model()[0]}"
