"""Where a turn's prompt leaves the one before it in its conversation: from there on everything is computed again.

A prompt that only grew at its end left nothing. Compares what was said, not tokens; knows no cache.
"""

from collections.abc import Iterable, Mapping
from itertools import zip_longest

from formatters.blocks import FLOOR, Block, BlockKind
from formatters.template import PromptPart, parts
from orchestrator.prompt.composing import Composed
from orchestrator.wire.lore import Break

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
