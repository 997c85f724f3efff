"""JSON schemas in the words that a grammar enforces. Knows no grammar.

`plain` gives a schema whose every answer fits the given one, and which says nothing that is not enforced; it may allow
less (no properties beside the named ones). A keyword that nothing enforces is refused by its name: an answer must not
look checked where it is not. Annotations are left out.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.engine.backend import SchemaRefused

ANNOTATIONS = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "example",
        "$schema",
        "$id",
        "$comment",
        "$anchor",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
    )
)
PLACES = ("$defs", "definitions")
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
ENFORCED: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": LIMITS,
    "number": LIMITS,
    "boolean": (),
    "null": (),
}
FORMATS = ("date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5")
SAYS_NOTHING = {"uniqueItems": False, "minProperties": 0, "multipleOf": 1, "nullable": False, "additionalItems": True}
MOST_PROPERTIES = 400  # of one object: the converter takes the square of it, a quarter of a second for so many
# Merged parts stand wherever they are referred to: 20 definitions that name the next one twice are a million objects.
MOST_WORK = 1_000_000  # of one schema, in its converter's microseconds
PART_WORK = 200  # of each schema within it
VALUE_WORK = 5  # of each constant
Schema = dict[str, Any]


def plain(schema: Any) -> Schema:
    """Raises SchemaRefused with the keyword that is not enforced."""
    return _Words(schema).plain(schema)


class _Words:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._work = MOST_WORK

    def plain(self, schema: Any) -> Schema:
        self._spend(PART_WORK)
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            raise SchemaRefused(f"no grammar can be made of {str(schema)[:80]!r} where a JSON schema stands")
        places = {place: self._each(schema[place]) for place in PLACES if place in schema}
        words = {key: value for key, value in schema.items() if key not in ANNOTATIONS and key not in PLACES}
        words = {key: value for key, value in words.items() if key not in SAYS_NOTHING or value != SAYS_NOTHING[key]}
        return {**self._shape(words), **places}

    def _shape(self, words: Schema) -> Schema:
        for keyword, shape in self._shapes().items():
            if keyword in words:
                return shape(words)
        kind: Any = words.get("type", _kind_of(words))
        if isinstance(kind, list):
            return {"anyOf": [self._shape({"type": one, **_about(words, one)}) for one in _told(words, kind)]}
        if kind is None and not words:
            return {}
        if kind is None:
            raise SchemaRefused(f"{', '.join(words)}: not enforced where no type is told")
        if not isinstance(kind, str) or kind not in ENFORCED:
            raise SchemaRefused(
                f"no grammar can be made of the JSON schema: type {kind!r} is none of {', '.join(ENFORCED)}"
            )
        _refuse_others(words, ("type", *ENFORCED[kind]), f"for type {kind}")
        check: dict[str, Callable[[Schema], Schema]] = {
            "object": self._object,
            "array": self._array,
            "string": _string,
            "integer": _number,
            "number": _number,
        }
        return check.get(kind, dict)({**words, "type": kind})

    def _shapes(self) -> dict[str, Callable[[Schema], Schema]]:
        return {
            "$ref": _reference,
            "allOf": self._all,
            "anyOf": self._any,
            "oneOf": self._any,
            "const": self._one,
            "enum": self._one,
        }

    def _any(self, words: Schema) -> Schema:
        keyword = "anyOf" if "anyOf" in words else "oneOf"
        _refuse_others(words, (keyword, "type"), f"beside {keyword}")
        found: dict[str, Schema] = {}  # by its text: 1 is no true
        for choice in _listed(words, keyword):
            if "type" in words and isinstance(choice, dict) and choice.get("type", words["type"]) == words["type"]:
                choice = {"type": words["type"], **choice}
            elif "type" in words:
                raise SchemaRefused(f"type beside {keyword} is not enforced; put it into each alternative")
            words_of = self.plain(choice)
            found.setdefault(json.dumps(words_of, sort_keys=True), words_of)
        return {"anyOf": list(found.values())}

    def _all(self, words: Schema) -> Schema:
        """Objects are merged; one part beside nothing else stands for itself."""
        parts = [self._target(part) for part in _listed(words, "allOf")]
        rest = {key: value for key, value in words.items() if key != "allOf"}
        if not rest and len(parts) == 1:
            return self.plain(words["allOf"][0])
        properties, required = Schema(), dict[str, None]()
        for part in (rest, *parts):
            told = {key: value for key, value in part.items() if key not in ANNOTATIONS and key not in PLACES}
            if told.get("type", "object") != "object" or set(told) - {"type", "properties", "required"}:
                raise SchemaRefused("allOf is enforced for objects with properties alone (type, properties, required)")
            self._spend(len(told.get("properties", ())) + len(told.get("required", ())))
            for name, inside in told.get("properties", {}).items():
                if properties.setdefault(name, inside) != inside:
                    raise SchemaRefused(f"allOf is not enforced where two parts name the property {name!r} differently")
            required.update(dict.fromkeys(told.get("required", ())))
        return self._object({"type": "object", "properties": properties, "required": list(required)})

    def _target(self, part: Any) -> Schema:
        seen: set[str] = set()
        while isinstance(part, dict) and "$ref" in part:
            self._spend(PART_WORK)
            _reference({key: value for key, value in part.items() if key not in ANNOTATIONS})
            if part["$ref"] in seen:
                raise SchemaRefused("no grammar can be made of a reference that is only itself")
            seen.add(part["$ref"])
            part = target(self._root, part["$ref"])
        if not isinstance(part, dict):
            raise SchemaRefused("no grammar can be made of an allOf whose parts are no JSON schemas")
        return part

    def _object(self, words: Schema) -> Schema:
        properties = self._properties(words.get("properties", {}))
        required = words.get("required", [])
        for name in required if isinstance(required, list) else ():
            if name not in properties:
                raise SchemaRefused(f"required names {name!r}, which is not under properties: it is not enforced")
        found: Schema = {"type": "object"}
        if properties:
            # What is named beside would be free to take a named property's place: without any, every answer fits.
            return {**found, "properties": properties, "required": required}
        more = words.get("additionalProperties", True)
        return (
            {**found, "additionalProperties": more if more is False else self.plain(more)}
            if more is not True
            else found
        )

    def _array(self, words: Schema) -> Schema:
        least, most = _span(words, "minItems", "maxItems")
        tuples = [key for key in ("prefixItems", "items") if isinstance(words.get(key), list)]
        if tuples:
            if "prefixItems" in words and words.get("items", False) is not False:
                raise SchemaRefused("items beside prefixItems are not enforced")
            parts = [self.plain(item) for item in words[tuples[0]]]
            if least > len(parts) or (most is not None and most < len(parts)):
                raise SchemaRefused("minItems and maxItems are not enforced for other lengths than prefixItems has")
            return {"type": "array", "prefixItems": parts}
        kept = {key: words[key] for key in ("minItems", "maxItems") if key in words}
        if words.get("items") is False:
            if least:
                raise SchemaRefused("no array fits minItems beside items: false")
            return {"type": "array", "items": {}, "maxItems": 0}
        if "items" not in words and not kept:
            return {"type": "array"}
        return {"type": "array", "items": self.plain(words.get("items", {})), **kept}

    def _properties(self, schemas: Any) -> Schema:
        if isinstance(schemas, dict):
            if len(schemas) > MOST_PROPERTIES:
                raise SchemaRefused(f"an object has {len(schemas)} properties; at most {MOST_PROPERTIES} are taken")
            self._spend(len(schemas) ** 2)
        return self._each(schemas)

    def _each(self, schemas: Any) -> Schema:
        if not isinstance(schemas, dict):
            raise SchemaRefused("no grammar can be made of properties or $defs that are no JSON object")
        return {name: self.plain(inside) for name, inside in schemas.items()}

    def _one(self, words: Schema) -> Schema:
        """Constants: those of the type; a type beside them is checked here, once."""
        keyword = "const" if "const" in words else "enum"
        _refuse_others(words, ("const", "enum", "type"), f"beside {keyword}")
        values = [words["const"]] if keyword == "const" else _listed(words, "enum")
        self._spend(VALUE_WORK * len(values))
        kinds = words.get("type", list(ENFORCED))
        kinds = kinds if isinstance(kinds, list) else [kinds]
        fitting = [one for one in values if any(_is(one, kind) for kind in kinds)]
        if keyword == "const" and "enum" in words:
            fitting = [one for one in fitting if one in words["enum"]]
        if not fitting:
            raise SchemaRefused(f"no value of {keyword} fits the type {kinds!r}")
        # Infinity and NaN, which Python reads, are no JSON.
        return {"enum": list({json.dumps(one, sort_keys=True, allow_nan=False): one for one in fitting}.values())}

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise SchemaRefused("the JSON schema has too many parts, or more than that once its parts are merged")


def _string(words: Schema) -> Schema:
    _span(words, "minLength", "maxLength")
    if "format" in words and words["format"] not in FORMATS:
        raise SchemaRefused(f"format {words['format']!r} is not enforced; these are: {', '.join(FORMATS)}")
    for keyword in ("pattern", "format"):
        if keyword in words:
            _refuse_others(words, ("type", keyword), f"beside {keyword}")
    return words


def _number(words: Schema) -> Schema:
    for keyword in LIMITS:
        value = words.get(keyword, 0)
        endless = isinstance(value, float) and not math.isfinite(value)  # a whole number may be too large for isfinite
        if isinstance(value, bool) or not isinstance(value, (int, float)) or endless:
            raise SchemaRefused(f"{keyword} {value!r} is not enforced: a bound is a number")
        if words["type"] == "number" and value != int(value):
            raise SchemaRefused(f"{keyword} {value!r} is not enforced: bounds of numbers are whole numbers")
    return words


def _reference(words: Schema) -> Schema:
    _refuse_others(words, ("$ref", *PLACES), "beside $ref")
    return words


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or value is None:
        return kind == ("null" if value is None else "boolean")
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
    whole = kind == "integer" and isinstance(value, float) and value.is_integer()
    return whole or isinstance(value, kinds.get(kind, ()))


def _kind_of(words: Schema) -> str | None:
    """The one type that the keywords are about, where none is told."""
    kinds = [kind for kind in ("object", "array", "string", "number") if set(words) & set(ENFORCED[kind])]
    return kinds[0] if len(kinds) == 1 else None


def _about(words: Schema, kind: Any) -> Schema:
    return {key: words[key] for key in ENFORCED.get(str(kind), ()) if key in words}


def _told(words: Schema, kinds: list[Any]) -> list[Any]:
    known = {"type", *(key for kind in kinds for key in ENFORCED.get(str(kind), ()))}
    _refuse_others(words, tuple(known), f"for types {kinds}")
    if not kinds:
        raise SchemaRefused("no grammar can be made of an empty list of types")
    return [kind for kind in dict.fromkeys(kinds) if not (kind == "integer" and "number" in kinds)]


def _listed(words: Schema, keyword: str) -> list[Any]:
    value = words[keyword]
    if not isinstance(value, list) or not value:
        raise SchemaRefused(f"no grammar can be made of an {keyword} that is no list of alternatives")
    return value


def _span(words: Schema, least: str, most: str) -> tuple[int, int | None]:
    for keyword in (least, most):
        value = words.get(keyword, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SchemaRefused(f"no grammar can be made of {keyword} {value!r}: it counts")
    low, high = words.get(least, 0), words.get(most)
    if high is not None and high < low:
        raise SchemaRefused(f"nothing fits {least} {low} and {most} {high}")
    return low, high


def _refuse_others(words: Schema, taken: tuple[str, ...], where: str) -> None:
    for keyword in words:
        if keyword not in taken:
            raise SchemaRefused(f"the keyword {keyword} is not enforced {where}: leave it out or say it otherwise")


def target(root: Any, reference: str) -> dict[str, Any]:
    """Raises SchemaRefused where it leads nowhere, or to what is no schema."""
    found = root
    for name in reference.partition("#")[2].split("/")[1:]:
        if not isinstance(found, dict) or name not in found:
            raise SchemaRefused(f"no grammar can be made of the reference {reference!r}: it leads nowhere")
        found = found[name]
    if not isinstance(found, dict):
        raise SchemaRefused(f"no grammar can be made of the reference {reference!r}: no JSON schema is there")
    return found
