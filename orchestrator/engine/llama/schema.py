"""JSON schemas to llama.cpp grammars, within bounds.

Grammars are never taken raw: one with 200,000 brackets kills the process in llama.cpp's parser. So the schema is bounded
in size and depth before a grammar is made of it, references may not leave it, and the grammar's own depth is checked last.
What a grammar costs is bounded before llama.cpp sees it: patterns are deterministic (`automaton.py`), and the ways to read
alternatives that begin alike are counted. Grammars of the schemas asked for last are kept.
"""

import json
import re
from collections import Counter
from functools import lru_cache
from typing import Any

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.keywords import plain, target
from orchestrator.engine.llama.regular import read_pattern

MOST_BYTES = 64 * 1024
MOST_GRAMMAR = 1024 * 1024  # 120 strings of at most 1,000 characters each
MOST_DEPTH = 32
MOST_REPEATS = 1000  # minItems, maxLength and the like are unrolled into the grammar
MOST_NESTING = 1200  # brackets in a grammar: an optional repetition nests each of its MOST_REPEATS
# What is not closed ends with the text: were it looked for anew behind each bracket, that would take the square.
STRING = re.compile(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)', re.DOTALL)
QUOTED = re.compile(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)', re.DOTALL)
# Of a schema that says what nobody foresaw. One question must not end the process, and with it everybody's answers.
UNFORESEEN = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)


KEPT = 32  # of at most 1 MiB
SAID = 500  # characters of a refusal, which may repeat what the schema says


LONGEST = 16  # characters of a token that holds JSON's own signs; longer ones are blanks, dashes, words
MOST_WAYS = 4096
MOST_STEPS = 300_000  # about 0.2 s
Ways = dict[str, int]  # of each kind of value that may stand here
UNTOLD = "value"  # what may be anything is told apart by its first character


def grammar(schema: str) -> str:
    """GBNF for a JSON schema's text. Raises SchemaRefused, also the second time without reading the schema again.

    Near a schema's bounds making it takes most of a second, so whoever reads a job calls this before a round needs it.
    """
    found = outcome(schema)
    if isinstance(found, SchemaRefused):
        raise SchemaRefused(str(found))
    return found


@lru_cache(maxsize=KEPT)
def outcome(schema: str) -> str | SchemaRefused:
    try:
        return grammar_of(schema)
    except SchemaRefused as refused:
        return SchemaRefused(said(str(refused)))


def said(text: str) -> str:
    """In few words, and in characters that any reader can show."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= SAID else f"{text[:SAID]}…"


def grammar_of(schema: str) -> str:
    """GBNF for a JSON schema's text; raises SchemaRefused, saying which bound it breaks, and nothing else."""
    try:
        grammar = convert(parsed(schema))
        size = len(grammar.encode())  # half a surrogate pair, which JSON can escape, is no text
    except UNFORESEEN as error:
        raise SchemaRefused(f"no grammar can be made of the JSON schema: {error}") from error
    if size > MOST_GRAMMAR:
        raise SchemaRefused(f"the JSON schema's grammar has {size} bytes; at most {MOST_GRAMMAR} are taken")
    if nesting(grammar) > MOST_NESTING:
        raise SchemaRefused(f"the JSON schema's grammar is nested deeper than {MOST_NESTING}")
    return grammar


def parsed(schema: str) -> Any:
    """The schema as JSON, within those bounds that can be looked at before any keyword is understood."""
    size = len(schema.encode())
    if size > MOST_BYTES:
        raise SchemaRefused(f"the JSON schema has {size} bytes; at most {MOST_BYTES} are taken")
    check_depth(schema)
    try:
        found = json.loads(schema)
    except ValueError as error:
        raise SchemaRefused(f"the JSON schema is not JSON: {error}") from error
    check_values(found)
    return found


def convert(schema: Any) -> str:
    # Imported late: it is needed for structured answers alone.
    from orchestrator.engine.llama.converter import Converter

    words = plain(schema)
    check_ambiguity(words)
    return Converter(MOST_GRAMMAR).grammar(beside_definitions(words))


def beside_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """pydantic's way to write a type that holds itself; the converter sees no definitions beside a reference."""
    if "$ref" not in schema:
        return schema
    return {**{key: value for key, value in schema.items() if key != "$ref"}, "anyOf": [{"$ref": schema["$ref"]}]}


def nesting(grammar: str) -> int:
    """How deep the round brackets of a grammar go, literals and character classes left out."""
    bare = QUOTED.sub("", grammar)
    depth = deepest = 0
    for character in bare:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def check_depth(schema: str) -> None:
    """Counted on the text, before a parser recurses into it. A bracket in a string would close one that stays open."""
    depth = 0
    for character in STRING.sub("", schema):
        depth += (character in "[{") - (character in "]}")
        if depth > MOST_DEPTH:
            raise SchemaRefused(f"the JSON schema is nested deeper than {MOST_DEPTH}")


def check_values(value: Any) -> None:
    if isinstance(value, dict):
        for key, inside in value.items():
            check_keyword(key, inside)
            check_values(inside)
    elif isinstance(value, list):
        for inside in value:
            check_values(inside)


def check_keyword(key: str, value: Any) -> None:
    if key == "$ref" and (not isinstance(value, str) or not value.startswith("#")):
        raise SchemaRefused(f"the JSON schema refers to {value!r}; only references inside it (#/…) are followed")
    if key in ("minItems", "maxItems", "minLength", "maxLength") and isinstance(value, int) and value > MOST_REPEATS:
        raise SchemaRefused(f"{key} {value} is more than {MOST_REPEATS}")
    if key == "pattern" and isinstance(value, str):
        check_pattern(value)


def check_pattern(pattern: str) -> None:
    """Read once here, before anything is made of it; what an automaton of it takes is counted when it is made."""
    read_pattern(pattern)


# -- in how many ways a text can be read


def check_ambiguity(schema: dict[str, Any]) -> None:
    """Raises SchemaRefused where a token could be read in too many ways.

    llama.cpp follows each way by itself, and within a token it never sees that two have met. Alternatives that begin alike
    (two objects, say) multiply where they lie within one another or follow one another closely: `[[[[` through five levels
    of two arrays each are 32 ways. The figures are upper bounds: of a text's first characters, whatever they are.
    """
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
            return dict.fromkeys(map(_kind, schema["enum"]), 1)  # what begins alike stands once (`one_of`)
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
