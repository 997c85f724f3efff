"""How a model's chat template writes calls of tools, read off the template itself.

An answer that makes a call is rendered, and one that makes two and three, with sentinels for the tool's name and its
argument. What lies around the sentinels is how the template writes calls:

    <|im_start|>assistant\\n   <tool_call>\\n{"name": "  NAME  ", "arguments": {"qkey": "V"}  }\\n</tool_call>   <|im_end|>
    └─ as before any answer ┘ └─ begin ─────────────┘      └─ before ────┘└ arguments ──┘└─ end ──────────┘ └ as after any ┘

The arguments are a JSON object, or are written one by one, between marks (Qwen's coder, GLM), or as code (Gemma, pythonic).
A template that writes them otherwise, or that has no calls, gets the plain form. In each case the prompt shows the form
beside the tools.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from formatters.blocks import TemplateRefused

Render = Callable[[Sequence[Mapping[str, Any]]], str]
"""The text of these messages without the prompt for an answer. Raises TemplateRefused."""


@dataclass(frozen=True)
class ArgumentStyle:
    """Arguments that are written one by one:

        begin NAME equals VALUE end   between   begin NAME equals VALUE end

    `quote`: on both sides of a string, which is raw then; None: strings are JSON. Other values are JSON, but for `words`,
    which stand for true, false and null.
    """

    begin: str = ""
    equals: str = ""
    end: str = ""
    between: str = ""
    quote: str | None = None
    words: tuple[str, str, str] = ("true", "false", "null")

    def written(self, given: Mapping[str, Any]) -> str:
        """The arguments as an answer has them."""
        each = (f"{self.begin}{name}{self.equals}{self.value(value)}{self.end}" for name, value in given.items())
        return self.between.join(each)

    def value(self, value: object) -> str:
        if isinstance(value, str) and self.quote is not None:
            return f"{self.quote}{value}{self.quote}"
        text = json.dumps(value, ensure_ascii=False)
        return dict(zip(("true", "false", "null"), self.words, strict=True)).get(text, text)


@dataclass(frozen=True)
class CallFormat:
    """How calls are written, as texts in which control tokens are spelled out:

        begin NAME before ARGUMENTS end   between NAME before ARGUMENTS end   …   close

    `trigger` begins `begin`: the first text that is a call and nothing else. Without `between` an answer makes one call.
    `family` names the form. `why`: why the template's own form is not used; empty where it is. `style`: None where the
    arguments are a JSON object. `alone`: calls are the whole answer, because their beginning is found in ordinary texts.
    """

    family: str
    trigger: str
    begin: str
    before: str
    end: str
    between: str = ""
    close: str = ""
    why: str = ""
    style: ArgumentStyle | None = None
    alone: bool = False

    def written(self, calls: Sequence[tuple[str, str]]) -> str:
        """Calls, each as a name and arguments in JSON, as an answer makes them."""
        each = (f"{name}{self.before}{self._arguments(given)}{self.end}" for name, given in calls)
        return self.begin + self.between.join(each) + self.close

    @property
    def example(self) -> str:
        """A call as a prompt shows it."""
        given = "{…}" if self.style is None else json.dumps({"ARGUMENT": "VALUE"})
        return self.written([("TOOL", given)])

    def _arguments(self, given: str) -> str:
        if self.style is None:
            return given
        try:
            found = json.loads(given)
        except (ValueError, RecursionError):
            found = {}  # of a client that sends what no model said
        return self.style.written(found if isinstance(found, dict) else {})


PLAIN_CALLS = CallFormat(
    family="plain",
    trigger="<tool_call>",
    begin='<tool_call>{"name": "',
    before='", "arguments": ',
    end="}</tool_call>",
    between='\n<tool_call>{"name": "',
)
"""Used where the template's own form is not."""

NAME, CALL_ID = "Qname", "call00000"  # nine characters: Mistral's templates demand it
"""Of the call in a `CallSample`. The name must not be left in a prompt."""


@dataclass(frozen=True)
class CallSample:
    """An answer that makes one call, as a template takes it and as it writes the call."""

    message: Mapping[str, Any]
    text: str


_FAMILIES = (
    ("hermes", "<tool_call>"),
    ("mistral", "[TOOL_CALLS]"),
    ("deepseek", "<｜tool▁call"),
    ("kimi", "<|tool_calls_section_begin|>"),
    ("harmony", " to=functions."),
    ("llama3", '{"name": "'),
)
"""A family, and what `begin` starts with."""

