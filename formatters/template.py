"""The model's own chat template: which slot of the prompt is in which message, the cut at the seams between blocks, and how
a template can be used without losing the shared prefix.

    system      Identity · Codex · Environment · Karma
    user        turn 0
    assistant   turn 1                       …
    user        artifacts of the question · Query
    assistant   a tool call, tool its result …

Chat templates expect user and assistant by turns, beginning with the user, and many refuse anything else. An answer that
calls is given to the template as a call, which the answer's own text then replaces, and results as messages of the tool.
Where a template refuses that, or loses or changes a result, calls are plain answers and results are the user's.

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
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TypeAlias

from jinja2 import Template

from formatters.blocks import FLOOR, ORDER, BlockKind, InvalidPrompt, Item, Prompt, Role, TemplateRefused
from formatters.calls import CALL_ID, NAME, PLAIN_CALLS, CallFormat, CallSample, read_calls
from formatters.sandbox import Message, compiled, rendered

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

SEAM = "\n\n"
"""Between two turns that nothing of the template separates, so that no words merge."""

_BEGAN_EARLIER = "(The conversation began earlier.)" + SEAM


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
    """One chat message as slots and fixed text. `role` is system, user, assistant or tool; `calls`: results follow."""

    role: str
    parts: tuple[Slot | str, ...]
    calls: bool = False


@dataclass(frozen=True)
class Literal:
    """The template's own text, tokenised with control tokens on. It belongs to the block whose slot it leads to."""

    text: str
    block: BlockKind


Piece: TypeAlias = Literal | Slot
_Roles: TypeAlias = tuple[Role, ...]
_Growing = list[tuple[str, list[Slot | str]]]  # roles and parts: one message may be of thousands of turns
_HEAD: tuple[Slot, ...] = tuple(Slot(kind) for kind in ORDER[:4])
_EXCHANGE = (Role.USER, Role.ASSISTANT)
_TRIED = ((), _EXCHANGE, _EXCHANGE * 2)
_CALLED = (Role.ASSISTANT, Role.TOOL)
_GROWING = (_CALLED, _CALLED * 2, (*_CALLED * 3, Role.TOOL))  # a running turn
_WITH_RESULTS = (Role.USER, *_CALLED, Role.TOOL, *_CALLED, Role.ASSISTANT)  # earlier turns


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
        self,
        turns: Sequence[Role] = (),
        *,
        running: Sequence[Role] = (),
        way: Way = Way.SYSTEM,
        results: bool = False,
        think: bool = True,
    ) -> tuple[Piece, ...]:
        """The prompt's pieces in order, for these earlier turns and what the running turn has appended since the question.

        results: calls and results are the template's own; see `Placement.results`.
        think: False asks the template not to let the model think; see `Placement.no_think` before using it.
        Raises TemplateRefused when the template refuses or a slot is lost, doubled, changed or moved.
        """
        layout = self._cached_layout if len(turns) + len(running) <= KEPT_TURNS else self._layout
        return layout(tuple(turns), tuple(running), way, results, think)

    @cached_property
    def _cached_layout(self) -> Callable[[_Roles, _Roles, Way, bool, bool], tuple[Piece, ...]]:
        return lru_cache(maxsize=512)(self._layout)

    def _layout(self, turns: _Roles, running: _Roles, way: Way, results: bool, think: bool) -> tuple[Piece, ...]:
        layouts = conversation(turns, running, way, results=results)
        marks = _Marks(part for one in layouts for part in one.parts if isinstance(part, Slot))
        text = self._render([self._message(one, marks) for one in layouts], way, think)
        called = ["".join(map(marks.of, one.parts)) for one in layouts if one.calls]
        pieces = tuple(marks.cut(self._with_answers(text, called) if results else text))
        pieces = _parted(pieces, lambda slot: speaker(slot, turns, running))
        if running:
            pieces = _led(pieces, running, self.layout(turns, way=way, results=results, think=think)[-1])
        return _begun(pieces, self.bos) if self.add_bos else pieces

    def _message(self, layout: MessageLayout, marks: "_Marks") -> Message:
        if layout.calls:
            assert self.calls_sample is not None
            return self.calls_sample.message
        message = {"role": layout.role, "content": "".join(map(marks.of, layout.parts))}
        return message if layout.role != "tool" else {**message, "tool_call_id": CALL_ID, "name": NAME}

    def _with_answers(self, text: str, answers: Sequence[str]) -> str:
        """The text with the answers that call in the places of the calls that stand for them."""
        if not answers:
            return text
        assert self.calls_sample is not None
        parts = text.split(self.calls_sample.text)
        if len(parts) != len(answers) + 1:
            raise TemplateRefused("the chat template writes a call otherwise where a result follows")
        text = "".join(part + answer for part, answer in zip(parts, (*answers, ""), strict=True))
        if NAME in text:
            raise TemplateRefused("the chat template names the tool beside its result")
        return text

    @property
    def calls(self) -> CallFormat:
        """How the template writes calls, or the plain form."""
        return self._calls[0]

    @property
    def calls_sample(self) -> CallSample | None:
        """A call as the template writes it; None where it writes none."""
        return self._calls[1]

    @cached_property
    def _calls(self) -> tuple[CallFormat, CallSample | None]:
        variables = {"bos_token": self.bos, "eos_token": self.eos}
        return read_calls(lambda messages: rendered(self._compiled, messages, variables, opening=False))

    def _render(self, messages: Sequence[Message], way: Way, think: bool) -> str:
        variables: dict[str, object] = {"bos_token": self.bos, "eos_token": self.eos}
        if not think:
            variables |= {"enable_thinking": False, "thinking": False}  # the two names that templates know
        return rendered(self._plain if way is Way.NONE else self._compiled, messages, variables)

    @cached_property
    def _compiled(self) -> Template:
        if not self.source.strip():
            raise TemplateRefused(
                "the model carries no chat template: it most likely continues texts and is no assistant"
            )
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

    @property
    def is_answer(self) -> bool:
        """Whether the model itself may have generated the text, control tokens too."""
        return self.item is not None and self.item.role is Role.ASSISTANT


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


