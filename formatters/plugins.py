"""What a package adds to Lorekeep beside items. All but a tool are values, without a way to do anything.

lorekeep.formatters   artifact injectors and prompt templates (`formatters.context`)
lorekeep.nodes        a ContextNode
lorekeep.memories     a MemoryKind
lorekeep.tools        a ModelTool
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from formatters.context import Turning


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


PROPOSED, INACTIVE, RETIRED = "proposed", "inactive", "retired"
HIDDEN_STATES = frozenset({PROPOSED, INACTIVE, RETIRED})
"""States of these names are shown to no model, whatever the kind."""


@dataclass(frozen=True)
class MemoryKind:
    """A kind of memories, which is a node of the relevance gate too.

    heading:    that its memories stand under in the Karma block.
    states:     where each state leads.
    first:      the state of a memory that somebody stated.
    end:        the state of one that is retired; '' where the kind is kept.
    node:       of the gate; '' for one that is named as the kind.
    cost:       tokens of its memories in a prompt, on average.
    budget:     most tokens of them, in a frame of 8,000; other frames have their share.
    candidates: most memories that are looked at before they are ranked.
    """

    name: str
    heading: str
    states: Mapping[str, Set[str]] = field(hash=False)
    first: str
    end: str = ""
    node: str = ""
    cost: int = 200
    budget: int = 500
    candidates: int = 10

    def may_become(self, state: str, new: str) -> bool:
        return new in self.states.get(state, ())


@dataclass(frozen=True)
class ModelTool:
    """A tool that the model may call in a turn. `name` and `description` are what it reads, and `parameters`, the JSON
    schema of an object. Who asks needs the scope `tools:NAME`.

    `run` is given the turn and the model's arguments, which nobody has checked, and gives a text. It is called in a thread
    of its own with the rights of the daemon, may raise anything, and has 10 seconds.
    """

    name: str
    description: str
    run: Callable[[Turning, Mapping[str, Any]], str]
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}}, hash=False)