_KEY, _VALUE, _SAID, _USER, _ID = "qkey", "QvalueQ", "QsaidQ", "QuserQ", CALL_ID[:-1]
_ARGUMENTS = re.compile(rf'\{{\s*"{_KEY}":\s*"{_VALUE}"\s*\}}')
_NEXT, _MORE, _COUNT = "qnext", "QmoreQ", 12345  # of a second argument, and a value that is no text
_NUMBER = re.compile(rf'\[CALL_ID\]{_ID}\d|,\s*"id": "{_ID}\d"')  # of a call; models write one of their own, or none
_THOUGHT = re.compile(
    r"\s*(<think>\s*)?</think>\s*|<\|START_THINKING\|><\|END_THINKING\|>"
)  # before answers of earlier turns
_MARK = re.compile(r"<[^<>\s]{3,40}>|\[[A-Z_]{4,40}\]")  # a control token, or what looks like one
_HALF_MARK = re.compile(r"<[^<>\s]*\Z")
_LAST_MARK = re.compile(r"(<[^<>\s]{3,40}>)\s*\Z")
_LONGEST = 60  # characters behind the arguments
_MOST = 3  # calls: the second may not follow as the first begins, nor the third as the second


class _Unread(Exception):
    """Says why a template's own form is not used."""


def read_calls(render: Render) -> tuple[CallFormat, CallSample | None]:
    """How the template behind `render` writes calls, and a call as it does, where it does. Never raises."""
    sample = None
    try:
        sample = _sample(render)
        style, given = (None, _ARGUMENTS) if _ARGUMENTS.search(sample.text) else _style(render)
        found = _parts([_without_numbers(text) for text in (sample.text, *_several(render))], style, given)
    except (_Unread, TemplateRefused) as refused:
        return replace(PLAIN_CALLS, why=str(refused)), sample
    return found, sample


def _sample(render: Render) -> CallSample:
    """With its arguments as an object, which most templates want, or as text."""
    for as_text in (False, True):
        message = _calling(1, as_text=as_text)
        try:
            return CallSample(message, _called(render, message))
        except TemplateRefused as refused:
            refusal = refused
    raise refusal


def _calling(calls: int, *, as_text: bool = False, given: Any = None) -> dict[str, Any]:
    given = given or {_KEY: _VALUE}
    function = {"name": NAME, "arguments": json.dumps(given) if as_text else given}
    made = [{"id": f"{_ID}{number}", "type": "function", "function": function} for number in range(calls)]
    return {"role": "assistant", "content": "", "tool_calls": made}


def _several(render: Render) -> list[str]:
    """Nothing where the template takes one call at most."""
    for as_text in (False, True):
        try:
            return [_called(render, _calling(calls, as_text=as_text)) for calls in range(2, _MOST + 1)]
        except (_Unread, TemplateRefused):
            continue
    return []


def _called(render: Render, message: Mapping[str, Any]) -> str:
    """What the template writes for the calls of a message, without what it writes around every answer."""
    before, said, after = _answer(render, {"role": "assistant", "content": _SAID}).partition(_SAID)
    if not said:
        raise _Unread("the template changes answers")
    text = _answer(render, message)
    text = text[len(_common([text, before])) :]
    if NAME not in text:
        raise _Unread("the template has no calls")
    return _ended(text, after)


def _ended(text: str, after: str) -> str:
    """Without the end of an answer, which is not the call's."""
    ended, mark = text.endswith(after), _LAST_MARK.search(after)
    text = text.removesuffix(after)
    end = text.find(mark[1], text.rfind(_VALUE)) if mark else -1
    if end >= 0:
        return text[:end]
    return text if ended else _LAST_MARK.sub("", text)  # an answer that calls may end with a mark of its own


def _common(texts: Sequence[str]) -> str:
    """The text that all begin with, up to the border of a mark."""
    return _HALF_MARK.sub("", _same(texts))


def _same(texts: Sequence[str]) -> str:
    return "".join(one for one, *_ in takewhile(lambda signs: len(set(signs)) == 1, zip(*texts, strict=False)))


def _answer(render: Render, answer: Mapping[str, Any]) -> str:
    """The text behind a question."""
    text = render([{"role": "user", "content": _USER}, answer])
    return text[text.rfind(_USER) + len(_USER) :]


