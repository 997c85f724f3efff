"""What a package adds to Lorekeep beside items: nodes of the relevance gate. Values, without a way to do anything.

lorekeep.formatters   artifact injectors and prompt templates (`formatters.context`)
lorekeep.nodes        a ContextNode
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContextNode:
    """A part of the context that the relevance gate decides about, named as the items that belong to it (`Item.node`).

    `block`: one of the six. `cost`: tokens on average, estimated, not measured. `source`: what it reads, in a word.
    A node with `gated` false is always included.
    """

    name: str
    block: str
    cost: int
    source: str
    gated: bool = True
