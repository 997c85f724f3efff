"""`.lore.toml` at a codex's root: a codebase's own settings for its load.

    tier = "skeleton+hot"            # instead of the coverage that would be chosen
    include = ["*.py"]               # as --include and --exclude, and added to them
    exclude = ["tests/data/"]
    overhead = 0.25                  # shares of the window …
    map_window = 8000                # … and sizes in tokens, as the program's own settings name them

It comes with the code, so it is not trusted: at most 64 KiB, no link, numbers within ranges, unknown keys refused. It sets
only which files are loaded and how much of them; it never reads or runs anything. The caller interprets its numbers.
"""

import difflib
import errno
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codex.errors import SourceError

LORE_FILE = ".lore.toml"
_MOST_BYTES = 64 * 1024
_GLOBS_AT_MOST = 200
_SHARES = ("overhead", "window_share", "map_share", "step_up_share", "rebase_share")
_SIZES = ("map_window",)
_KEYS = ("tier", "include", "exclude", *_SHARES, *_SIZES)
_LARGEST = 1 << 31
# A key `a.a.a…`: Python's reader takes the square of its parts, a second and a half for 64 KiB. We have none with a dot.
_DEEP = re.compile(rb"(?<![\w\"'-])(?:[\w\"'-]+[ \t]*\.[ \t]*){64}")


@dataclass(frozen=True)
class LoreFile:
    """The file's values; a key that it lacks is None, empty, or not in `numbers` (shares and sizes by key)."""

    tier: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)


def read_lore_file(root: Path) -> LoreFile:
    """The file at this folder; an empty one where there is none. Raises SourceError."""
    path = root / LORE_FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return LoreFile()
    except OSError as error:
        what_to_do = "; make it a plain file or remove it" if error.errno in (errno.ELOOP, errno.ENXIO) else ""
        raise SourceError(f"{path} cannot be read ({error.strerror}){what_to_do}") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise SourceError(f"{path} is not a plain file; make it one or remove it")
        return parse_lore_file(file.read(_MOST_BYTES + 1), str(path))


def parse_lore_file(raw: bytes, where: str) -> LoreFile:
    """The values in these bytes. Raises SourceError that names the key, and the nearest one for a misspelt one."""
    if len(raw) > _MOST_BYTES:
        raise SourceError(f"{where} is larger than {_MOST_BYTES // 1024} KiB; it takes a few lines")
    if _DEEP.search(raw):
        raise SourceError(f"{where} has a key of more than 64 parts; {_known()}")
    try:
        given = tomllib.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise SourceError(f"{where} is not TOML ({error}); correct it or remove it") from error
    for key in given:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            raise SourceError(f"{where}: unknown key {key!r}; {f'did you mean {near[0]!r}?' if near else _known()}")
    return LoreFile(
        tier=_word(given, "tier", where),
        include=_globs(given, "include", where),
        exclude=_globs(given, "exclude", where),
        numbers={**_numbers(given, _SHARES, 1.0, where), **_numbers(given, _SIZES, _LARGEST, where)},
    )


def _word(given: Mapping[str, Any], key: str, where: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise SourceError(f"{where}: {key} must be a word, not {value!r}; write it in quotes")
    return value


def _globs(given: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = given.get(key, [])
    if not isinstance(value, list) or len(value) > _GLOBS_AT_MOST or not all(isinstance(one, str) for one in value):
        raise SourceError(f"{where}: {key} must be a list of at most {_GLOBS_AT_MOST} globs; write them in quotes")
    return tuple(value)


def _numbers(given: Mapping[str, Any], keys: tuple[str, ...], most: float, where: str) -> dict[str, float]:
    found = {key: given[key] for key in keys if key in given}
    for key, value in found.items():
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not 0 <= value <= most or (most > 1 and value != int(value)):
            kind = "a share from 0 to 1" if most == 1.0 else f"a whole number of tokens up to {most:,}"
            raise SourceError(f"{where}: {key} must be {kind}, not {value!r}; correct it")
    return found


def _known() -> str:
    return f"the keys are {', '.join(_KEYS)}"
