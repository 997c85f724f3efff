"""JSON schemas to llama.cpp grammars, within bounds.

Grammars are never taken raw: one with 200,000 brackets kills the process in llama.cpp's parser. So the schema is bounded
in size and depth before a grammar is made of it, and references may not leave it. llama-cpp-python's converter leaves
backslashes in names and constants as they are, which would let a schema write grammar of its own; here they are escaped,
and the grammar's own depth is checked last.
"""

import json
import re
from typing import Any

from orchestrator.engine.backend import SchemaRefused

MOST_BYTES = 64 * 1024
MOST_DEPTH = 32
MOST_REPEATS = 1000  # minItems, maxLength and the like are unrolled into the grammar
MOST_PROPERTIES = 400  # of one object: the converter takes the square of it, a quarter of a second for so many
MOST_NESTING = 1200  # brackets in a grammar: an optional repetition nests each of its MOST_REPEATS
# What is not closed ends with the text: were it looked for anew behind each bracket, that would take the square.
QUOTED = re.compile(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)', re.DOTALL)
ANY_CHARACTER, BUT_CONTROLS = r'char ::= [^"\\] |', r'char ::= [^"\\\x00-\x1F] |'
MOST_PATTERN = 256  # characters of a regular expression; 3,000 optional ones took 10 s a token


def grammar_of(schema: str) -> str:
    """GBNF for a JSON schema's text; raises SchemaRefused, saying which bound it breaks."""
    if len(schema.encode()) > MOST_BYTES:
        raise SchemaRefused(f"the JSON schema has {len(schema.encode())} bytes; at most {MOST_BYTES} are taken")
    check_depth(schema)
    try:
        parsed = json.loads(schema)
    except ValueError as error:
        raise SchemaRefused(f"the JSON schema is not JSON: {error}") from error
    check_values(parsed)
    try:
        grammar = convert(parsed)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError, AttributeError, IndexError) as error:
        raise SchemaRefused(f"no grammar can be made of the JSON schema: {error}") from error
    if nesting(grammar) > MOST_NESTING:
        raise SchemaRefused(f"the JSON schema's grammar is nested deeper than {MOST_NESTING}")
    return grammar


def convert(schema: Any) -> str:
    # Imported late: it is needed for structured answers alone.
    from llama_cpp.llama_grammar import INVALID_RULE_CHARS_RE, SchemaConverter

    class Converter(SchemaConverter):  # type: ignore[misc]  # the binding has no types
        def _format_literal(self, literal: str) -> str:
            """Takes JSON and gives the grammar's literal of it: any text stays text."""
            plain = json.dumps(json.loads(literal), ensure_ascii=False)
            return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'

        def _resolve_ref(self, ref: str) -> str:
            """A reference into itself comes back as it was written; rules have cleaned names."""
            return str(INVALID_RULE_CHARS_RE.sub("-", super()._resolve_ref(ref)))

    if isinstance(schema, dict) and "$ref" in schema:
        # pydantic's way to write a type that holds itself; the converter sees no definitions beside a reference.
        schema = {**{key: value for key, value in schema.items() if key != "$ref"}, "anyOf": [{"$ref": schema["$ref"]}]}
    converter = Converter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
    converter.visit(converter.resolve_refs(schema, "schema"), "")
    # As it comes, a string may hold bare line ends and other control characters, which JSON forbids.
    return str(converter.format_grammar()).replace(ANY_CHARACTER, BUT_CONTROLS)


def nesting(grammar: str) -> int:
    """How deep the round brackets of a grammar go, literals and character classes left out."""
    bare = QUOTED.sub("", grammar)
    depth = deepest = 0
    for character in bare:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def check_depth(schema: str) -> None:
    """Counted on the text, before a parser recurses into it; brackets in strings only make it stricter."""
    depth = 0
    for character in schema:
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
    if key == "properties" and isinstance(value, dict) and len(value) > MOST_PROPERTIES:
        raise SchemaRefused(f"an object has {len(value)} properties; at most {MOST_PROPERTIES} are taken")
    if key == "pattern" and isinstance(value, str):
        check_pattern(value)


def check_pattern(pattern: str) -> None:
    """A repetition of 1,000,000,000 held llama.cpp's parser for 10 s before it gave up."""
    if len(pattern) > MOST_PATTERN:
        raise SchemaRefused(f"a pattern has {len(pattern)} characters; at most {MOST_PATTERN} are taken")
    if re.search(r"(?<!\\)(\\\\)*\\\$$", pattern):
        raise SchemaRefused("a pattern ends in a lone backslash")
    if any(int(count) > MOST_REPEATS for count in re.findall(r"(?<=[{,])\s*(\d+)(?=\s*[,}])", pattern)):
        raise SchemaRefused(f"a pattern repeats more than {MOST_REPEATS} times")
