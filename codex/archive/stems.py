"""A light English stemmer: endings off, so that `merges`, `merged` and `merging` meet.

Cruder than the index's own, and enough for comparing a question's words with names, and for the archive in memory.
"""

from functools import lru_cache

_ENDINGS = (
    "ations",
    "ation",
    "ings",
    "ing",
    "ies",
    "ied",
    "ions",
    "ion",
    "ors",
    "or",
    "ers",
    "er",
    "es",
    "ed",
    "s",
    "e",
)
_SHORTEST = 3  # letters that must be left


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The word without one ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word
