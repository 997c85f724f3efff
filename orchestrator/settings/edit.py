"""One key of a TOML file changed, and nothing else: comments, order and blanks stay as the user wrote them. Pure.

The result is read again by Python's own parser and compared: a file that comes out otherwise is refused, not damaged.
"""

import tomllib
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from orchestrator.errors import SettingsError


def with_value(text: str, table: str, key: str, value: str) -> str:
    """`text` with `[table] key = "value"`. Raises SettingsError where the text is no TOML or cannot be edited safely."""
    before = parsed(text)
    try:
        document: Any = tomlkit.parse(text)
        if table not in document:
            if text.strip():
                document.add(tomlkit.nl())
            document[table] = tomlkit.table()
        document[table][key] = value
        changed = tomlkit.dumps(document)
        good = tomllib.loads(changed) == {**before, table: {**before.get(table, {}), key: value}}
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError):  # the last two: `table` is another value
        good = False
    if not good:
        raise SettingsError(f"{table}.{key} is written in a way that cannot be edited", "change it by hand")
    return changed


def parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the configuration is no TOML: {error}", "correct it at that place") from error
