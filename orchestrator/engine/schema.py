"""JSON schemas to llama.cpp grammars, within bounds.

Grammars are never taken raw: one with 200,000 brackets kills the process in llama.cpp's parser. So the schema is bounded
in size and depth before a grammar is made of it, and references may not leave it.
"""

import json
import re
from typing import Any

from orchestrator.engine.backend import SchemaRefused

MOST_BYTES = 64 * 1024
MOST_DEPTH = 32
MOST_REPEATS = 1000  # minItems, maxLength and the like are unrolled into the grammar
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
    # Imported late: it is needed for structured answers alone.
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        return str(json_schema_to_gbnf(schema))
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError, AttributeError, IndexError) as error:
        raise SchemaRefused(f"no grammar can be made of the JSON schema: {error}") from error


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
    if key == "pattern" and isinstance(value, str):
        check_pattern(value)


def check_pattern(pattern: str) -> None:
    """A repetition of 1,000,000,000 held llama.cpp's parser for 10 s before it gave up."""
    if len(pattern) > MOST_PATTERN:
        raise SchemaRefused(f"a pattern has {len(pattern)} characters; at most {MOST_PATTERN} are taken")
    if any(int(count) > MOST_REPEATS for count in re.findall(r"(?<=[{,])\s*(\d+)(?=\s*[,}])", pattern)):
        raise SchemaRefused(f"a pattern repeats more than {MOST_REPEATS} times")
