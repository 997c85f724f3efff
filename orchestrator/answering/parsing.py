"""What a model's text says: the answer, thoughts, and calls of tools. Knows no engine and no tool."""

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from formatters.calls import ArgumentStyle, CallFormat
from orchestrator.engine.calling import THOUGHT, alternatives, few_values, may_be_any_text
from orchestrator.engine.messages import Ids, bytes_to_ids
from orchestrator.service import CallDelta, Text, Thought

Arguments = dict[str, Any]  # of a call, as the model says them
NO_SCHEMAS: Mapping[str, Any] = {}
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class ParsedCall:
    """`written`: the arguments as they were said, where that is JSON. `id`: what it was told by while it was said."""

    name: str
    arguments: Mapping[str, Any]
    written: str = field(default="", compare=False)
    id: str = field(default="", compare=False)


@dataclass(frozen=True)
class CutCall:
    """A call that had begun when the answer ended. Nothing of it is kept."""


def new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class AnswerParser:
    """Splits the text of a model that can call nothing into the answer and thoughts.

        <think>…</think>   a thought, where nothing was said before it
        anything else      the answer

    Text comes in pieces of any length, so what may be the beginning of a tag is held back until it is decided. Models
    think before they speak: the tag in the middle of an answer is quoted from somewhere.

    thinking: the template opened a thought at the end of the prompt.
    """

    def __init__(self, *, thinking: bool = False) -> None:
        self._thinking = thinking
        self._begun = False  # the answer: a thought comes before it
        self._held = ""

    def feed(self, piece: str, ids: Ids = b"") -> Iterator[Text | Thought]:
        """Parts that are certain now."""
        del ids
        self._held += piece
        at = 0
        while at >= 0:
            tag = self._tag()
            at = self._held.find(tag) if tag else -1
            certain = at if at >= 0 else len(self._held) - _beginning(self._held, tag)
            text, self._held = self._held[:certain], self._held[certain:]
            if text:
                yield self._part(text)
            if at >= 0:
                self._held = self._held[len(tag) :]
                self._thinking = tag == THOUGHT[0]

    def end(self, *, cut: bool = False) -> Iterator[Text | Thought]:
        """What was held back, now that nothing follows; the same where the text was `cut`."""
        del cut
        held, self._held = self._held, ""
        if held:
            yield self._part(held)

    def _tag(self) -> str:
        """What would end the part that is being read; '' where nothing does."""
        if self._thinking:
            return THOUGHT[1]
        ahead = self._held.lstrip()
        thinks = not self._begun and (ahead.startswith(THOUGHT[0]) or THOUGHT[0].startswith(ahead))
        return THOUGHT[0] if thinks else ""

    def _part(self, text: str) -> Text | Thought:
        if self._thinking:
            return Thought(text)
        self._begun = self._begun or bool(text.strip())
        return Text(text)


def _beginning(text: str, tag: str) -> int:
    """How many characters at the text's end may be the beginning of the tag."""
    sizes = range(min(len(text), len(tag) - 1), 0, -1)
    return next((size for size in sizes if tag.startswith(text[-size:])), 0)


# -- answers whose calls are bound to the tools that were offered


