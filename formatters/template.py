"""The model's own chat template: which slot of the prompt is in which message, the cut at the seams between blocks, and how
a template can be used without losing the shared prefix.

    system      Identity · Codex · Environment · Karma
    user        turn 0
    assistant   turn 1                       …
    user        artifacts of the question · Query
    assistant   a tool call, user its result …            (only while a turn is running)

Chat templates expect user and assistant by turns, beginning with the user, and many refuse anything else. Tool results are
the user's, because templates do not agree on a role for them.

The template is rendered once with a sentinel in each slot and cut there. The text between the slots is the template's own,
and only that text may have control tokens; the text of the slots is content and never control. So every block can be
tokenised separately, and the tokens of the first blocks are a prefix of the tokens of all.

    <|im_start|>system\\n │Identity│Codex│Environment│Karma│ <|im_end|>\\n<|im_start|>user\\n │State 0│Query│ <|im_end|>…
    literal of Identity                                       literal of State                          literal of Query

When a model is loaded, three ways are tried in this order, and the first that works is used:
 1. `system`      one system message holds Identity to Karma.
 2. `first_user`  the head of the first user message holds them: for templates without a system role, or that move it.
 3. `none`        plain role lines replace the template.
A way works when prompts of one, two and three turns can be cut, and are equal up to Karma.

A chat template is foreign code: it runs in a sandbox, with the helpers of Hugging Face's `apply_chat_template`, which such
templates are written for.
"""

import datetime
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from formatters.blocks import FLOOR, ORDER, BlockKind, InvalidPrompt, Item, Prompt, Role, TemplateRefused

UNDATED = datetime.datetime(2024, 7, 26)
"""The date in templates of the Llama 3 family when none is passed. Today's would make a new floor each day."""

PLAIN = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}{{ '\n### User:\n' }}{% elif message.role == 'assistant' %}{{ '\n### Assistant:\n' }}"
    "{% endif %}{{ message.content }}{{ '' if message.role == 'system' else '\n' }}"
    "{% endfor %}{{ '\n### Assistant:\n' }}"
)
"""Replaces a template that is missing or cannot be used."""

PLAIN_STOP = "\n### User:"
"""Where an answer under PLAIN ends: no control token ends it."""

KEPT_TURNS = 256  # of a layout that is cached: hundreds of longer ones would cost more memory than they save work
Message = Mapping[str, Any]

SEAM = "\n\n"
"""Between two turns that nothing of the template separates, so that no words merge."""

_BEGAN_EARLIER = "(The conversation began earlier.)" + SEAM
# What a template's own operations may raise: `none + "text"`, a missing key, a division by zero, a recursive macro.
_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class Way(StrEnum):
    """Where Identity to Karma go."""

    SYSTEM = "system"
    FIRST_USER = "first_user"
    NONE = "none"


@dataclass(frozen=True)
class Slot:
    """A place to fill: the whole of a block, or its items of turn `index` in State and Query."""

    block: BlockKind
    index: int = 0


@dataclass(frozen=True)
class MessageLayout:
    """One chat message as slots and fixed text. `role` is system, user or assistant."""

    role: str
    parts: tuple[Slot | str, ...]


@dataclass(frozen=True)
class Literal:
    """The template's own text, tokenised with control tokens on. It belongs to the block whose slot it leads to."""

    text: str
    block: BlockKind


