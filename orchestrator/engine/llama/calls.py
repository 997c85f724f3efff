"""The grammar of an answer with calls of tools, as text for llguidance. Pure: no vocabulary but through `Spelling`.

For two tools, with a control token for a trigger:

    start: free (head calls)?            free: (TEXT? <[other control tokens]>)* TEXT?       head: <[7]> "\\n["
    calls: call (between call)* close    call: "search" before args_0 end | "read" before args_1 end

Arguments are one JSON object, or written one by one. Those follow one another in the schema's order; `first_1` stands where
no argument was written before the second, `then_1` where one was:

    first_0: begin "a" equals @v0_0 end then_1 | first_1     (a may be left out)
    first_1: begin "b" equals @v0_1 end then_2               then_1: between begin "b" equals @v0_1 end then_2
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.calling import (
    MOST_CALLS_BYTES,
    MOST_TOOLS,
    PLACES,
    THOUGHT,
    ArgumentForm,
    CallForm,
    ToolRules,
    Words,
    alternatives,
    few_values,
    may_be_any_text,
)
from orchestrator.engine.llama.schema import KINDS, at_quotes, check_depth, read

if TYPE_CHECKING:
    from llguidance import LLTokenizer

TOOL_NAME = re.compile(r"[\w./:-]{1,128}", re.ASCII)  # stands within JSON and within marks, unescaped
ARGUMENT_NAME = re.compile(r"[^\s<>\"'=:,(){}\[\]]{1,128}")
ANY_TEXT = r"/(.|\n)+/"
TEXT = f"TEXT: {ANY_TEXT}"
ANY_NAME = "NAME: /[A-Za-z_][A-Za-z0-9_.-]{0,63}/"
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
JSON_WORDS = ("true", "false", "null")


class Spelling:
    """Texts as a grammar says them: control tokens by their ids."""

    def __init__(self, tokenizer: "LLTokenizer") -> None:
        self._tokenizer = tokenizer

    def pieces(self, text: str) -> list[str | int]:
        """Its plain texts, and the control tokens between them."""
        found: list[str | int] = []
        for token in self._tokenizer.tokenize_str(text, parse_special=True):
            spelled = self._tokenizer.decode_str([token])
            if self._tokenizer.is_special_token(token) and spelled in text:
                before, _, text = text.partition(spelled)
                found += [before, token] if before else [token]
        return [*found, text] if text else found

    def controls_in(self, texts: Iterable[str]) -> dict[int, bytes]:
        """The control tokens of texts, and how they are spelled."""
        found = {piece for text in texts for piece in self.pieces(text) if isinstance(piece, int)}
        return {token: self._tokenizer.decode_bytes([token]) for token in found}

    def lark(self, text: str) -> str:
        return " ".join(sign(piece) for piece in self.pieces(text))

    def controls(self, without: Iterable[int]) -> str:
        """One of the control tokens that neither end a text nor are these; empty where there are none."""
        found, left_out = self._tokenizer, {*without, *self._tokenizer.eos_tokens}
        every = (token for token in range(found.vocab_size) if found.is_special_token(token))
        # The byte 255 marks a control token, and alone it is one without a name.
        return ranges([token for token in every if token not in left_out and found.decode_str([token])])


def sign(piece: str | int) -> str:
    return f"<[{piece}]>" if isinstance(piece, int) else json.dumps(piece, ensure_ascii=False)


def ranges(tokens: Iterable[int]) -> str:
    """Ascending tokens as llguidance writes a choice of them."""
    runs = [list(run) for _, run in groupby(enumerate(tokens), lambda one: one[1] - one[0])]
    return f"<[{','.join(f'{run[0][1]}-{run[-1][1]}' for run in runs)}]>" if runs else ""


@dataclass(frozen=True)
class Part:
    """Rules of a grammar, and the JSON schemas that they name."""

    rules: Sequence[str]
    schemas: Mapping[str, Words] = field(default_factory=dict)


def check_rules(rules: ToolRules) -> None:
    """Raises SchemaRefused."""
    names = [tool.name for tool in rules.tools]
    if len(names) > MOST_TOOLS:
        raise SchemaRefused(f"{len(names)} tools are offered; {MOST_TOOLS} at most are taken")
    if rules.required and not names:
        raise SchemaRefused("a call is required, and no tool is offered")
    for name in names:
        if not TOOL_NAME.fullmatch(name):
            raise SchemaRefused(f"the tool's name {name!r} is not made of letters, digits and _ - . / :")
    if len(set(names)) < len(names):
        raise SchemaRefused("two tools have one name")
    if (size := sum(len(tool.parameters.encode()) for tool in rules.tools)) > MOST_CALLS_BYTES:
        raise SchemaRefused(f"the schemas of all tools have {size} bytes; at most {MOST_CALLS_BYTES} are taken")
    form = rules.form
    if not form.trigger or not form.begin.startswith(form.trigger):
        raise SchemaRefused("a call does not begin with its trigger")
    if form.style is not None and form.style.quote == form.style.end == "":
        raise SchemaRefused("nothing says where an argument's text ends")


def answer_of(rules: ToolRules, arguments: Sequence[Part], spelling: Spelling, *, with_schema: bool) -> str:
    """The rules of a whole answer; `@answer` in them is what fits the answer's own schema."""
    form = rules.form
    if not rules.tools:
        return "\n".join(["%llguidance {}", *without_calls(form, spelling, with_schema=with_schema)])
    several = rules.parallel and form.between
    return "\n".join(
        [
            "%llguidance {}",
            *start_of(rules, spelling, with_schema=with_schema),
            f"head: {spelling.lark(form.begin)}",
            f"calls: {'call (between call)* close' if several else 'call close'}",
            f"between: {spelling.lark(form.between)}",
            f"close: {spelling.lark(form.close)}",
            "call: " + " | ".join(f"call_{at}" for at in range(len(rules.tools))),
            *(call_of(form, tool.name, at, spelling) for at, tool in enumerate(rules.tools)),
            *(rule for part in arguments for rule in part.rules),
            ANY_NAME,
        ]
    )


