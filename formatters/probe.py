"""Determines, when a model is loaded, how its chat template can be used without losing the shared prefix.

Three ways are tried in this order, and the first that works is used:
 1. `system`      one system message holds Identity to Karma.
 2. `first_user`  the head of the first user message holds them: for templates without a system role, or that move it.
 3. `none`        plain role lines replace the template.
A way works when prompts of one, two and three turns can be cut, and are equal up to Karma.
"""

from dataclasses import dataclass
from enum import StrEnum

from formatters.blocks import FLOOR, BlockKind, Role
from formatters.conversation import Slot, Way
from formatters.errors import TemplateRefused
from formatters.template import ChatTemplate, Literal, Piece

_EXCHANGE = (Role.USER, Role.ASSISTANT)
_TRIED = ((), _EXCHANGE, _EXCHANGE * 2)


class NoThink(StrEnum):
    """What changes in the prompt when a template is asked not to let the model think."""

    NOTHING = "nothing"
    TAIL = "tail"  # only text right of the floor: a question may use it
    FLOOR = "floor"  # the floor itself: a question that used it would lose the whole prefix


@dataclass(frozen=True)
class Placement:
    """How a template is used. `reason`: why a better way does not work; empty for the best way.

    keeps_answers: a closed turn is rendered as it was while running; if not, it is computed once more behind the answer.
    """

    way: Way
    reason: str = ""
    keeps_answers: bool = True
    no_think: NoThink = NoThink.NOTHING


def probe(template: ChatTemplate) -> Placement:
    """The best way that works for this template. Never raises: the last one always works."""
    reasons: list[str] = []
    for way in (Way.SYSTEM, Way.FIRST_USER):
        try:
            _refuse_unstable_prefix(template, way)
        except TemplateRefused as refusal:
            reasons.append(str(refusal))
        else:
            return _placement(template, way, reasons)
    return _placement(template, Way.NONE, list(dict.fromkeys(reasons)))


def through(layout: tuple[Piece, ...], last: BlockKind) -> tuple[Piece, ...]:
    """The pieces up to the slot of a block, that block included."""
    return layout[: layout.index(Slot(last)) + 1]


def _refuse_unstable_prefix(template: ChatTemplate, way: Way) -> None:
    heads = {through(template.layout(turns, way=way), BlockKind.KARMA) for turns in _TRIED}
    if len(heads) > 1:
        raise TemplateRefused("the chat template changes the head of a prompt with each turn")


def _placement(template: ChatTemplate, way: Way, reasons: list[str]) -> Placement:
    return Placement(way, "; ".join(reasons), _keeps_answers(template, way), _no_think(template, way))


def _keeps_answers(template: ChatTemplate, way: Way) -> bool:
    """Whether the text before an answer is the same once the answer is a turn: later token ids then keep their places."""
    running, closed = template.layout((), way=way), template.layout(_EXCHANGE, way=way)
    return _fixed(running) == _fixed(closed[: closed.index(Slot(BlockKind.STATE, 1))])


def _fixed(layout: tuple[Piece, ...]) -> list[str]:
    """The template's own text right of Karma: before a question, and between it and its answer."""
    behind = layout[len(through(layout, BlockKind.KARMA)) :]
    return [piece.text for piece in behind if isinstance(piece, Literal)]


def _no_think(template: ChatTemplate, way: Way) -> NoThink:
    usual = template.layout(_EXCHANGE, way=way)
    try:
        asked = template.layout(_EXCHANGE, way=way, think=False)
    except TemplateRefused:
        return NoThink.NOTHING
    if usual == asked:
        return NoThink.NOTHING
    return NoThink.TAIL if through(usual, FLOOR[-1]) == through(asked, FLOOR[-1]) else NoThink.FLOOR
