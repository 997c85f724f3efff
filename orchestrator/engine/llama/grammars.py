"""Constraints on an answer's tokens, compiled by llguidance from JSON schemas and from rules for calls of tools.

    Sampling ─▶ the door (`schema`) ─▶ a grammar ─▶ a matcher, kept ─▶ a copy for each answer: `Constraint`

An answer with tools is free until a trigger (`orchestrator.engine.calling`). Its grammar for two tools, with a
control token for a trigger:

    start: free (<[7]> "\\n{\\"name\\": \\"" calls)?        free: (TEXT? <[other control tokens]>)* TEXT?
    calls: call (between call)* close                     call: "search" before_arguments @t0 end | "read" …
"""

import json
import re
import threading
from collections.abc import Iterable
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.calling import MOST_CALLS_BYTES, MOST_TOOLS, CallForm, OfferedTool, ToolRules
from orchestrator.engine.llama.schema import UNFORESEEN, read, said

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

KEPT = 32  # outcomes
WHITE_SPACE = r" |\n{1,2}[ \t]{0,20}"  # at one place: small models pad for ever
# Among other properties llguidance takes "\\u0061" for another name than "a", so nothing is written like that but the
# control characters that a schema itself has.
ESCAPES = 'nrbtf\\"'
CONTROL = re.compile(r"\\u00|\x7f")
TOOL_NAME = re.compile(r"[\w./:-]{1,128}", re.ASCII)  # stands within JSON and within marks, unescaped
ANY_OBJECT = '{"type": "object"}'
TEXT = r"TEXT: /(.|\n)+/"
Key = tuple[str, ToolRules | None]


class Grammars:
    """Compiles for one model's vocabulary. Keeps what came of the last KEPT, refusals too. Safe to use from several
    threads."""

    def __init__(self, vocabulary: object) -> None:
        self._vocabulary = vocabulary
        self._outcomes: dict[Key, LLMatcher | SchemaRefused] = {}  # the one that was used last is at the end
        self._lock = threading.Lock()  # not held while one is compiled

    def knows(self, schema: str, calls: ToolRules | None = None) -> bool:
        """Whether it is known what comes of them."""
        return (schema, calls) in self._outcomes

    def constraint(self, schema: str, calls: ToolRules | None = None) -> "Constraint":
        """For one answer, which fits the schema or makes the calls; without a schema it is text, or text and calls.

        Compiling takes up to 0.5 s, with Python's lock free. The first takes 1.5 s and 60 MB more for a vocabulary of
        150,000 tokens, 2.8 s for 262,000 (two slow cores). Raises SchemaRefused.
        """
        key = schema, calls
        found = self._outcomes.get(key) or self._compiled(key)
        with self._lock:
            self._outcomes.pop(key, None)
            self._outcomes[key] = found
            if len(self._outcomes) > KEPT:
                del self._outcomes[next(iter(self._outcomes))]
        if isinstance(found, SchemaRefused):
            raise SchemaRefused(str(found))
        return Constraint(found.deep_copy())

    def _compiled(self, key: Key) -> "LLMatcher | SchemaRefused":
        schema, calls = key
        try:
            return self._with_calls(schema, calls) if calls else self._matcher(of_schema(schema))
        except SchemaRefused as refused:
            return SchemaRefused(said(str(refused)))
        except UNFORESEEN as error:
            return SchemaRefused(said(f"no grammar can be made of the JSON schema: {in_words(error)}"))

    def _matcher(self, grammar: str) -> "LLMatcher":
        # Imported late: it is needed for constrained answers alone.
        from llguidance import LLMatcher, LLParserLimits

        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
        if matcher.is_error():
            raise SchemaRefused(f"no grammar can be made of the JSON schema: {matcher.get_error()}")
        Constraint(matcher.deep_copy()).mask()  # a reference that is only itself allows nothing
        return matcher

    def _with_calls(self, schema: str, rules: ToolRules) -> "LLMatcher":
        check_rules(rules)
        arguments = [self._arguments(tool) for tool in rules.tools]
        lark = lark_of(rules, Spelling(self._tokenizer), bool(schema))
        named = [{**inside, "name": f"t{at}"} for at, inside in enumerate(arguments)]
        answer = [{**json_grammar(schema), "name": "answer"}] if schema else []
        return self._matcher(json.dumps({"grammars": [{"lark_grammar": lark}, *named, *answer]}))

    def _arguments(self, tool: OfferedTool) -> dict[str, Any]:
        """The grammar of its arguments. Raises SchemaRefused for a strict tool that has none."""
        try:
            self._matcher(of_schema(tool.parameters))
            return json_grammar(tool.parameters)
        except (SchemaRefused, *UNFORESEEN) as error:
            if tool.strict:
                reason = error if isinstance(error, SchemaRefused) else in_words(error)
                raise SchemaRefused(f"the tool {tool.name}: {reason}") from error
            return json_grammar(ANY_OBJECT)

    @cached_property
    def _tokenizer(self) -> "LLTokenizer":
        from llguidance.llamacpp import lltokenizer_from_vocab

        tokens = range(lib.llama_vocab_n_tokens(self._vocabulary))
        ends = [token for token in tokens if lib.llama_vocab_is_eog(self._vocabulary, token)]
        if not ends:
            raise SchemaRefused(
                "the model's vocabulary has no end of text, so no answer could end where its schema does"
            )
        # llguidance calls it by its former name, which warns for each of 262,144 tokens.
        lib.llama_token_get_attr = lib.llama_vocab_get_attr
        return lltokenizer_from_vocab(self._vocabulary, eos_token=ends)