def written_with(form: CallForm) -> Iterator[str]:
    """All that its calls are written with."""
    yield from (form.trigger, form.begin, form.before, form.end, form.between, form.close)
    if (one := form.style) is not None:
        yield from (one.begin, one.equals, one.end, one.between, one.quote or "")


def start_of(rules: ToolRules, spelling: Spelling, *, with_schema: bool) -> list[str]:
    """The rules of what stands before the calls, and instead of them."""
    trigger = spelling.pieces(rules.form.trigger)[0]
    if rules.required:
        return ["start: head calls", TEXT]
    if with_schema:
        return ["start: @answer | head calls", TEXT]
    return [*thought_of(spelling, opened=rules.thinking), *said_of(rules.form, trigger, spelling), TEXT]


def said_of(form: CallForm, trigger: str | int, spelling: Spelling) -> list[str]:
    """The rules of text and the calls behind it."""
    if isinstance(trigger, int):
        others = spelling.controls([trigger])
        return ["said: free (head calls)?", f"free: (TEXT? {others})* TEXT?" if others else "free: TEXT?"]
    others = spelling.controls([])
    if form.alone:
        free = f"free: FIRST? ({others} TEXT?)*" if others else "free: FIRST?"
        return ["said: free | head calls", free, f"FIRST: {ANY_TEXT} & ~/{pattern_of(trigger)}(.|\n)*/"]
    # The lazy text ends where the trigger first appears, and no other text goes over it.
    return [
        "said: free (TEXT? | trigger rest calls)",
        f"free: (TEXT? {others})*" if others else "free:",
        f"trigger[lazy]: TEXT? {sign(trigger)}",
        f"rest: {spelling.lark(form.begin[len(trigger) :])}",
    ]


def thought_of(spelling: Spelling, *, opened: bool) -> list[str]:
    """The rules of a whole answer: a thought to its end, or as far as it goes, and what is `said`."""
    begin, end = (spelling.pieces(text)[0] for text in THOUGHT)
    others = spelling.controls([end] if isinstance(end, int) else [])
    if isinstance(end, int):
        thought = ["thought: inside (end said)?", f"inside: (TEXT? {others})* TEXT?", f"end: {sign(end)}"]
    else:
        inside = f"inside: (TEXT? {others})*" if others else "inside:"
        thought = ["thought: inside (TEXT? | end said)", inside, f"end[lazy]: TEXT? {sign(end)}"]
    if opened:
        return ["start: thought", *thought]
    return [
        "start: said | begin thought",
        f"begin: BLANK? {sign(begin)}" if isinstance(begin, int) else f"begin[lazy]: BLANK? {sign(begin)}",
        r"BLANK: /\s+/",
        *thought,
    ]


def without_calls(form: CallForm, spelling: Spelling, *, with_schema: bool) -> list[str]:
    """The rules of an answer in which nothing begins as a call does."""
    if with_schema:
        return ["start: @answer"]
    trigger = spelling.pieces(form.trigger)[0]
    others = spelling.controls([trigger] if isinstance(trigger, int) else [])
    text = TEXT if isinstance(trigger, int) else f"{TEXT} & ~/(.|\n)*{pattern_of(trigger)}(.|\n)*/"
    return [f"start: (TEXT? {others})* TEXT?" if others else "start: TEXT?", text]


def pattern_of(text: str) -> str:
    """A regular expression for this text, as a grammar has one between its slashes."""
    return re.escape(text).replace("/", r"\/")


def call_of(form: CallForm, name: str, at: int, spelling: Spelling) -> str:
    return f"call_{at}: {sign(name)} {spelling.lark(form.before)} args_{at} {spelling.lark(form.end)}"


