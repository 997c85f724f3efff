"""What a model's text says: the answer, thoughts, and calls of tools. Knows no engine and no tool."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from formatters.calls import ArgumentStyle, CallFormat
from orchestrator.engine.calling import alternatives, few_values, may_be_any_text
from orchestrator.service import Text, Thought

CALL = ("<tool_call>", "</tool_call>")  # as formatters.writers tells the model of our own tools
THOUGHT = ("<think>", "</think>")
Arguments = dict[str, Any]  # of a call, as the model says them
NO_SCHEMAS: Mapping[str, Any] = {}
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class ParsedCall:
    name: str
    arguments: Mapping[str, Any]


class AnswerParser:
    """Splits a model's text into the answer, thoughts, and tool calls.

        <think>…</think>                                        a thought, where nothing was said before it
        <tool_call>{"name": "…", "arguments": {…}}</tool_call>   a call; nothing behind it belongs to this answer
        anything else                                           the answer

    Text comes in pieces of any length, so what may be the beginning of a tag is held back until it is decided. A call
    that was begun and never ended, or that is not JSON of that form, is text. Models think before they speak: the tag in
    the middle of an answer is quoted from somewhere. After a call the parser is `done` and takes nothing more.

    thinking: the template opened a thought at the end of the prompt. calls: whether the model was told of tools.
    beyond:   characters behind the call, which were dropped.
    """

    def __init__(self, *, thinking: bool = False, calls: bool = True) -> None:
        self._thinking = thinking
        self._begun = False  # the answer: a thought comes before it
        self._calls = [CALL[0]] if calls else []
        self._held = ""
        self.done = False
        self.beyond = 0

    def feed(self, piece: str) -> Iterator[Text | Thought | ParsedCall]:
        """Parts that are certain now."""
        if self.done:
            return
        self._held += piece
        tag = THOUGHT[0]
        while tag:
            tags = self._tags()
            at, tag = _first(self._held, tags)
            certain = at if tag else len(self._held) - _beginning(self._held, tags)
            text, self._held = self._held[:certain], self._held[certain:]
            if text:
                yield self._part(text)
            if tag == CALL[0]:
                end = self._held.find(CALL[1]) + len(CALL[1])
                if end < len(CALL[1]):
                    return
                whole, self._held = self._held[:end], self._held[end:]
                called = _called(whole[len(CALL[0]) : -len(CALL[1])])
                if called is not None:
                    self.done, self.beyond = True, len(self._held)
                    yield called
                    return
                yield self._part(whole)
            elif tag:
                self._held = self._held[len(tag) :]
                self._thinking = tag == THOUGHT[0]

    def end(self) -> Iterator[Text | Thought | ParsedCall]:
        """What was held back, now that nothing follows."""
        if self._held and not self.done:
            yield self._part(self._held)
        self.done = True

    def _tags(self) -> list[str]:
        """What would end the part that is being read."""
        if self._thinking:
            return [THOUGHT[1]]
        ahead = self._held.lstrip()
        thinks = not self._begun and (ahead.startswith(THOUGHT[0]) or THOUGHT[0].startswith(ahead))
        return [*self._calls, THOUGHT[0]] if thinks else self._calls

    def _part(self, text: str) -> Text | Thought:
        if self._thinking:
            return Thought(text)
        self._begun = self._begun or bool(text.strip())
        return Text(text)


def _called(body: str) -> ParsedCall | None:
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return ParsedCall(call["name"], arguments) if isinstance(arguments, dict) else None


def _first(text: str, tags: list[str]) -> tuple[int, str]:
    found = [(at, tag) for tag in tags if (at := text.find(tag)) >= 0]
    return min(found, default=(-1, ""))


def _beginning(text: str, tags: list[str]) -> int:
    """How many characters at the text's end may be the beginning of a tag."""
    longest = min(len(text), max((len(tag) for tag in tags), default=1) - 1)
    for size in range(longest, 0, -1):
        if any(tag.startswith(text[-size:]) for tag in tags):
            return size
    return 0


# -- answers whose calls are bound to the tools that were offered


class BoundParser:
    """Splits a text whose calls the engine has bound to a form and to tools: text and thoughts, then calls up to the end.

    What begins as a call is held back until the text has ended, and is text where it is none: a model can spell out a
    control token. A call that was cut off is dropped. `schemas`: of the arguments of each tool that was offered. It is
    never `done`: the engine ends the answer behind the calls.
    """

    done = False
    beyond = 0

    def __init__(self, form: CallFormat, schemas: Mapping[str, Any], *, thinking: bool = False) -> None:
        self._form = form
        self._schemas = schemas
        self._free = AnswerParser(thinking=thinking, calls=False)
        self._held = ""
        self._calling = False

    def feed(self, piece: str) -> Iterator[Text | Thought | ParsedCall]:
        """Parts that are certain now."""
        self._held += piece
        if self._calling:
            return
        at = self._held.find(self._form.trigger)
        self._calling = at >= 0
        certain = at if self._calling else len(self._held) - _beginning(self._held, [self._form.trigger])
        text, self._held = self._held[:certain], self._held[certain:]
        yield from self._free.feed(text)

    def end(self, *, cut: bool = False) -> Iterator[Text | Thought | ParsedCall]:
        """What was held back. `cut`: the text ended because it may not be longer."""
        at, calls = self._calls()
        if cut and not calls and self._calling:
            at = self._held.rfind(self._form.trigger)
        yield from self._free.feed(self._held[:at])
        yield from self._free.end()
        yield from calls

    def _calls(self) -> tuple[int, list[ParsedCall]]:
        """Where they begin, and what they are."""
        at = self._held.find(self._form.trigger)
        while at >= 0:
            calls = parsed_calls(self._form, self._held[at:], self._schemas)
            if calls and all(one.name in self._schemas for one in calls):
                return at, calls
            at = self._held.find(self._form.trigger, at + 1)
        return len(self._held), []


def parsed_calls(form: CallFormat, text: str, schemas: Mapping[str, Any] = NO_SCHEMAS) -> list[ParsedCall]:
    """The calls that the whole text consists of; none where it does not. `schemas` of the arguments of each tool."""
    if not text.startswith(form.begin):
        return []
    calls: list[ParsedCall] = []
    at, more = len(form.begin), True
    while more:
        found = _parsed_call(form, text, at, schemas)
        if found is None:
            return []
        call, at = found
        calls.append(call)
        more = bool(form.between) and text.startswith(form.between, at)
        at += len(form.between) if more else 0
    return calls if text[at:].rstrip("\n") == form.close.rstrip("\n") else []


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
    return ParsedCall(text[at:name], given), end + len(form.end)


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
