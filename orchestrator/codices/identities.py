"""Identities as `lore identity` shows and changes them: the files, who is asked under each, and what a change costs.

A change is written whole or not at all, into a file of the configuration's `identities/` and nowhere else: a name is one
part of a path, and a link is not followed. What happens to floors afterwards is not decided here: the next look at the
files finds the new version (`floors`).
"""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from orchestrator.codices.floors import Floors
from orchestrator.codices.serving_identities import MOST_BYTES, IdentityFiles, ServingIdentities
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.engine.prefill_cost import prompt_s
from orchestrator.errors import InvalidRequest, LoreError, NotFound
from orchestrator.wire.identities import DefaultIdentity, FloorCost, IdentityChange, IdentityReport, IdentityRow

BEFORE = ".before"  # behind the name of a file: it is no identity
CountTokens = Callable[[Sequence[str]], Awaitable[list[int]]]

ABANDONED_S = 3600.0  # a part of this age has no writer
_NAME = re.compile(r"\w[\w.-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # what no Markdown holds: all but tab and the ends of lines


class Identities:
    """`count` gives the tokens of each text; `warm` begins to compute every codex's floor under the default identity. One
    event loop calls all of it; files are read and written in threads."""

    def __init__(
        self,
        folder: Path,
        files: IdentityFiles,
        serving: ServingIdentities,
        floors: Floors,
        count: CountTokens,
        warm: Callable[[], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._files = files
        self._warm = warm
        self._serving = serving
        self._floors = floors
        self._count = count

    async def rows(self) -> tuple[IdentityRow, ...]:
        """All of them by name, also those that cannot be read."""
        return tuple([await asyncio.to_thread(self._row, name) for name in self._files.names()])

    async def report(self, name: str) -> IdentityReport:
        """Raises NotFound, and InvalidRequest for a file that cannot be used."""
        view = await asyncio.to_thread(self._files.get, name)
        return await self._report(name, view.text)

    async def change(self, name: str, text: str, *, dry_run: bool, keep: bool = False) -> IdentityChange:
        """Writes the text, unless it is what stands there; with `dry_run` only says what that costs. `keep`: the text
        before is kept beside it. Raises InvalidRequest for a name, a text or a place that cannot be used."""
        path = place_of(self._folder, name)
        check(text)
        before = await asyncio.to_thread(self._before, name)
        changed = text != before
        was = None if before is None else await self.tokens(before)
        report = await self._report(name, text)
        if changed and not dry_run:
            if keep and before is not None:
                await asyncio.to_thread(write, path.with_name(f"{path.name}{BEFORE}"), before)
            await asyncio.to_thread(write, path, text)
        written = report.model_copy(update={"file": self._file(name)})
        return IdentityChange(identity=written, before=was, changed=changed, saved=changed and not dry_run)

    @property
    def default(self) -> str:
        """The name that is chosen, whether its file is there or not."""
        return self._files.chosen

    async def use(self, name: str, *, dry_run: bool) -> DefaultIdentity:
        """From now on questions that name none are asked under it; with `dry_run` only says what that costs. Raises
        NotFound, and InvalidRequest for a file that cannot be used."""
        view = await asyncio.to_thread(self._files.get, name)
        before, tokens = self._files.chosen, await self.tokens(view.text)
        cold = (
            () if name == before else tuple(one for one in self._floors.codices() if not self._serving.asked(one, name))
        )
        report = await self._report(name, view.text)
        cost = tuple([await self._cost(codex, tokens) for codex in cold])
        if name != before and not dry_run:
            self._files.chosen = name
            await self._warm()
        now_default = report.model_copy(update={"cost": cost, "default": name == self._files.default})
        return DefaultIdentity(identity=now_default, before=before, changed=name != before)

    def _before(self, name: str) -> str | None:
        """What it says now; None for a new one, and for a file that cannot be read: writing mends it."""
        try:
            return self._files.get(name).text
        except (NotFound, InvalidRequest):
            return None

    async def tokens(self, text: str) -> int | None:
        """None while no model runs: what an identity says is told without one."""
        if self._floors.client.state is not ChildState.READY:
            return None
        return (await self._count([text]))[0]

    def _row(self, name: str) -> IdentityRow:
        length, fault = None, ""
        try:
            length = len(self._files.get(name).text.encode())
        except LoreError as error:
            fault = error.message
        return IdentityRow(
            name=name,
            default=name == self._files.default,
            file=self._file(name),
            bytes=length,
            codices=self._codices(name),
            fault=fault,
        )

    async def _report(self, name: str, text: str) -> IdentityReport:
        tokens = await self.tokens(text)
        return IdentityReport(
            name=name,
            default=name == self._files.default,
            file=self._file(name),
            text=text,
            tokens=tokens,
            codices=self._codices(name),
            cost=tuple([await self._cost(codex, tokens) for codex in self._codices(name)]),
        )

    def _file(self, name: str) -> str | None:
        path = self._folder / f"{name}.md"
        return str(path) if os.path.lexists(path) else None

    def _codices(self, name: str) -> tuple[str, ...]:
        default = name == self._files.default
        return tuple(codex for codex in self._floors.codices() if default or self._serving.asked(codex, name))

    async def _cost(self, codex: str, tokens: int | None) -> FloorCost:
        """Of the codex's floor with an identity of so many tokens in the place of the default one's, which it stands on."""
        floor, now = self._floors.of(codex), await self.tokens(self._serving.newest(codex).text)
        if floor is None or tokens is None or now is None:
            return FloorCost(name=codex, tokens=None, seconds=None)
        total = max(tokens, floor.tokens - now + tokens)
        seconds = prompt_s(self._floors.client.snapshot.counters, 0, total)
        return FloorCost(name=codex, tokens=total, seconds=None if seconds is None else round(seconds, 1))


# -- what may be written, and how


def place_of(folder: Path, name: str) -> Path:
    """The file of a name. Raises InvalidRequest for what is no name, and for a link: what it leads to is not ours."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is no name of an identity", "letters, digits, '-', '_' and '.', up to 64, no other sign"
        )
    path = folder / f"{name}.md"
    if path.is_symlink():
        raise InvalidRequest(f"{path} is a link and is not written to", "edit what it leads to, or remove the link")
    if os.path.lexists(path) and not path.is_file():
        raise InvalidRequest(f"{path} is no file", "remove it, or take another name")
    return path


def check(text: str) -> None:
    """Raises InvalidRequest for what no identity can say."""
    if not text.strip():
        raise InvalidRequest("an identity cannot be empty", "say in a sentence how questions are to be answered")
    if found := _CONTROL.search(text):
        raise InvalidRequest(
            f"the text holds the control character {found.group()!r}", "an identity is Markdown in UTF-8"
        )
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the text cannot be written as UTF-8: {error}", "an identity is Markdown in UTF-8"
        ) from error
    if length > MOST_BYTES:
        raise InvalidRequest(
            f"the identity has {length:,} bytes, and at most {MOST_BYTES:,} are taken", "shorten the identity"
        )


def write(path: Path, text: str) -> None:
    """Whole or not at all: a kill leaves the file as it was, and beside it a part that is no identity. Raises
    InvalidRequest where the folder cannot be written."""
    part: Path | None = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        sweep(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".part", dir=path.parent)  # of mode 0600
        part = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        hint = "check the folder and its owner; a service that was installed before has to be installed again"
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}", hint) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Removes parts that a write left when it was killed: whole writes take milliseconds. Raises OSError."""
    for part in folder.glob(".*.part"):
        if time.time() - part.stat().st_mtime > ABANDONED_S:
            part.unlink(missing_ok=True)
