"""Prompts from the blocks that a test is about."""

from collections.abc import Iterable

from formatters.blocks import ORDER, Block, Prompt


def prompt_of(blocks: Iterable[Block]) -> Prompt:
    """These blocks, in any order; those not given are empty. Raises InvalidPrompt."""
    given = {block.kind: block for block in blocks}
    return Prompt(tuple(given.get(kind) or Block(kind) for kind in ORDER))