def _without_numbers(text: str) -> str:
    return _NUMBER.sub("", text)


def _parts(texts: Sequence[str], style: ArgumentStyle | None, given: re.Pattern[str]) -> CallFormat:
    """From one call, then two and three where the template takes them."""
    begin, before, rest = _around_call(texts[0], given)
    begin = _THOUGHT.sub("", begin, count=1).lstrip("\n")
    follow = [_followed(text, before, given) for text in texts[1:]]
    between = follow[0] if follow and follow[0] == follow[-1] else ""
    end = _common([rest, between]) if between else rest
    if _ID in begin + before + end:
        raise _Unread("a call has a number of its own")
    if len(rest) > _LONGEST:
        raise _Unread("more than the call is written")
    family = next((name for name, sign in _FAMILIES if begin.startswith(sign)), "own")
    trigger, alone = _trigger(begin), begin.startswith("{")
    between, close = between[len(end) :], rest[len(end) :]
    return CallFormat(family, trigger, begin, before, end, between, close, style=style, alone=alone)


def _around_call(text: str, given: re.Pattern[str]) -> tuple[str, str, str]:
    """What is before the name, between it and the arguments, and behind these."""
    begin, _, rest = text.partition(NAME)
    if NAME in rest:
        raise _Unread("a call names its tool twice")
    found = given.search(rest)
    if found is None:
        raise _Unread("arguments are written in another way")
    return begin, rest[: found.start()], rest[found.end() :]


def _followed(text: str, before: str, given: re.Pattern[str]) -> str:
    """What is between the arguments of the last call but one and the next name; empty where each call is numbered."""
    found = list(given.finditer(text))
    if len(found) < 2:
        return ""
    between, _, last = text[found[-2].end() : found[-1].start()].partition(NAME)
    return between if last == before and _ID not in between else ""


def _trigger(begin: str) -> str:
    """A mark where it begins with one, else all of it."""
    if not begin.strip():
        raise _Unread("nothing says where a call begins")
    found = _MARK.match(begin)
    if found and found[0] != begin and found[0].endswith("sep|>"):
        raise _Unread("a call is a message of its own")
    return found[0] if found else begin


# -- arguments one by one


def _style(render: Render) -> tuple[ArgumentStyle, re.Pattern[str]]:
    """How arguments are written that are no JSON object, and the sample's."""
    first, second, number = {_KEY: _VALUE}, {_NEXT: _MORE}, {_KEY: _COUNT}
    lead, key, more, again, rest = _between(_given(render, {**first, **second}), NAME, _KEY, _VALUE, _NEXT, _MORE)
    equals = _between(_given(render, number), _KEY, str(_COUNT))[0]
    quote = key.removeprefix(equals)
    if key != again or not key.startswith(equals) or not (more.startswith(quote) and rest.startswith(quote)):
        raise _Unread("arguments are written in another way")
    more, rest = more[len(quote) :], rest[len(quote) :]
    begin = _same([lead[::-1], more[::-1]])[::-1]
    begin = begin[begin.rfind("<") :] if "<" in begin else ""
    more = more.removesuffix(begin)
    end = _common([more, rest])
    if not quote and not end:
        raise _Unread("nothing says where an argument ends")
    words = tuple(_word(render, value, equals, rest) for value in (True, False, None))
    raw = None if quote in ("'", '"') else quote
    style = ArgumentStyle(begin, equals, end, more[len(end) :], raw, (words[0], words[1], words[2]))
    return style, re.compile(re.escape(f"{begin}{_KEY}{equals}{quote}{_VALUE}{quote}{end}"))


def _given(render: Render, given: Mapping[str, Any]) -> str:
    return _called(render, _calling(1, given=given))


def _word(render: Render, value: bool | None, equals: str, rest: str) -> str:
    text = _given(render, {_KEY: value}).partition(_KEY + equals)[2]
    word = text[: text.rfind(rest)] if rest else text
    return word if word.isalpha() else json.dumps(value)


def _between(text: str, *marks: str) -> list[str]:
    """What is behind each mark, up to the next one."""
    found = []
    _, _, text = text.partition(marks[0])
    for mark in marks[1:]:
        if text.count(mark) != 1:
            raise _Unread("arguments are written in another way")
        before, _, text = text.partition(mark)
        found.append(before)
    return [*found, text]
