"""Names of codices: what may be one, and which one to propose."""

import re

from codex.errors import BadName

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = frozenset({"none"})  # `-c none` asks the bare model


def insist_on_name(name: str) -> str:
    """The name itself. Raises BadName."""
    if _NAME.fullmatch(name) is None or name in _RESERVED:
        raise BadName(
            f"{name!r} cannot name a codex: letters, digits, dot, dash and underscore, at most 64, the first one a "
            f"letter or digit, and not {', '.join(sorted(_RESERVED))}; try {name_from(name)!r}"
        )
    return name


def name_from(text: str) -> str:
    """A usable name near to any text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "codex"
    return f"{name}-1" if name in _RESERVED else name


def free_name(name: str, taken: set[str]) -> str:
    """The name with the smallest number behind it that is not taken."""
    number = 2
    while f"{name[:60]}-{number}" in taken:
        number += 1
    return f"{name[:60]}-{number}"
