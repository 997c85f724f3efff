"""One key of a TOML file changed, and nothing else: comments, order and blanks stay as the user wrote them. Pure.

The result is read again and compared: a file written in a way that this does not understand is refused, not damaged.
"""

import json
import re
import tomllib
from typing import Any

from orchestrator.settings.errors import SettingsError

HEADER = re.compile(r"\s*\[(?!\[)\s*([\w.-]+)\s*\]\s*(?:#.*)?$")
VALUE = re.compile(r"""\s*[\w-]+\s*=\s*+(?:"(?:[^"\\]|\\.)*"\s*|'[^']*'\s*|[^#"']*)""")  # takes each sign once
ANY_HEADER = re.compile(r"\s*\[")


def with_value(text: str, table: str, key: str, value: str) -> str:
    """`text` with `[table] key = "value"`. Raises SettingsError where the text is no TOML or cannot be edited safely."""
    before = parsed(text)
    changed = edited(text, table, key, f"{key} = {quoted(value)}")
    try:
        good = tomllib.loads(changed) == {**before, table: {**before.get(table, {}), key: value}}
    except tomllib.TOMLDecodeError:
        good = False
    if not good:
        raise SettingsError(f"{table}.{key} is written in a way that cannot be edited", "change it by hand")
    return changed


def quoted(value: str) -> str:
    """JSON's strings are TOML's, but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def edited(text: str, table: str, key: str, line: str) -> str:
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # TOML's lines: str.splitlines knows more ends than these
    head = next((at for at, one in enumerate(lines) if (found := HEADER.match(one)) and found[1] == table), None)
    if head is None:
        gap = "\n" if text.strip() else ""
        end = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{end}{gap}[{table}]\n{line}\n"
    end_of_table = next((at for at in range(head + 1, len(lines)) if ANY_HEADER.match(lines[at])), len(lines))
    own = re.compile(rf"\s*{re.escape(key)}\s*=")
    for at in range(head + 1, end_of_table):
        if own.match(lines[at]):
            lines[at] = line + comment_of(lines[at]) + "\n"
            return "".join(lines)
    if not lines[head].endswith("\n"):
        lines[head] += "\n"
    return "".join([*lines[: head + 1], f"{line}\n", *lines[head + 1 :]])


def comment_of(line: str) -> str:
    """The comment behind a value on one line, with the blanks before it; a # inside a string is none."""
    found = VALUE.match(line)
    if not found or not line.startswith("#", found.end()):
        return ""
    blanks = len(found[0]) - len(found[0].rstrip())
    return line[found.end() - blanks :].rstrip("\r\n")


def parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the configuration is no TOML: {error}", "correct it at that place") from error