Piece: TypeAlias = Literal | Slot
_Growing = list[tuple[str, list[Slot | str]]]  # roles and parts: one message may be of thousands of turns
_HEAD: tuple[Slot, ...] = tuple(Slot(kind) for kind in ORDER[:4])
_EXCHANGE = (Role.USER, Role.ASSISTANT)
_TRIED = ((), _EXCHANGE, _EXCHANGE * 2)


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with the tokens it may name.

    bos, eos: their texts. add_bos: the model needs bos first; it is added unless the template writes it.
    """

    source: str
    bos: str = ""
    eos: str = ""
    add_bos: bool = False

    def layout(
        self, turns: Sequence[Role] = (), *, running: Sequence[Role] = (), way: Way = Way.SYSTEM, think: bool = True
    ) -> tuple[Piece, ...]:
        """The prompt's pieces in order, for these earlier turns and what the running turn has appended since the question.

        think: False asks the template not to let the model think; see `Placement.no_think` before using it.
        Raises TemplateRefused when the template refuses or a slot is lost, doubled, changed or moved.
        """
        layout = self._cached_layout if len(turns) + len(running) <= KEPT_TURNS else self._layout
        return layout(tuple(turns), tuple(running), way, think)

    @cached_property
    def _cached_layout(self) -> Callable[[tuple[Role, ...], tuple[Role, ...], Way, bool], tuple[Piece, ...]]:
        return lru_cache(maxsize=512)(self._layout)

    def _layout(self, turns: tuple[Role, ...], running: tuple[Role, ...], way: Way, think: bool) -> tuple[Piece, ...]:
        layouts = conversation(turns, running, way)
        marks = _Marks(part for one in layouts for part in one.parts if isinstance(part, Slot))
        messages = [{"role": one.role, "content": "".join(map(marks.of, one.parts))} for one in layouts]
        pieces = tuple(marks.cut(self._render(messages, way, think)))
        pieces = _parted(pieces, lambda slot: speaker(slot, turns, running))
        return _begun(pieces, self.bos) if self.add_bos else pieces

    def _render(self, messages: Sequence[Message], way: Way, think: bool) -> str:
        variables: dict[str, object] = {"bos_token": self.bos, "eos_token": self.eos}
        if not think:
            variables |= {"enable_thinking": False, "thinking": False}  # the two names that templates know
        return rendered(self._plain if way is Way.NONE else self._compiled, messages, variables)

    @cached_property
    def _compiled(self) -> Template:
        if not self.source.strip():
            raise TemplateRefused("the model carries no chat template")
        return compiled(self.source)

    @cached_property
    def _plain(self) -> Template:
        return compiled(PLAIN)


@dataclass(frozen=True)
class PromptPart:
    """A stretch of the final prompt to be tokenised by itself: the template's text, or one item's."""

    block: BlockKind
    text: str
    item: Item | None = None

    @property
    def control(self) -> bool:
        """Whether control tokens in the text are meant."""
        return self.item is None


def parts(layout: Iterable[Piece], prompt: Prompt) -> Iterator[PromptPart]:
    """The prompt as stretches to tokenise one by one; their ids, joined, are the prompt. Empty ones are left out."""
    for piece in layout:
        if isinstance(piece, Literal):
            yield PromptPart(piece.block, piece.text)
        else:
            yield from (
                PromptPart(piece.block, item.text, item) for item in prompt.at(piece.block, piece.index) if item.text
            )


def joined(layout: Iterable[Piece], prompt: Prompt) -> str:
    """The prompt's text: what `lore plan --prompt` shows."""
    return "".join(part.text for part in parts(layout, prompt))


class _Marks:
    """A sentinel for each slot, and the cut of a text at them: one pass over it, however many there are."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._slots = tuple(slots)
        self._places = {slot: place for place, slot in enumerate(self._slots)}
        # Letters at both ends survive trimming. The middle has characters that escaping, splitting or reflowing changes: a
        # template that does so would change code, and is refused. Random, so that no text contains it.
        self._head, self._end = f"Q{secrets.token_hex(12)}\"<&'\\\n", "Q"

    def of(self, part: Slot | str) -> str:
        """A slot's sentinel; fixed text is itself."""
        return part if isinstance(part, str) else f"{self._head}{self._places[part]:08x}{self._end}"

    def cut(self, text: str) -> Iterator[Piece]:
        """The text around the sentinels; each must occur once, and in order. Raises TemplateRefused."""
        found = list(re.finditer(f"{re.escape(self._head)}([0-9a-f]{{8}}){self._end}", text))
        self._refuse_other([int(one[1], 16) for one in found])
        at = 0
        for slot, one in zip(self._slots, found, strict=True):
            if one.start() > at:
                yield Literal(text[at : one.start()], slot.block)
            yield slot
            at = one.end()
        if at < len(text):
            yield Literal(text[at:], BlockKind.QUERY)

    def _refuse_other(self, found: list[int]) -> None:
        """Raises TemplateRefused unless each place was found once and in order."""
        if found == list(range(len(self._slots))):
            return
        counts, order = Counter(found), {place: order for order, place in enumerate(found)}
        places = range(len(self._slots))
        place = next(one for one in places if counts[one] != 1 or (one and order[one] < order[one - 1]))
        fate = {0: "loses or changes", 1: "moves"}.get(counts[place], "repeats")
        slot = self._slots[place]
        raise TemplateRefused(f"the chat template {fate} {slot.block} (turn {slot.index})")


