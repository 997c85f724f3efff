"""A small picture of a prompt: six bars, as long as their tokens, solid where they came from the cache."""

from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 48
SOLID, HOLLOW = "█", "░"


def picture(lore: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a terminal from an answer's `lore` object."""
    widest = max((block["tokens"] for block in lore["blocks"]), default=0)
    for block in lore["blocks"]:
        drawn = bar(block["tokens"], block["cached"], widest)
        yield f"{block['kind']:<12}{block['tokens']:>8,}  {drawn:<{WIDTH}}  {words(block)}".rstrip()


def bar(tokens: int, cached: int, widest: int) -> str:
    """A block with tokens has a bar at least one sign long; what is not cached shows as at least one hollow sign."""
    if tokens == 0:
        return ""
    length = max(round(WIDTH * tokens / widest), 1)
    solid = length * cached // tokens
    return SOLID * solid + HOLLOW * (length - solid)


def words(block: Mapping[str, Any]) -> str:
    computed = block["tokens"] - block["cached"]
    if block["tokens"] == 0:
        return "empty"
    if computed == 0:
        return f"cached ({block['from']})"
    return f"{computed:,} computed" if block["cached"] == 0 else f"{block['cached']:,} cached, {computed:,} computed"