# -- arguments


def parameters_of(schema: str, *, strict: bool) -> Words:
    """A tool's schema, read, as one of an object: arguments are nothing else, and a tool without parameters takes none.
    Raises SchemaRefused, and what is UNFORESEEN."""
    check_depth(at_quotes(schema))
    given = json.loads(schema)
    if isinstance(given, dict) and KINDS.isdisjoint(given):
        given = {"type": "object", **given}
    if isinstance(given, dict) and given.get("properties") == {} and "patternProperties" not in given:
        given = {"additionalProperties": False, **given}
    found = read(json.dumps(given), loosely=not strict)
    if not isinstance(found, dict):
        raise SchemaRefused("the JSON schema of its arguments is no object")
    return found


def arguments_of(at: int, words: Words, form: ArgumentForm | None, spelling: Spelling) -> Part:
    """The rule `args_…` of the tool at this place in the list, and what it needs. Raises SchemaRefused."""
    if form is None:
        return Part([f"args_{at}: @t{at}"], {f"t{at}": words})
    between = f"between_{at}: {spelling.lark(form.between)}"
    listed = words.get("additionalProperties") is False and "patternProperties" not in words
    if not listed:
        value = Values(form, spelling, {}).part(f"{at}", {})
        one = f"one_{at}: {spelling.lark(form.begin)} NAME {spelling.lark(form.equals)} value_{at}"
        return Part([f"args_{at}: (one_{at} (between_{at} one_{at})*)?", one, between, *value.rules], value.schemas)
    names, required = list(words.get("properties", ())), words.get("required", ())
    values = Values(form, spelling, {key: words[key] for key in words.keys() & PLACES})
    rules, schemas = [f"args_{at}: first_{at}_0", between], dict[str, Words]()
    for number, name in enumerate(names):
        if not ARGUMENT_NAME.fullmatch(name):
            raise SchemaRefused(f"the argument's name {name!r} cannot be told from what stands around it")
        value = values.part(f"{at}_{number}", words["properties"][name])
        rules += [*order_of(at, number, optional=name not in required), *value.rules]
        rules += [f"one_{at}_{number}: {spelling.lark(form.begin + name + form.equals)} value_{at}_{number}"]
        schemas.update(value.schemas)
    return Part([*rules, f"first_{at}_{len(names)}:", f"then_{at}_{len(names)}:"], schemas)


def order_of(at: int, number: int, *, optional: bool) -> list[str]:
    one, after = f"one_{at}_{number} then_{at}_{number + 1}", number + 1
    first = f" | first_{at}_{after}" if optional else ""
    then = f" | then_{at}_{after}" if optional else ""
    return [f"first_{at}_{number}: {one}{first}", f"then_{at}_{number}: between_{at} {one}{then}"]


class Values:
    """Rules for values that are written by themselves, up to the end of the argument. `places`: what they may refer to."""

    def __init__(self, form: ArgumentForm, spelling: Spelling, places: Words) -> None:
        self._form = form
        self._spelling = spelling
        self._places = places

    def part(self, name: str, inside: Any) -> Part:
        """The rule `value_…`."""
        every = alternatives(inside, self._places)
        if self._form.quote is not None and any(map(may_be_any_text, every)):
            return Part(self._raw(name, self._form.quote))
        end, signs, schemas = self._spelling.lark(self._form.end), list[str](), dict[str, Words]()
        for number, one in enumerate(every):
            if (constants := few_values(one)) is not None and self._differs():
                signs += map(self._constant, constants)
            else:
                signs.append(f"@v{name}_{number}")
                schemas[signs[-1][1:]] = {**one, **self._places}
        return Part([f"value_{name}: ({' | '.join(signs)}) {end}"], schemas)

    def _raw(self, name: str, quote: str) -> list[str]:
        first, *rest = self._spelling.pieces(quote + self._form.end)
        behind = " ".join(map(sign, rest))
        if isinstance(first, int):
            return [f"value_{name}: {self._spelling.lark(quote)} TEXT? {sign(first)} {behind}"]
        lazy = f"text_{name}[lazy]: TEXT? {sign(first)}"
        return [f"value_{name}: {self._spelling.lark(quote)} text_{name} {behind}", lazy]

    def _constant(self, value: Any) -> str:
        if isinstance(value, str) and self._form.quote is not None:
            mark = self._spelling.lark(self._form.quote)
            return f"({mark} {json.dumps(value, ensure_ascii=False)} {mark})" if value else f"({mark} {mark})"
        text = json.dumps(value, ensure_ascii=False)
        return sign(dict(zip(JSON_WORDS, self._form.words, strict=True)).get(text, text))

    def _differs(self) -> bool:
        """Whether constants are written otherwise than in JSON."""
        return self._form.quote is not None or self._form.words != JSON_WORDS