def _parted(pieces: tuple[Piece, ...], speaker_of: Callable[[Slot], Role | None]) -> tuple[Piece, ...]:
    """With a seam after an answer where the template has none: otherwise the next words would be joined to it."""
    parted: list[Piece] = list(pieces[:1])
    for piece, following in pairwise(pieces):
        if isinstance(piece, Slot) and isinstance(following, Slot) and speaker_of(piece) is Role.ASSISTANT:
            parted.append(Literal(SEAM, following.block))
        parted.append(following)
    return tuple(parted)


def _begun(pieces: tuple[Piece, ...], bos: str) -> tuple[Piece, ...]:
    first = pieces[0]
    if isinstance(first, Slot):
        return (Literal(bos, BlockKind.IDENTITY), *pieces) if bos else pieces
    return pieces if first.text.startswith(bos) else (Literal(bos + first.text, first.block), *pieces[1:])


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks an assistant's words for training; it has no effect here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance's attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compiled(source: str) -> Template:
    """The template, ready to run. Raises TemplateRefused."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = UNDATED.strftime
    try:
        return environment.from_string(source)
    except _FAULTS as fault:
        raise TemplateRefused(f"the chat template does not compile: {fault}") from fault


def rendered(template: Template, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
    """The text of these messages with the prompt for an answer. Raises TemplateRefused, in the template's own words."""
    try:
        return template.render(messages=messages, add_generation_prompt=True, **variables)
    except _FAULTS as fault:
        raise TemplateRefused(f"the chat template refuses: {str(fault) or type(fault).__name__}") from fault


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own escapes < and >, which the models have never seen.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


# -- which slot is in which message


def conversation(turns: Sequence[Role], running: Sequence[Role], way: Way) -> tuple[MessageLayout, ...]:
    """The messages of a prompt with these earlier turns and what the running one has appended. Raises InvalidPrompt."""
    if running and running[-1] is Role.ASSISTANT:
        raise InvalidPrompt("a running turn waits for an answer: it cannot end with the assistant's own words")
    messages = _opened(turns, way)
    for index, role in enumerate(turns):
        _say(messages, side(role), Slot(BlockKind.STATE, index))
    _say(messages, "user", Slot(BlockKind.STATE, len(turns)), Slot(BlockKind.QUERY))
    for index, role in enumerate(running, start=1):
        _say(messages, side(role), Slot(BlockKind.QUERY, index))
    return tuple(MessageLayout(role, tuple(parts)) for role, parts in messages)


def side(role: Role) -> str:
    return "assistant" if role is Role.ASSISTANT else "user"


def speaker(slot: Slot, turns: Sequence[Role], running: Sequence[Role]) -> Role | None:
    """The speaker of a slot; None where there is none."""
    if slot.block is BlockKind.STATE and slot.index < len(turns):
        return turns[slot.index]
    if slot.block is BlockKind.QUERY:
        return running[slot.index - 1] if slot.index else Role.USER
    return None


def _opened(turns: Sequence[Role], way: Way) -> _Growing:
    begins_late = bool(turns) and turns[0] is Role.ASSISTANT
    if way is Way.FIRST_USER:
        return [("user", [*_HEAD, _BEGAN_EARLIER] if begins_late else [*_HEAD])]
    system: tuple[str, list[Slot | str]] = ("system", [*_HEAD])
    return [system, ("user", [_BEGAN_EARLIER])] if begins_late else [system]


def _say(messages: _Growing, role: str, *slots: Slot) -> None:
    last, parts = messages[-1]
    if last != role:
        messages.append((role, [*slots]))
    elif parts[-1] == _HEAD[-1]:  # items of Karma end with a newline of their own
        parts.extend(slots)
    else:
        parts.extend((SEAM, *slots))


# -- how a template is used


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
