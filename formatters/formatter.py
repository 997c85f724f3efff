"""The two kinds of formatter, and the laws that each obeys.

    prompt template     writes a whole block; there is one per block, chosen by name.
    artifact injector   adds items to a block after the template's; all that are installed are used.

Laws, held by `formatters.testing`:
 1. Pure: the same context gives the same items, in any process, on any day. No clock, no sensor, no randomness, no I/O.
 2. Every item without a role ends with a newline.
 3. Keys come from what an item *is* (path, number in a log, turn), never from a query's ranks, and are unique.
 4. Left of State nothing depends on the query, the turns or the evidence, and in the floor nothing but identity and
    codex counts; else the prefix is lost with every question.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from formatters.blocks import BlockKind, Item
from formatters.context import TurnContext


@dataclass(frozen=True, slots=True)
class Turning:
    """What a formatter is given. `deps` has its name from pydantic-ai's `RunContext`, which formatters may be written for;
    nothing else of that is here."""

    deps: TurnContext


@runtime_checkable
class PromptTemplate(Protocol):
    """Writes one block from nothing but the turn's context, which is `ctx.deps`."""

    @property
    def name(self) -> str: ...
    @property
    def block(self) -> BlockKind: ...
    def write(self, ctx: Turning, /) -> Iterable[Item]:
        """All items of the block, in any order: their keys order them. May raise anything; see `registry.write_prompt`."""
        ...


@runtime_checkable
class ArtifactInjector(Protocol):
    """Adds items to one block; any but Query, which is the user's own words.

    The registry puts `6/NAME/` before each key: injected items come after the block's own, and before a log of
    amendments or the words of a turn. An item without a node gets the injector's name.
    """

    @property
    def name(self) -> str: ...
    @property
    def block(self) -> BlockKind: ...
    def inject(self, ctx: Turning, /) -> Iterable[Item]:
        """Items to add, possibly none. May raise anything; see `registry.write_prompt`."""
        ...


Formatter: TypeAlias = PromptTemplate | ArtifactInjector
