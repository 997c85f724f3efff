"""Places of a codex, `path:line`, as links that a terminal opens (OSC 8): file URLs, of files that are there.

A link has no line: GLib, which opens those of most terminals, refuses file URLs with a fragment.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.terminal import can_link, is_terminal

# Not behind a letter, a dot or a colon: neither an address nor a time of day is a place.
PLACE = re.compile(r"(?<![\w/.~:-])((?:[\w.@+-]+/)*[\w.@+-]*\w):(\d+)(?:-\d+)?(?![\w:])")


class PlacesOfAnswer:
    """The places of one answer. The daemon is asked for the folders when the first place is met: most answers have none.

    `codex`: its name, as the question or the daemon's progress names it; None: the one that holds the working directory.
    """

    def __init__(self, socket: str | None, codex: str | None, cwd: str) -> None:
        self.codex = codex
        self._socket = socket
        self._cwd = cwd
        self._roots: Sequence[Path] | None = None

    def __call__(self, path: str) -> str | None:
        if self._roots is None:
            self._roots = []
            with suppress(Failure):  # an answer without links is one
                listed = Daemon(self._socket).call("GET", "/v1/codices")["codices"]
                self._roots = roots_of(meant(listed, self.codex, self._cwd))
        return url(path, self._roots)


def meant(codices: Sequence[Mapping[str, Any]], name: str | None, cwd: str) -> Mapping[str, Any] | None:
    """The codex of this name, else the deepest that holds the working directory, else the only one."""
    if name is not None:
        return next((one for one in codices if one["name"] == name), None)
    holding = [one for one in codices if any(Path(cwd).is_relative_to(root) for root in roots_of(one))]
    if holding:
        return max(holding, key=lambda one: len(str(one.get("root", ""))))
    return codices[0] if len(codices) == 1 else None


def roots_of(codex: Mapping[str, Any] | None) -> list[Path]:
    if not codex:
        return []
    return [Path(root) for root in codex.get("roots") or [codex.get("root") or ""] if str(root).startswith("/")]


def url(path: str, roots: Sequence[Path]) -> str | None:
    """Of a file in one of the folders; None where there is none, or a link leads out of it."""
    for root in roots:
        with suppress(OSError, ValueError):
            file = (root / path).resolve()
            if file.is_file() and file.is_relative_to(root.resolve()):
                return file.as_uri()
    return None


def with_links(codex: Mapping[str, Any] | None) -> Callable[[str], str] | None:
    """What makes links of the places in a line for stderr; None where it cannot show any."""
    roots = roots_of(codex)
    if not roots or not is_terminal(sys.stderr) or not can_link(os.environ):
        return None
    look = cache(lambda path: url(path, roots))

    def linked(found: "re.Match[str]") -> str:
        address = look(found[1])
        return f"\x1b]8;;{address}\x1b\\{found[0]}\x1b]8;;\x1b\\" if address else found[0]

    return lambda line: PLACE.sub(linked, line)
