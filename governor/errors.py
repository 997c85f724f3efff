"""The errors of the governor. Every message names the fault, the place, and what to do.

A failing sensor is not an error: it is an unknown reading and an entry in the report.
"""

from pathlib import Path


class GovernorError(Exception):
    """Base of everything that the governor refuses."""


class GgufError(GovernorError):
    """The file is not a usable GGUF. `offset`: the byte of the fault; None when the file could not be opened."""

    def __init__(self, path: Path, offset: int | None, what: str) -> None:
        where = "" if offset is None else f" at byte {offset:,}"
        super().__init__(f"{path}: {what}{where}")
        self.path = path
        self.offset = offset
        self.what = what


class FootprintError(GovernorError):
    """The cost of a model cannot be computed: its architecture is unknown, or the KV type does not fit its heads."""


class SettingError(GovernorError):
    """A setting has a value that cannot be used."""
