"""JSON schemas to llama.cpp grammars, within bounds.

Grammars are never taken raw: one with 200,000 brackets kills the process in llama.cpp's parser. So the schema is bounded
in size and depth before a grammar is made of it, references may not leave it, and the grammar's own depth is checked last.
What a grammar costs is bounded before llama.cpp sees it: patterns are deterministic (`automaton.py`), and alternatives
that begin alike are counted (`ambiguity.py`).
"""

import json
import re
from typing import Any

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.ambiguity import check_ambiguity
from orchestrator.engine.llama.keywords import plain
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
