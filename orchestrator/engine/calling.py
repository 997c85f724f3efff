"""Calls of tools within an answer: how the model's template writes them, and which tools there are.

Text is free until `trigger`. From there the answer is bound, and ends with the calls:

    I look it up.  <tool_call>  \\n{"name": "  search  ", "arguments": {"query": "x"}}  \\n</tool_call>   end of the answer
    ├─ free ─────┤├─ trigger ─┤├─ name ──────┤        ├─ arguments ──┤              ├─ end of a call ─┤

    begin = <tool_call>\\n{"name": "      before = ", "arguments": ·       end = }\\n</tool_call>

The answer's text has the control tokens that calls are written with, as they are spelled here, and its ids have them too.
A thought before the answer is free to its end, whatever it quotes.
These values cross to the child process in `Sampling.calls`. The engine reads no template and parses no call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_TOOLS = 192  # of one answer: a client's, of which requests hold 128, beside ours and those of packages
MOST_CALLS_BYTES = 256 * 1024  # of the schemas of all of them
THOUGHT = ("<think>", "</think>")  # around what a model thinks before it answers
MOST_FOLLOWED = 8  # references to references
PLACES = frozenset(("$defs", "definitions"))  # of schemas that others refer to
Words = Mapping[str, Any]  # of a JSON schema


@dataclass(frozen=True)
class ArgumentForm:
    """Arguments that are written one after the other, and not as one JSON object. Texts of the template:

        begin NAME equals VALUE end   between   begin NAME equals VALUE end

    Arguments follow one another as the schema lists them. A value is JSON; one that is true, false
    or null as a whole is one of `words`.
    `quote`: what stands on both sides of a string; None: JSON's marks and escapes. Between other marks a string is raw: it
    runs to the first place where `quote` and `end` follow, and its pattern, format and length are not enforced.

        Qwen's coder    ArgumentForm(begin="<parameter=", equals=">\\n", end="\\n</parameter>\\n", quote="")
        pythonic        ArgumentForm(equals="=", between=", ", words=("True", "False", "None"))
    """

    begin: str = ""
    equals: str = ""
    end: str = ""
    between: str = ""
    quote: str | None = None
    words: tuple[str, str, str] = ("true", "false", "null")


@dataclass(frozen=True)
class CallForm:
    """How a template writes calls, as texts in which control tokens are spelled out:

        begin NAME before ARGUMENTS end   between   NAME before ARGUMENTS end   close

    `begin` starts with `trigger`: the first text that is a call and nothing else. `between` leads from a call to the name
    of the next one; where it is empty there is one call. `close` follows the last.
    `style`: None is one JSON object. `alone`: calls are the whole answer; behind other text their beginning is text.

        Hermes, Qwen    CallForm('<tool_call>', '<tool_call>\\n{"name": "', '", "arguments": ', '}\\n</tool_call>',
                                 '\\n<tool_call>\\n{"name": "')
        Mistral         CallForm('[TOOL_CALLS]', '[TOOL_CALLS][{"name": "', '", "arguments": ', '}', ', {"name": "', ']')
    """

    trigger: str
    begin: str
    before: str
    end: str
    between: str = ""
    close: str = ""
    style: ArgumentForm | None = None
    alone: bool = False


@dataclass(frozen=True)
class OfferedTool:
    """`parameters`: the JSON schema of its arguments, an object's. `strict`: a schema that cannot be enforced is refused;
    otherwise its arguments may be any object."""

    name: str
    parameters: str
    strict: bool = False


@dataclass(frozen=True)
class ToolRules:
    """Which calls an answer may make. `required`: it makes one, from its first token on. `parallel`: it may make several.
    `thinking`: the template opened a thought at the end of the prompt.

    A named tool is `required` with that tool alone in `tools`. With no tools it makes none: nothing in it begins as a call
    does. Without rules it is free.
    """

    form: CallForm
    tools: tuple[OfferedTool, ...]
    required: bool = False
    parallel: bool = True
    thinking: bool = False


# -- what a value may be: who reads arguments that were written one by one reads them as the engine bound them


def alternatives(inside: Any, places: Words, followed: int = 0) -> list[Words]:
    """Schemas of one type each, as far as it is said, of which one holds."""
    if not isinstance(inside, Mapping):
        return [{}]
    kinds = inside.keys() - PLACES
    if len(kinds) == 1 and kinds <= {"anyOf", "oneOf"}:
        return [one for part in inside[next(iter(kinds))] for one in alternatives(part, places, followed)]
    if kinds == {"$ref"} and followed < MOST_FOLLOWED and (found := target(inside["$ref"], places)) is not None:
        return alternatives(found, places, followed + 1)
    kind = inside.get("type")
    return [{**inside, "type": one} for one in kind] if isinstance(kind, list) else [inside]


def target(reference: Any, places: Words) -> Any:
    """The schema that is meant, where it stands among the definitions by a plain name."""
    _, place, name = reference.split("/") if str(reference).count("/") == 2 else ("", "", "")
    return places.get(place, {}).get(name)


def may_be_any_text(one: Words) -> bool:
    return few_values(one) is None and one.get("type", "string") == "string"


def few_values(one: Words) -> list[Any] | None:
    """All that it may be, where that is a few plain values."""
    given = [one["const"]] if "const" in one else one.get("enum")
    if given is None:
        kinds: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
        return kinds.get(one.get("type", ""))
    return None if any(isinstance(value, dict | list) for value in given) else list(given)
