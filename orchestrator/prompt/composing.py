"""From a turn's context to its prompt in every form: blocks of items, the exact text, token ids.

Formatters write, the model's chat template lays out, the assembler tokenises. Knows no budget and no engine.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from formatters.blocks import FLOOR, Block, BlockKind, Prompt
from formatters.context import TurnContext
from formatters.probe import NoThink, Placement
from formatters.registry import Registry, write_prompt
from formatters.template import KEPT_TURNS, ChatTemplate, Literal, PromptPart, joined, parts
from orchestrator.prompt.assembly import Assembled, Assembler, Layout
from orchestrator.wire.lore import Break

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.models import Model


@dataclass(frozen=True, eq=False)
class Composed:
    prompt: Prompt
    layout: Layout
    assembled: Assembled

    @property
    def text(self) -> str:
        """The exact text that the engine gets, for people."""
        return joined(self.layout, self.prompt)

    @cached_property
    def characters(self) -> int:
        """The text's length."""
        items = sum(len(item.text) for block in self.prompt.blocks for item in block.items)
        return items + sum(len(piece.text) for piece in self.layout if isinstance(piece, Literal))


class Composer:
    """Composes for one model: its chat template, the way that the probe found for it, and its tokens."""

    def __init__(self, registry: Registry, template: ChatTemplate, placement: Placement, assembler: Assembler) -> None:
        self._registry = registry
        self._template = template
        self._placement = placement
        self._assembler = assembler

    def write(self, ctx: "RunContext[TurnContext]") -> Prompt:
        """The six blocks of this turn. A broken plug-in's items are missing and named in `failures`."""
        return write_prompt(ctx, self._registry)

    async def compose(self, ctx: "RunContext[TurnContext]", think: bool = True) -> Composed:
        """The turn's prompt, as it stands. Raises LoreError when the engine that encodes is gone."""
        return await self.tokenised(self.write(ctx), ctx.deps.sigil.uid, think)

    async def tokenised(self, prompt: Prompt, owner: int, think: bool = True) -> Composed:
        """A prompt that was written already, or cut to its budget since, for `owner` (uid)."""
        # The template is foreign code that runs over every message: of many, no other question waits for it.
        long = len(prompt.turns) + len(prompt.running) > KEPT_TURNS
        layout = await asyncio.to_thread(self.layout, prompt, think) if long else self.layout(prompt, think)
        return Composed(prompt, layout, await self._assembler.assemble(prompt, layout, owner))

    def layout(self, prompt: Prompt, think: bool = True) -> Layout:
        """The template cut for this prompt's turns. Thoughts are switched off only where that keeps the floor."""
        think = think or self._placement.no_think is NoThink.FLOOR
        return self._template.layout(prompt.turns, running=prompt.running, way=self._placement.way, think=think)


def context_of(turn: TurnContext) -> "RunContext[TurnContext]":
    """The context that formatters are given outside of a run, as for a plan. Formatters read nothing but `deps`."""
    from pydantic_ai import RunContext
    from pydantic_ai.usage import RunUsage

    return RunContext(deps=turn, model=cast("Model", None), usage=RunUsage())


TEMPLATE = "template"


def broke_at(before: Composed, now: Composed, why: Mapping[BlockKind, str] | None = None) -> Break | None:
    """The first place that differs, or None. `why`: reasons that the caller knows better, by block."""
    found = _in_floor(before, now) or _behind_floor(before, now)
    if found is None:
        return None
    block, item, reason = found
    return Break(block=block.value, item=item, why=(why or {}).get(block) or reason)


_Place = tuple[BlockKind, str, str]


def _in_floor(before: Composed, now: Composed) -> _Place | None:
    for kind in FLOOR:
        old, new = before.prompt[kind], now.prompt[kind]
        if old.digest != new.digest:
            return _first_item(old, new)
    return None


def _first_item(old: Block, new: Block) -> _Place:
    pairs = zip_longest(old.items, new.items)
    item, follows = next((one, other) for one, other in pairs if one is None or other is None or one.text != other.text)
    if item is None:
        assert follows is not None
        return new.kind, follows.source, "added"
    return new.kind, item.source, "changed" if follows is not None else "removed"


def _behind_floor(before: Composed, now: Composed) -> _Place | None:
    for old, new in zip_longest(_rest(before), _rest(now)):
        if old is None:
            return None
        if new is None:
            return old.block, _name(old), "removed"
        if old.text != new.text or old.control is not new.control:
            reason = "the chat template writes a closed turn otherwise" if new.control else "changed"
            return new.block, _name(new), reason
    return None


def _rest(composed: Composed) -> Iterable[PromptPart]:
    return parts([piece for piece in composed.layout if piece.block not in FLOOR], composed.prompt)


def _name(part: PromptPart) -> str:
    return part.item.source or part.item.key if part.item else TEMPLATE
