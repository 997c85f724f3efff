"""In how many ways a token's text can be read within a JSON schema in plain words (`keywords.py`). Knows no grammar.

llama.cpp follows each way by itself, and within a token it never sees that two have met. Alternatives that begin alike
(two objects, say) multiply where they lie within one another or follow one another closely: `[[[[` through five levels of
two arrays each are 32 ways. The figures are upper bounds: of a text's first characters, whatever they are.
"""

import json
from collections import Counter
from typing import Any

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.references import target

LONGEST = 16  # characters of a token that holds JSON's own signs; longer ones are blanks, dashes, words
MOST_WAYS = 4096
MOST_STEPS = 300_000  # about 0.2 s
Ways = dict[str, int]  # of each kind of value that may stand here
UNTOLD = "value"  # what may be anything is told apart by its first character


def check_ambiguity(schema: dict[str, Any]) -> None:
    """Raises SchemaRefused where a token could be read in too many ways."""
    found = _Ways(schema)
    for part in found.parts():
        if max(found.of(part, LONGEST).values()) > MOST_WAYS:
            raise SchemaRefused(
                f"the JSON schema is too ambiguous: {LONGEST} characters can be read in more than {MOST_WAYS} ways; "
                "alternatives that begin alike lie within one another"
            )


class _Ways:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, int], Ways] = {}
        self._least: dict[int, int] = {}
        self._open: set[tuple[int, int]] = set()
        self._steps = MOST_STEPS

    def parts(self) -> list[dict[str, Any]]:
        """The root and what references lead to; all else lies within those, and is read with them or after them."""
        return list(_subschemas(self._root))

    def of(self, schema: dict[str, Any], length: int) -> Ways:
        """After so many characters of a value."""
        key = (id(schema), length)
        if key not in self._known:
            if key in self._open:
                raise SchemaRefused("no grammar can be made of the JSON schema: an alternative is only itself again")
            self._open.add(key)
            self._known[key] = self._counted(schema, length)
            self._open.remove(key)
        return self._known[key]

    def _most(self, schema: dict[str, Any], length: int) -> int:
        return max(self.of(schema, length).values())

    def _counted(self, schema: dict[str, Any], length: int) -> Ways:
        self._step(1)
        if "$ref" in schema:
            return self.of(target(self._root, schema["$ref"]), length)
        if "anyOf" in schema:
            total: Counter[str] = Counter()
            for choice in schema["anyOf"]:
                total.update(self.of(choice, length))
            return {kind: ways + total[UNTOLD] * (kind != UNTOLD) for kind, ways in total.items()}
        if "enum" in schema:
            return dict.fromkeys(map(_kind, schema["enum"]), 1)  # what begins alike stands once (`choices.py`)
        kind = schema.get("type", UNTOLD)
        if length and kind == "array":
            return {kind: self._items(schema, length - 1)}
        if length and kind == "object":
            return {kind: self._properties(schema, length - 1)}
        return {"number" if kind == "integer" else kind: 1}

    def _items(self, schema: dict[str, Any], length: int) -> int:
        items = schema.get("prefixItems") or [schema.get("items", {})]
        return self._row([(0, item) for item in items], length)

    def _properties(self, schema: dict[str, Any], length: int) -> int:
        inside = dict(schema.get("properties", {}))
        more = schema.get("additionalProperties")
        row = [(len(json.dumps(name)) + 1, value) for name, value in inside.items()]
        return max(len(inside), self._row([*row, *([(3, more)] if isinstance(more, dict) else [])], length))

    def _row(self, parts: list[tuple[int, dict[str, Any]]], length: int) -> int:
        """Values that follow one another in any order, each behind so many characters of its own."""
        parts = [(before, part) for before, part in parts if not _simple(part)]
        best = [1] * (length + 1)
        for read in range(length + 1):
            for before, part in parts:
                left = read - before
                if left < 0:
                    continue
                best[read] = max(best[read], self._most(part, left))
                for taken in range(self._shortest(part), left):
                    self._step(1)
                    best[read] = max(best[read], self._most(part, taken) * best[left - taken - 1])
        return best[length]

    def _shortest(self, schema: dict[str, Any]) -> int:
        """Characters of the shortest text that fits, or fewer."""
        if id(schema) not in self._least:
            self._least[id(schema)] = 1  # for what holds itself
            self._least[id(schema)] = self._shortest_of(schema)
        return self._least[id(schema)]

    def _shortest_of(self, schema: dict[str, Any]) -> int:
        if "$ref" in schema:
            return self._shortest(target(self._root, schema["$ref"]))
        if "anyOf" in schema:
            return min(self._shortest(choice) for choice in schema["anyOf"])
        if "enum" in schema:
            return min(len(json.dumps(value, ensure_ascii=False)) for value in schema["enum"])
        if schema.get("type") == "object" and "properties" in schema:
            inside = schema["properties"]
            needed = set(schema.get("required", ()))
            return 2 + sum(len(name) + 4 + self._shortest(inside[name]) for name in needed) - bool(needed)
        kind = schema.get("type", UNTOLD)
        return {"string": 2, "array": 2, "object": 2, "boolean": 4, "null": 4}.get(kind, 1)

    def _step(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise SchemaRefused("the JSON schema has too many alternatives within one another")


def _subschemas(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """All that stand in it, itself included."""
    found, todo = [], [schema]
    while todo:
        part = todo.pop()
        found.append(part)
        for keyword in ("$defs", "definitions", "properties"):
            todo += part.get(keyword, {}).values()
        todo += [*part.get("anyOf", ()), *part.get("prefixItems", ())]
        todo += [part[keyword] for keyword in ("items", "additionalProperties") if isinstance(part.get(keyword), dict)]
    return found


def _simple(schema: dict[str, Any]) -> bool:
    """Read in one way, whatever it says."""
    return not schema or schema.get("type") in ("string", "integer", "number", "boolean", "null")


def _kind(value: Any) -> str:
    kinds = {str: "string", bool: "boolean", type(None): "null", list: "array", dict: "object"}
    return kinds.get(type(value), "number")