class BoundParser:
    """Splits a text whose calls the engine has bound to a form and to tools: text and thoughts, then calls up to the end.

    What begins as a call is held back until the text has ended, and is text where it is none: a model can spell out a
    control token. In a thought nothing is a call. A call that was cut off is dropped, and the ones before it are kept.
    `schemas`: of the arguments of each tool that was offered. `told`: the calls that are told as they come.
    """

    def __init__(
        self, form: CallFormat, schemas: Mapping[str, Any], *, thinking: bool = False, told: "ToldCalls | None" = None
    ) -> None:
        self._form = form
        self._told_calls = told
        self._schemas = schemas
        self._free = AnswerParser(thinking=thinking)
        self._held = ""
        self._said = False  # text before calls
        self._calling = False

    def feed(self, piece: str, ids: Ids = b"") -> Iterator[Text | Thought | CallDelta | ParsedCall]:
        """Parts that are certain now. `ids`: the tokens of the text so far that were not given yet."""
        if self._told_calls is not None:
            self._told_calls.saw(ids)
        for part in self._free.feed(piece):
            yield from self._told(part)

    def end(self, *, cut: bool = False) -> Iterator[Text | Thought | CallDelta | ParsedCall | CutCall]:
        """What was held back. `cut`: the text ended because it may not be longer."""
        for part in self._free.end():
            yield from self._told(part)
        at, calls, begun = self._calls(cut=cut)
        ids = self._told_calls.ids if self._told_calls is not None else []
        if ids and not calls:
            at, begun = self._held.find(self._form.trigger), True
        elif cut and not calls and self._calling:
            at, begun = self._held.rfind(self._form.trigger), True
        if at:
            yield Text(self._held[:at])
        yield from (replace(call, id=ids[at]) if at < len(ids) else call for at, call in enumerate(calls))
        if begun:
            yield CutCall()

    def _told(self, part: Text | Thought) -> Iterator[Text | Thought | CallDelta]:
        if isinstance(part, Thought):
            yield part
            return
        self._held += part.delta
        if self._calling:
            if self._told_calls is not None:
                yield from self._told_calls.feed(part.delta)
            return
        at = self._next(0)
        self._calling = at >= 0
        certain = at if self._calling else len(self._held) - self._undecided()
        text, self._held = self._held[:certain], self._held[certain:]
        self._said = self._said or bool(text)
        if text:
            yield Text(text)
        if self._calling and self._told_calls is not None:
            self._told_calls = self._told_calls if self._told_calls.marked else None
            yield from self._told_calls.feed(self._held) if self._told_calls is not None else ()

    def _calls(self, *, cut: bool) -> tuple[int, list[ParsedCall], bool]:
        """Where they begin, what they are, and whether one more was cut off: of what the arguments of a cut one hold none
        is a call."""
        first = at = self._next(0)
        while at >= 0:
            calls, rest = _first_calls(self._form, self._held[at:], self._schemas)
            ended = _is_end(self._form, rest) or (cut and at == first and _is_cut(self._form, rest))
            if ended and calls and all(one.name in self._schemas for one in calls):
                return at, calls, not self._form.close.startswith(rest.rstrip("\n"))
            at = self._next(at + 1)
        return len(self._held), [], False

    def _next(self, start: int) -> int:
        """Where calls may begin, from there on; -1 where they do not."""
        if self._form.alone and (self._said or start):
            return -1
        at = self._held.find(self._form.trigger, start)
        return -1 if self._form.alone and at else at

    def _undecided(self) -> int:
        """Characters at the end that may be the beginning of calls."""
        if not self._form.alone:
            return _beginning(self._held, self._form.trigger)
        return len(self._held) if not self._said and self._form.trigger.startswith(self._held) else 0


class ToldCalls:
    """Tells calls as they come, where their arguments are one JSON object: the pieces are the text itself.

    `names`: of those that are told. `mark`: the control token that calls begin with; a model can spell it out, and what
    follows is bound to nothing then. None: their beginning is no control token, and nobody can say it otherwise.
    """

    def __init__(self, form: CallFormat, names: Collection[str], mark: int | None) -> None:
        self._form = form
        self._names = names
        self._mark = mark
        self.marked = mark is None
        self.ids: list[str] = []  # of all calls so far
        self._head = form.begin  # what stands before the next name
        self._held = ""
        self._name = ""  # of the call whose arguments come
        self._depth, self._quoted, self._escaped = 0, False, False

    def saw(self, ids: Ids) -> None:
        self.marked = self.marked or self._mark in bytes_to_ids(ids)

    def feed(self, text: str) -> Iterator[CallDelta]:
        """`text`: what follows in the calls, from their beginning on."""
        self._held += text
        while self._held and (self._name or self._named()):
            size = self._within()
            piece, self._held = self._held[:size], self._held[size:]
            if piece and self._name in self._names:
                yield CallDelta(self.ids[-1], self._name, piece)
            if piece and not self._depth:
                self._name, self._head = "", self._form.end + self._form.between

    def _named(self) -> bool:
        name, before, rest = self._held.removeprefix(self._head).partition(self._form.before)
        if not before or not self._held.startswith(self._head):
            return False
        self._name, self._held = name, rest
        self.ids.append(new_id())
        return True

    def _within(self) -> int:
        """How much of what is held belongs to the object."""
        for at, sign in enumerate(self._held, 1):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = sign == "\\", sign != '"'
            elif sign == '"':
                self._quoted = True
            elif sign in "{[":
                self._depth += 1
            elif sign in "}]":
                self._depth -= 1
                if not self._depth:
                    return at
        return len(self._held)


