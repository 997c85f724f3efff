"""Grammars of the JSON schemas asked for last, each made once.

Near a schema's bounds that takes most of a second, so whoever reads a job has it made before a round needs it.
"""

from functools import lru_cache

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.schema import grammar_of

KEPT = 32  # of at most 1 MiB
SAID = 500  # characters of a refusal, which may repeat what the schema says


def grammar(schema: str) -> str:
    """Raises SchemaRefused, also the second time without reading the schema again."""
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
