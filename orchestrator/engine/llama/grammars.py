"""Grammars of the JSON schemas asked for last, each made once.

Near a schema's bounds that takes most of a second, so whoever reads a job has it made before a round needs it.
"""

from functools import lru_cache

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.schema import grammar_of

KEPT = 32  # of at most 1 MiB


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
        return refused
