"""Which version of an identity a codex is asked under.

A version is named by its text and its tools. A change of its file, of the shipped text or of the tools makes a new version,
and with it a new floor: the resident one answers until the new one is computed (`transitions`). The text of the resident
version outlasts a restart, so that its floor can be restored.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from formatters.context import CodexView, IdentityView, ToolView
from orchestrator.codices.state import FloorKey
from orchestrator.codices.state_store import CodexStateStore, ResidentIdentity
from orchestrator.errors import InvalidRequest, LoreError, NotFound, instead
from orchestrator.wire.answers import IdentityState
from orchestrator.wire.places import SHIPPED_IDENTITY

MOST_BYTES = 256 * 1024
DEFAULT_IDENTITY_TEXT = (
    "You answer questions about the codebase that follows. Rest every statement on what stands there and cite it as "
    "path:line. When the text does not say, say so.\n"
)

Tools = tuple[ToolView, ...]
Stamp = tuple[int, int, int]


class FloorModel(NamedTuple):
    """What a floor depends on: the fingerprint of the model, the tools that it can call, and a call as its chat template
    writes one."""

    fingerprint: str
    tools: Tools = ()
    calling: str = ""


# -- identities: Markdown files in the configuration's `identities/`, and the one that ships


@dataclass(frozen=True)
class _Read:
    """What a file said when it had this stamp, and the newest version made of it."""

    stamp: Stamp | None
    view: IdentityView


class IdentityFiles:
    """Looks at the files anew at each call, for a person edits them while the daemon runs; reads those that changed.

    `chosen` is the identity of questions that name none. While its file is not there, the one that ships is the `default`.
    """

    def __init__(self, folder: Path, chosen: str = "") -> None:
        self.chosen = chosen or SHIPPED_IDENTITY
        self._folder = folder
        self._read: dict[str, _Read] = {}

    def names(self) -> tuple[str, ...]:
        found = {path.stem for path in self._folder.glob("*.md")} if self._folder.is_dir() else set()
        return tuple(sorted(found | {SHIPPED_IDENTITY}))

    @property
    def default(self) -> str:
        return self.chosen if self._is_there(self.chosen) else SHIPPED_IDENTITY

    def get(self, name: str | None = None, tools: Tools = (), calling: str = "") -> IdentityView:
        """The newest version. Raises NotFound with those there are, InvalidRequest for a file that cannot be used."""
        wanted = name or self.default
        path = self._folder / f"{wanted}.md"
        try:
            stamp = self._stamp(wanted, path)
            known = self._read.get(wanted)
            if known is None or known.stamp != stamp or (known.view.tools, known.view.calling) != (tools, calling):
                text = DEFAULT_IDENTITY_TEXT if stamp is None else _text_of(path)
                self._read[wanted] = known = _Read(stamp, identity_of(wanted, text, tools, calling))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"identity {wanted!r} cannot be read: {error}", f"mend or remove {path}") from error
        return known.view

    def _stamp(self, name: str, path: Path) -> Stamp | None:
        """None for the one that ships, where no file takes its place. Raises NotFound, OSError."""
        if self._is_there(name):
            found = path.stat()
            return found.st_ino, found.st_size, found.st_mtime_ns
        if name == SHIPPED_IDENTITY:
            return None
        known = instead(name, self.names(), "", f"ls {self._folder}")
        raise NotFound(f"no identity named {name!r}", f"{known}; they lie in {self._folder}")

    def _is_there(self, name: str) -> bool:
        return "/" not in name and "\0" not in name and os.path.lexists(f"{self._folder}/{name}.md")


def _text_of(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise InvalidRequest(f"{path} is larger than {MOST_BYTES // 1024} KiB", "shorten the identity")
    return path.read_text("utf-8")


def identity_of(name: str, text: str, tools: Tools = (), calling: str = "") -> IdentityView:
    """A version of it, named by what it says: 12 hex digits of a digest over text and tools."""
    material = repr((text, [*(tool.model_dump_json() for tool in tools), *filter(None, [calling])]))
    version = hashlib.sha256(material.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return IdentityView(name=name, version=version, text=text, tools=tools, calling=calling)


# -- which version a codex is asked under


@dataclass(frozen=True)
class ServingIdentity:
    """`view` answers now. `coming`: the newest version, while its floor is not resident; `fault`: why the newest cannot be
    read; `absent`: the default identity that it answers for, whose file is not there."""

    view: IdentityView
    coming: IdentityView | None = None
    fault: str = ""
    absent: str = ""

    @property
    def notice(self) -> str:
        """What whoever reads an answer should know of it."""
        if self.fault:
            return f"{self.fault}; version {self.view.version} of it, which could be read last, answers"
        if self.absent:
            return self.stands_in
        if self.coming is not None:
            return (
                f"identity {self.view.name} has changed: version {self.view.version} answers until the prefix of "
                f"{self.coming.version} is computed"
            )
        return ""

    def state(self) -> IdentityState:
        coming = self.coming.version if self.coming else None
        fault = self.fault or (self.stands_in if self.absent else "")
        return IdentityState(name=self.view.name, version=self.view.version, preparing=coming, fault=fault)

    @property
    def stands_in(self) -> str:
        """In words, that another identity answers."""
        hint = "lore identity use NAME takes another"
        return f"the default identity {self.absent} is not there: {self.view.name} answers; {hint}"


class ServingIdentities:
    """`model` gives the fingerprint of the loaded model, which floors depend on, and the tools that identities name. It
    raises NotReady before that is loaded, and so does what needs it."""

    def __init__(self, identities: IdentityFiles, store: CodexStateStore, model: Callable[[], FloorModel]) -> None:
        self._identities = identities
        self._store = store
        self._model = model
        # By codex and identity; the bare identity's codex is ''.
        self._resident: dict[tuple[str, str], ResidentIdentity | None] = {}

    def now(self, codex: CodexView | None, name: str | None = None) -> ServingIdentity:
        """Table, first match wins:

        1  the newest version cannot be read         what was resident last; raises InvalidRequest without
        2  the bare identity, or nothing resident    the newest: there is nothing to wait for
        3  the newest itself was resident last       the newest
        4  that was another generation or model      the newest: a floor must be computed in any case
        5  otherwise                                 what was resident last, and the newest is coming

        Where the file of the default identity is not there, the one that ships takes its place. Raises NotFound.
        """
        wanted = name or self.default
        if name is None and wanted != self._identities.chosen:
            return replace(self.now(codex, wanted), absent=self._identities.chosen)
        last = self._last(codex.name if codex else "", wanted)
        try:
            newest = self._newest(wanted)
        except InvalidRequest as fault:
            if last is None:
                raise
            return ServingIdentity(last.view, fault=fault.message)
        if codex is None or last is None or last.view.version == newest.version or last.base != self._base(codex):
            return ServingIdentity(newest)
        return ServingIdentity(last.view, newest)

    @property
    def default(self) -> str:
        """The identity of questions that name none."""
        return self._identities.default

    def newest(self, codex: str) -> IdentityView:
        """The default identity, whatever is resident; where it cannot be read, what was resident last. Raises
        InvalidRequest."""
        try:
            return self._newest(self.default)
        except InvalidRequest:
            last = self._last(codex, self.default)
            if last is None:
                raise
            return last.view

    def coming(self, codex: CodexView) -> IdentityView | None:
        """A version that waits for its floor: of the default identity before those that were asked by name."""
        default = self.default
        named = [identity for of_codex, identity in self._resident if of_codex == codex.name and identity != default]
        for name in (default, *named):
            try:
                served = self.now(codex, name)
            except LoreError:
                continue  # its file is gone, or cannot be read: whoever asks for it gets the fault
            if served.coming is not None:
                return served.coming
        return None

    def now_resident(self, key: FloorKey) -> None:
        """This floor is resident: its version answers until the next one is."""
        resident = ResidentIdentity(self._base(key), key.identity)
        if self._last(key.codex, key.identity.name) != resident:
            self._resident[key.codex, key.identity.name] = resident
            if key.codex:
                self._store.now_resident(key.codex, resident)

    def asked(self, codex: str, name: str) -> bool:
        """Whether the codex has been asked under this identity."""
        return self._last(codex, name) is not None

    def forget(self, codex: str) -> None:
        self._resident = {key: resident for key, resident in self._resident.items() if key[0] != codex}

    def _newest(self, name: str) -> IdentityView:
        model = self._model()
        return self._identities.get(name, model.tools, model.calling)

    def _last(self, codex: str, name: str) -> ResidentIdentity | None:
        key = codex, name
        if key not in self._resident:
            self._resident[key] = self._store.last_resident(*key) if codex else None
        return self._resident[key]

    def _base(self, codex: CodexView | FloorKey) -> str:
        return f"{codex.generation} {codex.tier} {self._model().fingerprint}"
