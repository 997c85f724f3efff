"""Parts of one schema: which properties each may have, and whether an answer may fit two alternatives of a `oneOf`.

`oneOf` forbids that, and llguidance knows `anyOf` alone.

What is said for an alternative is closed where the alternative says nothing of other properties (`schema.closed`); what it
must not fit is the other one as it was given, which is open:

    {"properties": {"a": …}, "required": ["a"]}   {"properties": {"b": …}, "required": ["b"]}     apart: no answer has both
    {"properties": {"a": …}, "required": ["a"]}   {"properties": {"b": …}}                         not: {"a": 1} fits both

Undecided is taken for "may fit". Lengths, bounds and patterns are not compared: of 1,260 real schemas with a `oneOf` none
has alternatives that these tell apart. Schemas are looked at, never read: references are followed a few steps.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

DEEPEST = 8  # properties within properties, and references to references
EVERY = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
KINDS_OF = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, str: {"string"}, list: {"array"}}
Words = Mapping[str, Any]
IN_PLACE = ("allOf", "anyOf", "oneOf")


@dataclass(frozen=True)
class Parts:
    """Of one object, which the door closes each by itself: it would forbid what only the others name.

    `target` gives what a schema refers to. `count` is called with how many parts or names are looked at; either raises what
    it likes."""

    target: Callable[[Any], Any]
    count: Callable[[int], None]

    def joined(self, words: Words) -> dict[str, Any] | None:
        """Each part with the properties that the others name; None where there is but one."""
        own = {key: value for key, value in words.items() if key not in IN_PLACE}
        groups = [("", [own]), *(("allOf", [one]) for one in words.get("allOf", ()))]
        groups += [(key, words[key]) for key in ("anyOf", "oneOf") if key in words]
        if len(groups) == 2 and own.keys().isdisjoint(("properties", "required")):
            return None
        named = [[name for one in group for name in self._names(one)] for _, group in groups]
        found: dict[str, Any] = {}
        for at, (keyword, group) in enumerate(groups):
            self.count(sum(map(len, named)))
            others = dict.fromkeys(name for number, names in enumerate(named) for name in names if number != at)
            extended = [self._extended(one, others) for one in group]
            found.update({keyword: [*found.get(keyword, ()), *extended]} if keyword else extended[0])
        return found

    def _names(self, part: Any) -> list[str]:
        """Of properties, wherever the part says them."""
        words = self.target(part)
        self.count(1)
        if not isinstance(words, Mapping):
            return []
        parts = [one for key in IN_PLACE for one in words.get(key, ())]
        parts += [{"$ref": words["$ref"]}] if "$ref" in words else []
        inner = [name for one in parts for name in self._names(one)]
        return [*words.get("properties", ()), *words.get("required", ()), *inner]

    def _extended(self, part: Any, names: Collection[str]) -> Any:
        """The part, with these properties too where it would be closed."""
        words = self.target(part)
        if not isinstance(words, Mapping):
            return part
        inner = {key: [self._extended(one, names) for one in words[key]] for key in IN_PLACE if key in words}
        found = {**words, **inner}
        if "$ref" in words:
            found["allOf"] = [*found.get("allOf", ()), self._extended({"$ref": found.pop("$ref")}, names)]
        if is_closed(words):
            self.count(len(names))
            named = words["properties"]
            found["properties"] = {**named, **{name: True for name in names if name not in named}}
        return part if found == words else found


def is_closed(words: Words) -> bool:
    """Whether the door lets it have no other properties."""
    return bool(words.get("properties")) and "additionalProperties" not in words


@dataclass(frozen=True)
class Alternatives:
    """`target` gives what a schema refers to. `count` is called for each comparison; either raises what it likes. `always`:
    properties that every answer has, whatever the alternatives require. `joined`: parts of one alternative may have the
    properties of its others."""

    target: Callable[[Any], Any]
    count: Callable[[], None]
    always: frozenset[str] = frozenset()
    joined: bool = False

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
        closed = closed and not (has_parts(said) if self.joined else mine and said.keys() != {"$ref"})
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


def has_parts(words: Words) -> bool:
    """Whether several of its parts say which properties an object has: each may have those of the others."""
    parts = len(words.keys() & {"$ref", "anyOf", "oneOf"})
    return "allOf" in words or parts > 1 or (parts == 1 and not words.keys().isdisjoint(("properties", "required")))


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