def _led(pieces: tuple[Piece, ...], running: Sequence[Role], asked: Piece) -> tuple[Piece, ...]:
    """With what led to each answer of the running turn when it was generated: some templates write it otherwise as soon as
    the answer is there, and all behind it would be computed again. `asked`: what leads to the first answer."""
    told = pieces[-1]
    if not (isinstance(asked, Literal) and isinstance(told, Literal)):
        return pieces
    answers = [at for at, role in enumerate(running, start=1) if role is Role.ASSISTANT]
    leads: dict[Piece | None, Piece] = {Slot(BlockKind.QUERY, at): told if at > 1 else asked for at in answers}
    return tuple(
        leads[following] if following in leads and isinstance(piece, Literal) else piece
        for piece, following in zip(pieces, (*pieces[1:], None), strict=True)
    )


def _begun(pieces: tuple[Piece, ...], bos: str) -> tuple[Piece, ...]:
    first = pieces[0]
    if isinstance(first, Slot):
        return (Literal(bos, BlockKind.IDENTITY), *pieces) if bos else pieces
    return pieces if first.text.startswith(bos) else (Literal(bos + first.text, first.block), *pieces[1:])


# -- which slot is in which message


def conversation(
    turns: Sequence[Role], running: Sequence[Role], way: Way, *, results: bool = False
) -> tuple[MessageLayout, ...]:
    """The messages of a prompt with these earlier turns and what the running one has appended. `results`: a result is a
    message of the tool where an answer came before it. Raises InvalidPrompt."""
    if running and running[-1] is Role.ASSISTANT:
        raise InvalidPrompt("a running turn waits for an answer: it cannot end with the assistant's own words")
    messages = _opened(turns, way)
    for index, role in enumerate(turns):
        _say(messages, side(role, messages, results=results), Slot(BlockKind.STATE, index))
    _say(messages, "user", Slot(BlockKind.STATE, len(turns)), Slot(BlockKind.QUERY))
    for index, role in enumerate(running, start=1):
        _say(messages, side(role, messages, results=results), Slot(BlockKind.QUERY, index))
    followed = [following == "tool" for following, _ in messages[1:]]
    return tuple(
        MessageLayout(role, tuple(parts), role == "assistant" and calls)
        for (role, parts), calls in zip(messages, (*followed, False), strict=True)
    )


def side(role: Role, messages: _Growing, *, results: bool) -> str:
    """In whose message it is said, behind these."""
    if role is Role.TOOL and results and messages[-1][0] in ("assistant", "tool"):
        return "tool"
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
    if last != role or role == "tool":
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
    results: calls and their results are written as the template does; `calls`: how an answer writes calls.
    """

    way: Way
    reason: str = ""
    keeps_answers: bool = True
    no_think: NoThink = NoThink.NOTHING
    results: bool = False
    calls: CallFormat = PLAIN_CALLS


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
    reason, keeps, no_think = "; ".join(reasons), _keeps_answers(template, way), _no_think(template, way)
    if way is Way.NONE:
        return Placement(way, reason, keeps, no_think)
    return Placement(way, reason, keeps, no_think, _takes_results(template, way), template.calls)


def _takes_results(template: ChatTemplate, way: Way) -> bool:
    """Whether prompts with calls and results can be cut as others are, are equal to them up to Karma, and only grow while a
    turn is running."""
    usual = through(template.layout((), way=way), BlockKind.KARMA)
    if template.calls_sample is None:
        return False
    try:
        running = [template.layout(running=since, way=way, results=True) for since in _GROWING]
        closed = [template.layout(_WITH_RESULTS, running=since, way=way, results=True) for since in ((), _CALLED)]
    except TemplateRefused:
        return False
    grown = all(before == after[: len(before)] for before, after in pairwise(running))
    return grown and all(through(layout, BlockKind.KARMA) == usual for layout in (*running, *closed))


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
