"""Whether an answer may fit two alternatives of a `oneOf`, which forbids that. llguidance knows `anyOf` alone.

What is said for an alternative is closed where the alternative says nothing of other properties (`schema.closed`); what it
must not fit is the other one as it was given, which is open:

    {"properties": {"a": …}, "required": ["a"]}   {"properties": {"b": …}, "required": ["b"]}     apart: no answer has both
    {"properties": {"a": …}, "required": ["a"]}   {"properties": {"b": …}}                         not: {"a": 1} fits both

Undecided is taken for "may fit". Lengths, bounds and patterns are not compared: of 1,260 real schemas with a `oneOf` none
has alternatives that these tell apart. Schemas are looked at, never read: references are followed a few steps.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

DEEPEST = 8  # properties within properties, and references to references
EVERY = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
KINDS_OF = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, str: {"string"}, list: {"array"}}
Words = Mapping[str, Any]


@dataclass(frozen=True)
class Alternatives:
    """`target` gives what a schema refers to. `count` is called for each comparison; either raises what it likes. `always`:
    a property that every answer has, whatever the alternatives require."""

    target: Callable[[Any], Any]
    count: Callable[[], None]
    always: frozenset[str] = frozenset()

    def apart(self, given: Sequence[Any]) -> bool:
        """Whether no answer fits two of them."""
        constants = [constants_of(one) for one in given]
        if None not in constants:
            every = [sign for signs in constants for sign in signs or ()]
            return len(every) == len(set(every))
        return not any(self._may_fit(said, other, 0, closed=True) for said, other in permutations(given, 2))

    def _may_fit(self, said: Any, other: Any, depth: int, *, closed: bool) -> bool:
        """Whether something that is said for the one may fit the other. `closed`: nothing beside joins its properties."""
        self.count()
        if said is False or other is False:
            return False
        if depth > DEEPEST or not isinstance(said, Mapping) or not isinstance(other, Mapping):
            return True
        mine, theirs = self._parts(said), self._parts(other)
        closed = closed and (not mine or said.keys() == {"$ref"})
        further = depth + 1
        return (
            all(self._may_fit(one, other, further, closed=closed) for one in mine)
            and all(self._may_fit(said, one, further, closed=closed) for one in theirs)
            and any(self._may_fit(one, other, further, closed=closed) for one in choices(said))
            and any(self._may_fit(said, one, further, closed=closed) for one in choices(other))
            and self._agree(said, other, depth, closed=closed)
        )

    def _parts(self, words: Words) -> list[Any]:
        """Schemas that hold beside its own keywords."""
        reference = [self.target({"$ref": words["$ref"]})] if "$ref" in words else []
        return [*reference, *words.get("allOf", ())]

    def _agree(self, said: Words, other: Words, depth: int, *, closed: bool) -> bool:
        """By their own keywords."""
        mine, theirs = constants_of(said), constants_of(other)
        if mine is not None and theirs is not None:
            return not mine.isdisjoint(theirs)
        objects = "type" not in said and not said.keys().isdisjoint(("properties", "required"))
        kinds = (frozenset(("object",)) if objects and mine is None else kinds_of(said)) & kinds_of(other)
        return bool(kinds) and (kinds != {"object"} or self._objects_agree(said, other, depth, closed=closed))

    def _objects_agree(self, said: Words, other: Words, depth: int, *, closed: bool) -> bool:
        mine, theirs = said.get("properties", {}), other.get("properties", {})
        has, needs = self.always.union(said.get("required", ())), frozenset(other.get("required", ()))
        alone = "patternProperties" not in said and said.get("additionalProperties", not (mine and closed)) is False
        strict = "patternProperties" not in other and other.get("additionalProperties") is False
        if (alone and not needs <= has.union(mine)) or (strict and not has <= theirs.keys()):
            return False
        both = (has | needs) & mine.keys() & theirs.keys()
        inside = replace(self, always=frozenset())
        return all(inside._may_fit(mine[name], theirs[name], depth + 1, closed=True) for name in both)


def choices(words: Words) -> list[Any]:
    """One of them holds beside its own keywords."""
    return [*words.get("anyOf", ()), *words.get("oneOf", ())] or [True]


def constants_of(schema: Any) -> frozenset[str] | None:
    """As JSON, all that it may be; None where that is not said."""
    if not isinstance(schema, Mapping) or not {"const", "enum"} & schema.keys():
        return None
    given = [schema["const"]] if "const" in schema else schema["enum"]
    return frozenset(json.dumps(plain(value), sort_keys=True) for value in given)


def plain(value: Any) -> Any:
    """A whole number is the same with and without a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def kinds_of(schema: Words) -> frozenset[str]:
    """The types that a value may have; an integer is a number too."""
    if (constants := constants_of(schema)) is not None:
        values = map(json.loads, constants)
        return frozenset().union(
            *(KINDS_OF.get(type(value), {"object" if value is not None else "null"}) for value in values)
        )
    given = schema.get("type", EVERY)
    found = {given} if isinstance(given, str) else set(given)
    return frozenset(found | ({"integer"} if "number" in found else {"number"} if "integer" in found else set()))
