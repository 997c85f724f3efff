"""What the governor refuses, few and named. Every message says what is wrong, where, and what to do.

A sensor that fails is no error: it is an unknown reading and an entry in the report.
"""

from pathlib import Path


class GovernorError(Exception):
    """Base of everything that the governor refuses."""


class GgufError(GovernorError):
    """The file is no usable GGUF. `offset`: the byte where it was found out; None when the file could not be opened."""

    def __init__(self, path: Path, offset: int | None, what: str) -> None:
        where = "" if offset is None else f" at byte {offset:,}"
        super().__init__(f"{path}: {what}{where}")
        self.path = path
        self.offset = offset
        self.what = what


class FootprintError(GovernorError):
    """What a model costs cannot be said: its architecture is not known, or the KV type does not suit its heads."""


class SettingError(GovernorError):
    """A setting has a value that cannot be used."""
