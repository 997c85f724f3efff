"""Constraints on an answer's tokens, compiled by llguidance from JSON schemas and from rules for calls of tools.

Sampling ─▶ the door (`schema`) ─▶ a grammar ─▶ a matcher, kept ─▶ a copy for each answer: `Constraint`
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.calling import CallForm, OfferedTool, ToolRules
from orchestrator.engine.llama.calls import (
    ANY_NAME,
    ANY_OBJECT,
    TEXT,
    Part,
    Spelling,
    answer_of,
    arguments_of,
    check_rules,
    parameters_of,
    written_with,
)
from orchestrator.engine.llama.schema import STRINGS, UNFORESEEN, Words, read, said, shared

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

KEPT = 32  # outcomes
STEP_FUEL = 150_000  # of a token's work on patterns: 15 ms at most were seen, 22 to 33 with llguidance's own 200,000
MOST_STATES = 50_000  # of a schema's patterns: 1 to 2 kB each
MOST_FORCED = 1024  # bytes, in 0.5 ms: they are tokenised again for each token, and 60,000 take 28 ms
WHITE_SPACE = r" |\n{1,2}[ \t]{0,20}"  # at one place: small models pad for ever
# Among other properties llguidance takes "\\u0061" for another name than "a", so nothing is written like that but the
# control characters that a schema itself has.
ESCAPES = 'nrbtf\\"'
CONTROL = re.compile(r"\\u00|\x7f")
Key = tuple[str, ToolRules | None]


class Grammars:
    """Compiles for one model's vocabulary. Keeps what came of the last KEPT, refusals too. Safe to use from several
    threads."""

    def __init__(self, vocabulary: object) -> None:
        self._vocabulary = vocabulary
        self._outcomes: dict[Key, LLMatcher | SchemaRefused] = {}  # the one that was used last is at the end
        self._lock = threading.Lock()  # not held while one is compiled

    @property
    def begun(self) -> bool:
        """Whether the tokenizer was made."""
        return "_tokenizer" in vars(self)

    def knows(self, schema: str, calls: ToolRules | None = None) -> bool:
        """Whether it is known what comes of them."""
        return (schema, calls) in self._outcomes

    def constraint(self, schema: str, calls: ToolRules | None = None) -> "Constraint":
        """For one answer, which fits the schema or makes the calls; without a schema it is text, or text and calls.

        Compiling takes up to 0.5 s, with Python's lock free. The first takes 1.5 s and 75 MB more for a vocabulary of
        150,000 tokens, 2.8 s and 130 MB for 262,000 (two slow cores). Raises SchemaRefused.
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
        spelled = Spelling(self._tokenizer).controls_in(written_with(calls.form)) if calls else {}
        patterns = any(
            '"pattern' in text for text in (schema, *(tool.parameters for tool in (calls.tools if calls else ())))
        )
        return Constraint(found.deep_copy(), partial(self._forget, key, found), spelled, patterns=patterns)

    def _forget(self, key: Key, matcher: "LLMatcher") -> None:
        """Copies share what their lexer has built: where one met a limit of it, all later ones would at once."""
        with self._lock:
            if self._outcomes.get(key) is matcher:
                del self._outcomes[key]

    def _compiled(self, key: Key) -> "LLMatcher | SchemaRefused":
        schema, calls = key
        try:
            return self._with_calls(schema, calls) if calls else self._of_schema(read(schema))
        except SchemaRefused as refused:
            return SchemaRefused(said(str(refused)))
        except UNFORESEEN as error:
            return SchemaRefused(said(f"no grammar can be made of the JSON schema: {in_words(error)}"))

    def _of_schema(self, words: Any) -> "LLMatcher":
        grammar = json_grammar(words)
        if '"pattern' in grammar:
            self._tried(words)
        return self._matcher([grammar])

    def _matcher(self, grammars: Sequence[str]) -> "LLMatcher":
        # Imported late: it is needed for constrained answers alone.
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(step_lexer_fuel=STEP_FUEL, max_lexer_states=MOST_STATES, verbose_errors=False)
        matcher = LLMatcher(self._tokenizer, f'{{"grammars": [{", ".join(grammars)}]}}', log_level=0, limits=limits)
        if matcher.is_error():
            raise SchemaRefused(f"no grammar can be made of the JSON schema: {matcher.get_error()}")
        Constraint(matcher.deep_copy(), lambda: None).bits()  # a reference that is only itself allows nothing
        return matcher

    def _tried(self, words: Any) -> Any:
        """The schema, if the first token of each of its ambiguous texts can be found: an answer would end in the middle.
        Raises SchemaRefused."""
        for pattern, begun, place in ambiguous(words):
            try:
                constraint = Constraint(self._matcher([json_grammar(place)]), lambda: None)
                for token in self._tokenizer.tokenize_str(begun):
                    constraint.accept(token)
                constraint.bits()
            except SchemaRefused as error:
                raise SchemaRefused(f"the pattern {pattern} is too ambiguous beside its lengths") from error
        return words

    def _with_calls(self, schema: str, rules: ToolRules) -> "LLMatcher":
        check_rules(rules)
        spelling = Spelling(self._tokenizer)
        answer = {"answer": self._tried(read(schema))} if schema else {}
        parts = [self._arguments(at, tool, rules.form, spelling) for at, tool in enumerate(rules.tools)]
        try:
            return self._matcher(
                grammars_of(answer_of(rules, parts, spelling, with_schema=bool(schema)), answer, parts)
            )
        except SchemaRefused:  # of which tool is known once each is compiled by itself
            parts = [self._arguments(at, tool, rules.form, spelling, alone=True) for at, tool in enumerate(rules.tools)]
        return self._matcher(grammars_of(answer_of(rules, parts, spelling, with_schema=bool(schema)), answer, parts))

    def _arguments(
        self, at: int, tool: OfferedTool, form: CallForm, spelling: Spelling, *, alone: bool = False
    ) -> Part:
        """Of the tool at this place. `alone`: if it can be compiled by itself. Raises SchemaRefused for a strict one."""
        try:
            parameters = self._tried(parameters_of(tool.parameters, strict=tool.strict))
            part = arguments_of(at, parameters, form.style, spelling)
            if alone:
                self._matcher(grammars_of("\n".join([f"start: args_{at}", TEXT, ANY_NAME, *part.rules]), {}, [part]))
        except (SchemaRefused, *UNFORESEEN) as error:
            if tool.strict:
                reason = error if isinstance(error, SchemaRefused) else in_words(error)
                raise SchemaRefused(f"the tool {tool.name}: {reason}") from error
            return arguments_of(at, ANY_OBJECT, form.style, spelling)
        return part

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
    """What one answer may say next. A token that ends the text is allowed where the answer may end. `failed` is called
    where the matcher is of no use any more. `spelled`: the control tokens that calls are written with."""

    def __init__(
        self,
        matcher: "LLMatcher",
        failed: Callable[[], None],
        spelled: Mapping[int, bytes] = MappingProxyType({}),
        *,
        patterns: bool = False,
    ) -> None:
        self.spelled = spelled
        self._patterns = patterns
        self._matcher = matcher
        self._failed = failed

    def allows(self, token: int) -> bool:
        """Raises SchemaRefused."""
        if self._patterns:  # the work of one token is counted from its mask on; without one that of all tokens adds up
            return bool(self.mask()[token])
        return self._matcher.validate_tokens([token]) == 1

    def mask(self) -> NDArray[np.bool_]:
        """Of the whole vocabulary, the tokens allowed; its length is rounded up to 32. Raises SchemaRefused."""
        return np.unpackbits(self.bits(), bitorder="little").view(np.bool_)

    def bits(self) -> NDArray[np.uint8]:
        """The same, eight tokens a byte, the first one lowest."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error() or not bits.any():
            raise self._refusal()
        return bits

    def forced(self) -> list[int]:
        """The next tokens, while only one is allowed and it is how the tokenizer spells the text; none of a long text."""
        known = len(self._matcher.compute_ff_bytes())
        return self._matcher.compute_ff_tokens() if 0 < known <= MOST_FORCED else []

    def accept(self, token: int) -> None:
        """Raises SchemaRefused."""
        if not self._matcher.consume_token(token):
            raise self._refusal()

    def _refusal(self) -> SchemaRefused:
        self._failed()
        return SchemaRefused("the JSON schema allows nothing, or is too ambiguous")


def grammars_of(lark: str, schemas: Mapping[str, Any], parts: Sequence[Part] = ()) -> list[str]:
    """Of rules, and of the JSON schemas that they name."""
    named = {**schemas, **{name: words for part in parts for name, words in part.schemas.items()}}
    return [json.dumps({"lark_grammar": lark}), *(json_grammar(words, name) for name, words in named.items())]


def ambiguous(words: Any) -> Iterator[tuple[str, str, Any]]:
    """What counts characters in two ways, or from any place on, takes work for a token that nothing foretells: each such
    pattern once, how an answer with it begins, and a schema of that answer."""
    found: dict[str, tuple[str, str, Any]] = {}
    waiting = [words]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += [
                inside
                for keyword, inside in one.items()
                if isinstance(inside, dict | list) and keyword not in ("const", "enum")
            ]
            if isinstance(pattern := one.get("pattern"), str) and "{" in pattern and "maxLength" in one:
                text = {"type": "string", **{key: one[key] for key in STRINGS if key in one}}
                place: Words = {"properties": {"a": text, "b": {}}, "required": ["a"], "additionalProperties": False}
                found[json.dumps(text)] = pattern, '{"a":"', {"type": "object", **place}
            for pattern, inside in one.get("patternProperties", {}).items():
                if "{" in pattern:
                    within = {} if "$ref" in json.dumps(inside) else inside
                    others = {"additionalProperties": False} if one.get("additionalProperties") is False else {}
                    named: Words = {"type": "object", "patternProperties": {pattern: within}, **others}
                    found[json.dumps(named)] = pattern, '{"', named
    yield from found.values()


def json_grammar(words: Any, name: str | None = None) -> str:
    """Of a schema that was read, as JSON. Raises ValueError."""
    if not isinstance(words, dict):
        raise ValueError("it should be an object")
    # A oneOf is an anyOf here: the door has seen to it that no answer fits several alternatives.
    options: Words = {"whitespace_pattern": WHITE_SPACE, "json_allowed_escapes": ESCAPES, "coerce_one_of": True}
    grammar: Words = {"name": name, "json_schema": {**shared(words), "x-guidance": options}}
    written = json.dumps(grammar, ensure_ascii=False, allow_nan=False)
    if not CONTROL.search(written):
        return written
    options["json_allowed_escapes"] += "u"
    return json.dumps(grammar, ensure_ascii=False, allow_nan=False)


def in_words(error: Exception) -> str:
    if isinstance(error, ValueError | RecursionError):  # that say something of the schema
        return str(error)
    return "a keyword has a value of another kind than it takes"