class Constraint:
    """What one answer may say next. A token that ends the text is allowed where the answer may end."""

    def __init__(self, matcher: "LLMatcher") -> None:
        self._matcher = matcher

    def allows(self, token: int) -> bool:
        return self._matcher.validate_tokens([token]) == 1

    def mask(self) -> NDArray[np.bool_]:
        """Of the whole vocabulary, the tokens allowed; its length is rounded up to 32. Raises SchemaRefused."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error() or not bits.any():
            raise self._refusal()
        return np.unpackbits(bits, bitorder="little").astype(bool)

    def forced(self) -> list[int]:
        """The next tokens, while only one is allowed and it is how the tokenizer spells the text."""
        return self._matcher.compute_ff_tokens()

    def accept(self, token: int) -> None:
        """Raises SchemaRefused."""
        if not self._matcher.consume_token(token):
            raise self._refusal()

    def _refusal(self) -> SchemaRefused:
        return SchemaRefused("the JSON schema allows nothing, or is too ambiguous")


def of_schema(schema: str) -> str:
    return json.dumps({"grammars": [json_grammar(schema)]})


def json_grammar(schema: str) -> dict[str, Any]:
    """As llguidance takes it. Raises SchemaRefused, and what is UNFORESEEN."""
    from llguidance import LLMatcher

    taken = json.dumps(read(schema), ensure_ascii=False, allow_nan=False)
    escapes = ESCAPES + "u" if CONTROL.search(taken) else ESCAPES
    # A oneOf is an anyOf: an answer may fit several alternatives.
    options: Any = {"whitespace_pattern": WHITE_SPACE, "json_allowed_escapes": escapes, "coerce_one_of": True}
    found: dict[str, Any] = json.loads(LLMatcher.grammar_from_json_schema(taken, overrides=options))["grammars"][0]
    return found


def in_words(error: Exception) -> str:
    if isinstance(error, ValueError | RecursionError):  # that say something of the schema
        return str(error)
    return "a keyword has a value of another kind than it takes"


# -- calls of tools


def check_rules(rules: ToolRules) -> None:
    """Raises SchemaRefused."""
    names = [tool.name for tool in rules.tools]
    if not 1 <= len(names) <= MOST_TOOLS:
        raise SchemaRefused(f"{len(names)} tools are offered; 1 to {MOST_TOOLS} are taken")
    for name in names:
        if not TOOL_NAME.fullmatch(name):
            raise SchemaRefused(f"the tool's name {name!r} is not made of letters, digits and _ - . / :")
    if len(set(names)) < len(names):
        raise SchemaRefused("two tools have one name")
    if (size := sum(len(tool.parameters.encode()) for tool in rules.tools)) > MOST_CALLS_BYTES:
        raise SchemaRefused(f"the schemas of all tools have {size} bytes; at most {MOST_CALLS_BYTES} are taken")
    if not rules.form.trigger or not rules.form.begin.startswith(rules.form.trigger):
        raise SchemaRefused("a call does not begin with its trigger")


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


def lark_of(rules: ToolRules, spelling: Spelling, with_schema: bool) -> str:
    """The grammar of an answer with calls; `@t0` stands for the arguments of the first tool."""
    form = rules.form
    trigger = spelling.pieces(form.trigger)[0]
    calls = "call (between call)* close" if rules.parallel and form.between else "call close"
    return "\n".join(
        [
            "%llguidance {}",
            *start_of(rules, trigger, spelling, with_schema),
            f"head: {spelling.lark(form.begin)}",
            f"calls: {calls}",
            f"between: {spelling.lark(form.between)}",
            f"close: {spelling.lark(form.close)}",
            "call: " + " | ".join(f"call_{at}" for at in range(len(rules.tools))),
            *(call_of(form, tool, at, spelling) for at, tool in enumerate(rules.tools)),
        ]
    )


def start_of(rules: ToolRules, trigger: str | int, spelling: Spelling, with_schema: bool) -> list[str]:
    """The rules of what stands before the calls, and instead of them."""
    if rules.required:
        return ["start: head calls"]
    if with_schema:
        return ["start: @answer | head calls"]
    if isinstance(trigger, int):
        others = spelling.controls([trigger])
        free = f"free: (TEXT? {others})* TEXT?" if others else "free: TEXT?"
        return ["start: free (head calls)?", free, TEXT]
    others = spelling.controls([])
    free = f"free: (TEXT? {others})*" if others else "free:"
    rest = spelling.lark(rules.form.begin[len(trigger) :])
    # The lazy text ends where the trigger first appears, and no other text goes over it.
    return [
        "start: free (TEXT? | trigger rest calls)",
        free,
        TEXT,
        f"trigger[lazy]: TEXT? {sign(trigger)}",
        f"rest: {rest}",
    ]


def call_of(form: CallForm, tool: OfferedTool, at: int, spelling: Spelling) -> str:
    return f"call_{at}: {sign(tool.name)} {spelling.lark(form.before_arguments)} @t{at} {spelling.lark(form.end)}"
