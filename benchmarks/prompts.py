"""Prompts of exact length for either engine: token ids that mean nothing, the same in every run."""

import random

# Ids of ordinary pieces in the built-in vocabulary: above the single bytes, below the control tokens.
LOWEST, HIGHEST = 300, 3_800
QUESTION = 14  # tokens of a short question, as llama-server's own figures were measured with


def ids(count: int, *seed: int | str) -> list[int]:
    """`count` token ids that depend on the seed alone."""
    source = random.Random(repr(seed))
    return [source.randint(LOWEST, HIGHEST) for _ in range(count)]


def question(number: int) -> list[int]:
    return ids(QUESTION, "question", number)


def edited(floor: list[int], count: int) -> list[int]:
    """The floor with `count` tokens in its middle replaced: a line of a file that changed."""
    middle = len(floor) // 2
    return [*floor[:middle], *ids(count, "edit"), *floor[middle + count :]]
