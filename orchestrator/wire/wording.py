"""What is wrong with a body or a setting, in our words instead of those of pydantic and of its reader of JSON."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

SHOULD = {
    "string_type": "should be text",
    "int_type": "should be a whole number, without a point or an exponent",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a finite number, below 1e308",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "dict_type": "should be an object",
    "model_type": "should be an object",
    "missing": "is missing",
    "string_too_short": "is empty",
    "string_too_long": "is longer than {max_length:,} characters",
    "greater_than_equal": "should be {ge} or more",
    "greater_than": "should be more than {gt}",
    "less_than_equal": "should be {le} or less",
    "less_than": "should be less than {lt}",
    "literal_error": "should be {expected}",
}
LONE = "a lone surrogate, half a character that is no text"
UNREADABLE = {  # by what the reader of JSON says. Some of that is JSON, which we do not take: it is called what it is
    "recursion limit": "nested too deeply",
    "surrogate": LONE,
    "unicode code point": "not UTF-8",
    "number out of range": "a number of more than 4,300 digits",
    "EOF while parsing": "not JSON: it ends too early",
    "expected ident": "not JSON: a word other than true, false and null",
}
HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
MARKS = re.compile(
    r"(str|int|float|bool|tuple|list|dict|literal|function-|constrained-|nullable).*[\[\-(]"
    r"|constrained-\w+$|str$|int$|float$|bool$|[A-Z][a-z]+[A-Z]\w+$"  # the last are our own shapes
)


def complaint(error: ValidationError, body: bytes) -> str:
    """The first fault in words."""
    first = telling(error.errors(include_url=False, include_input=False))
    if first["type"] == "json_invalid":
        return unreadable(first["ctx"]["error"], body)
    place = place_of(first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown field {place}"
    return f"{place or 'body'}: {wording(first['type'], first['msg'], first.get('ctx') or {})}"


def telling(faults: Sequence[Any]) -> Any:
    """The first; where several types were tried at its place, the one that came furthest: it is the one that was meant."""
    place = place_of(faults[0]["loc"])
    tried = [one for one in faults if place_of(one["loc"]) == place or place_of(one["loc"]).startswith(f"{place}.")]
    return max(tried, key=lambda one: (len(place_of(one["loc"]).split(".")), not one["type"].endswith("_type")))


def place_of(location: tuple[int | str, ...]) -> str:
    """`messages.0.content`, without the names of the types that were tried there."""
    return ".".join(str(part) for part in location if isinstance(part, int) or not MARKS.match(part))


def wording(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """What is wrong with a value, of pydantic's kind of error, its message and its context."""
    if kind == "too_short":
        least = context["min_length"]
        return "is empty" if least == 1 else f"should have at least {least}, and has {context['actual_length']}"
    if kind == "too_long":
        return f"too many: {context['actual_length'] or 'more'} of at most {context['max_length']}"
    if kind in SHOULD:
        return SHOULD[kind].format(**context)
    return message.removeprefix("Value error, ").removeprefix("Input ")


def unreadable(why: str, body: bytes) -> str:
    """What the reader of JSON stopped at, and where."""
    what, at, where = why.partition(" at line")
    if "hex escape" in what and HALF.search(body):
        return f"{LONE}{at}{where}"
    words = next((ours for theirs, ours in UNREADABLE.items() if theirs in what), f"not JSON: {what}")
    return f"{words}{at}{where}"
