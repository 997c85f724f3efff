"""Schemas that mean harm: patterns that are ambiguous, parts that multiply, and what is as large as it may be."""

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama.grammars import Constraint
from orchestrator.engine.llama.schema import FORMATS

MOST_MB = 100.0
LONGEST_S = 0.02  # of this thread for a token, while all others wait


def pattern(text: str) -> str:
    return json.dumps({"type": "string", "pattern": text})


def taking(schema: str) -> str:
    """The parameters of a tool whose one argument is this."""
    inside = json.loads(schema)
    places = {key: inside.pop(key) for key in ("$defs", "definitions") if key in inside}
    return json.dumps({"type": "object", "properties": {"a": inside}, "required": ["a"], **places})


HOLDING = [
    "^((a|a|a)*){1000}(b+)+$",
    "^((a?){100}){30}b$",
    "^(([^b]*){30}){30}$",
    "^(.*.*.*){300}$",
    "^([ab]?[ab]?[ab]?){60}$",
    "^(.*a.*){20}$",
    "^(.{0,70}){70}$",
    "^a{5000}$",
    "^" + "a?" * 3000 + "$",
    "(a|b)*a(a|b){30}c",
]


def both(name: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": f"#/$defs/{name}"}, {"properties": {"x": {}}}]}


def named(start: int, many: int) -> dict[str, Any]:
    return {"properties": {f"{number:x}": {} for number in range(start, start + many)}}


TWICE = {f"d{n}": {"properties": {"l": both(f"d{n + 1}"), "r": both(f"d{n + 1}")}} for n in range(40)}
CHAIN = {f"c{n}": {"$ref": f"#/$defs/c{n + 1}"} for n in range(700)}
ANY = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
LISTS = {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 1000}
GROWING = {
    "definitions that name the next one twice": {"$defs": {**TWICE, "d40": {"properties": {}}}, "$ref": "#/$defs/d0"},
    "alternatives that name the next ones twice": {
        "$defs": {**ANY, "d40": {"anyOf": [{"const": n} for n in range(20)]}}, "$ref": "#/$defs/d0"
    },
    "many properties, merged": {"allOf": [named(400 * part, 400) for part in range(10)]},
    "many references to a chain of them": {"$defs": {**CHAIN, "c700": {}}, "allOf": [{"$ref": "#/$defs/c0"}] * 1000},
    "a whole merged with itself": {"properties": {"a": both("a")}, "$defs": {"a": {"properties": {"b": both("a")}}}},
}  # fmt: skip


LARGE = {
    "references": {
        "$defs": {f"d{n}": {} for n in range(1200)}, "prefixItems": [{"$ref": f"#/$defs/d{n}"} for n in range(1200)]
    },
    "patterns": {"prefixItems": [{"type": "string", "pattern": f"^(a|b){{{n}}}[a-z]*$"} for n in range(900)]},
    "objects": {"prefixItems": [named(0, 400) for _ in range(12)]},
    "constants": {"enum": list(range(9000))},
    "constants that begin alike": {"enum": [f"src/parts/name_{number}.py" for number in range(2000)]},
    "constants that each begin the next one": {"enum": ["a" * n for n in range(1, 350)]},
    "alternatives": {"anyOf": [{"type": "string", "maxLength": n % 1000} for n in range(1500)]},
    "objects that begin alike": {"oneOf": [{"properties": {"kind": {"const": n}, "x": {}}} for n in range(900)]},
    "parts that may have the properties of others": {**named(0, 9), "anyOf": [named(9 * n, 9) for n in range(400)]},
    "parts of parts that name much": {
        **named(0, 300), "allOf": [{"anyOf": [named(300 * n, 300), {"required": ["0"]}]} for n in range(9)]
    },
    "patterns of properties": {"patternProperties": {f"^{n:x}": {} for n in range(16, 80)}},
    "parts": {"prefixItems": [{}] * 4900},
    "long lists behind a long name": {
        "properties": {"x" * 20_000: {"properties": {f"{n:x}": LISTS for n in range(300)}}}
    },
    "parts that require much": {
        "$defs": {"a": {"required": [f"{n:x}" for n in range(4000)]}}, "allOf": [{"$ref": "#/$defs/a"}] * 1000
    },
}  # fmt: skip


HOSTILE_SCHEMAS = [
    json.dumps({"const": '" | ' + "(" * 60_000}),
    json.dumps({"enum": ['\\" | ' + "(" * 30_000]}),
    json.dumps({"type": "object", "properties": {'"' + "(" * 30_000: {}}}),
    json.dumps({"$defs": {"x " + "(" * 9000: {"items": {"$ref": "#/$defs/x " + "(" * 9000}, "type": "array"}}})[:-1]
    + ', "$ref": "#/$defs/x ' + "(" * 9000 + '"}',
    pattern("^((a{900}){900}){900}$"),
    pattern("(" * 256),
    pattern("^" + "(" * 9000 + "a" + ")*" * 9000 + "$"),
    json.dumps({"type": "integer", "maximum": 10**400}),
    json.dumps({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
    json.dumps({"type": "array", "minItems": 1, "items": {"$ref": "#"}}),
    json.dumps({"type": "string", "minLength": 5000, "maxLength": 5000}),
    *(json.dumps({"type": "string", "format": name}) for name in FORMATS),
]  # fmt: skip


EVERY_HOSTILE = [*map(pattern, HOLDING), *map(json.dumps, [*GROWING.values(), *LARGE.values()]), *HOSTILE_SCHEMAS]


def token_times(compiled: Callable[[], Constraint], steps: int = 40, head: Sequence[int] = ()) -> list[float]:
    """Seconds of this thread for each of some random tokens behind these."""
    draw, found = random.Random(1), list[float]()
    with suppress(SchemaRefused):
        constraint = compiled()
        for number in range(len(head) + steps):
            began = time.thread_time()
            mask = constraint.mask()
            asked = time.thread_time()
            token = head[number] if number < len(head) else int(draw.choice(np.flatnonzero(mask)))
            decided = time.thread_time()
            constraint.allows(token)
            constraint.forced()
            constraint.accept(token)
            found.append(time.thread_time() - decided + asked - began)
    return found


def slowest_token(walks: Iterable[list[float]]) -> float:
    """Of walks of the same tokens: seconds of the slowest one, each with the least of all walks, because what else runs may
    hold up any. The next walk is made only where those before were too slow."""
    least: list[float] = []
    for walk in walks:
        least = list(map(min, least or walk, walk))
        if max(least, default=0) <= LONGEST_S:
            break
    return max(least, default=0)