def parsed_calls(form: CallFormat, text: str, schemas: Mapping[str, Any] = NO_SCHEMAS) -> list[ParsedCall]:
    """The calls that the whole text consists of; none where it does not. `schemas` of the arguments of each tool."""
    calls, rest = _first_calls(form, text, schemas)
    return calls if _is_end(form, rest) else []


def _first_calls(form: CallFormat, text: str, schemas: Mapping[str, Any]) -> tuple[list[ParsedCall], str]:
    """The whole calls that the text begins with, and what follows the last of them."""
    calls: list[ParsedCall] = []
    end, before = 0, form.begin
    while before and text.startswith(before, end):
        found = _parsed_call(form, text, end + len(before), schemas)
        if found is None:
            break
        (call, end), before = found, form.between
        calls.append(call)
    return calls, text[end:]


def _is_end(form: CallFormat, rest: str) -> bool:
    return rest.rstrip("\n") == form.close.rstrip("\n")


def _is_cut(form: CallFormat, rest: str) -> bool:
    """Whether this may stand behind a call where the text may not be longer: a part of the end, or of another call."""
    more = form.between
    return form.close.startswith(rest) or (bool(more) and (rest.startswith(more) or more.startswith(rest)))


def _parsed_call(form: CallFormat, text: str, at: int, schemas: Mapping[str, Any]) -> tuple[ParsedCall, int] | None:
    """The call whose name begins here, and where it ends."""
    opening = "{" if form.style is None else form.style.begin
    ends = [text.find(sign, at) for sign in ((form.before,) if form.before else (opening, form.end)) if sign]
    name = min((end for end in ends if end >= 0), default=-1)
    if name < 0:
        return None
    begin = name + len(form.before)
    schema = schemas.get(text[at:name], {})
    try:
        given, end = _DECODER.raw_decode(text, begin) if form.style is None else _one_by_one(form, text, begin, schema)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not text.startswith(form.end, end):
        return None
    written = text[begin:end] if form.style is None else ""
    return ParsedCall(text[at:name], given, written), end + len(form.end)


# -- arguments one by one, as the engine lets them be written


def _one_by_one(form: CallFormat, text: str, at: int, schema: Mapping[str, Any]) -> tuple[Arguments, int]:
    """The arguments that begin here, and where they end. Raises ValueError."""
    style = form.style
    assert style is not None
    given: Arguments = {}
    more = text.startswith(style.begin, at) if style.begin else not text.startswith(form.end, at)
    while more:
        name = text.index(style.equals, at)
        key = text[at + len(style.begin) : name]
        given[key], at = _value(style, text, name + len(style.equals), schema, key)
        more = text.startswith(style.between + style.begin, at) if style.between or style.begin else False
        at += len(style.between) if more else 0
    return given, at


def _value(style: ArgumentStyle, text: str, at: int, schema: Mapping[str, Any], key: str) -> tuple[Any, int]:
    """The value that begins here, and where its argument ends. Raises ValueError."""
    quote, end = style.quote, style.end
    if quote and text.startswith(quote, at):
        close = text.index(quote + end, at + len(quote))
        return text[at + len(quote) : close], close + len(quote + end)
    kinds = alternatives(schema.get("properties", {}).get(key, {}), schema)
    raw = quote == "" and any(map(may_be_any_text, kinds))
    constants = [value for one in kinds for value in few_values(one) or () if not raw]
    for value in sorted(constants, key=lambda value: -len(str(value))):
        written = style.value(value)
        if text.startswith(written + end, at):
            return value, at + len(written + end)
    if raw:
        close = text.index(end, at)
        return text[at:close], close + len(end)
    value, close = _DECODER.raw_decode(text, at)
    if not text.startswith(end, close):
        raise ValueError(f"no argument ends at {close}")
    return value, close + len(end)
