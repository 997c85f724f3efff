"""The door for JSON schemas: what llguidance, which enforces them, leaves to its caller.

A schema comes from a client: it is taken in words that are enforced, or refused with the reason. llguidance bounds what
compiling and each token cost, and refuses keywords of JSON schema that it does not enforce. It ignores words that are no
keywords, spells regular expressions as Rust does, and has no bounds where a few bytes of schema make much of it.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.calling import PLACES
from orchestrator.engine.llama.alternatives import IN_PLACE, Alternatives, Parts, is_closed
from orchestrator.engine.messages import MOST_SCHEMA_BYTES

MOST_DEPTH = 32
MOST_PARTS = 20_000  # schemas within a schema, once parts of an allOf are merged where they are used
MOST_COMPARED = 50_000  # alternatives of oneOf, and what is in them: 0.2 s
MOST_PROPERTIES = 400  # of one object: compiled in 12 ms, 900 in 0.13 s
MOST_PATTERNS = 64  # patternProperties of a schema: each is compared with each, 5 s for 400
MOST_REPEATS = 5000  # of one item, and of a character by repetitions within one another: 100,000 take 0.2 s for a token
MOST_TEXT = 8192  # characters of a name or a constant: what is forced is tokenised for each token, 60,000 in 30 ms
MOST_FACTOR = 1000  # the least common multiple of all multipleOf: 999,983 takes 9.5 s and 386 MB
MOST_WHOLE = 2**53  # bounds are read as floats
MOST_SAID = 500  # characters of a refusal, which may repeat what the schema says

Words = dict[str, Any]

OBJECTS = ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties")
ARRAYS = ("items", "prefixItems", "additionalItems", "minItems", "maxItems")
STRINGS = ("minLength", "maxLength", "pattern", "format")
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
ABOUT = {"object": OBJECTS, "array": ARRAYS, "string": STRINGS, "number": (*LIMITS, "multipleOf")}
KINDS = frozenset(("type", "$ref", "const", "enum", "anyOf", "oneOf", "allOf"))
ENFORCED = KINDS.union(PLACES, *ABOUT.values())
NAMED, LISTED = PLACES | {"properties", "patternProperties"}, frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
SINGLE = frozenset(("items", "additionalProperties"))
HOLDING = NAMED | LISTED | SINGLE | {"$ref"}
REWRITTEN = frozenset(("items", "prefixItems", "additionalItems", "format", "pattern", "patternProperties"))
AUTOMATA = frozenset((*LIMITS, *STRINGS, "multipleOf"))
TITLES = ("title", "description", "$comment", "$schema", "$id", "$anchor", "deprecated", "readOnly", "writeOnly")
ANNOTATIONS = frozenset((*TITLES, "default", "example", "examples", "discriminator"))
# Words of drafts, editors and generators that bind nothing, as real schemas have them (JSONSchemaBench). Others may be
# misspelt keywords: those schemas also say additonalProperties, anyof, min, unique and optional.
EARLIER = ("id", "$async", "links", "media", "base", "readonly", "copyright", "author")
EDITORS = ("markdownDescription", "deprecationMessage", "errorMessage", "enumNames", "propertyOrder", "preferredOrder")
GENERATORS = ("javaType", "javaName", "javaInterfaces", "extendsJavaClass", "tsType", "faker")
OF_OTHERS = frozenset((*EARLIER, *EDITORS, *GENERATORS, "name", "version", "self", "alias", "category"))
SAYS_NOTHING = {"uniqueItems": False, "nullable": False}
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
UUIDS = ("uuid1", "uuid2", "uuid3", "uuid4", "uuid5")
# llguidance knows months of 30 days but no leap years, has the year 0 and a second 60 of any minute, other letters than T
# and Z, and labels xn-- that stand for nothing. An answer has what every reader takes, so no quoted names of mailboxes and
# no IPv4 address in an IPv6 one either.
YEAR, ANY_DAY = r"([1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])", r"(0[1-9]|[12]\d|3[01])"
LEAP = r"(\d{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
DAY = rf"((0[13578]|1[02])-{ANY_DAY}|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
DATE = rf"({YEAR}-{DAY}|{LEAP}-02-29)"
TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
LABEL = r"([^.xX][^.]*|[xX]([^.nN][^.]*|[nN]([^.-][^.]*|-([^.-][^.]*)?)?)?)"
PATTERNS = {"date": f"^{DATE}$", "time": f"^{TIME}$", "date-time": f"^{DATE}T{TIME}$"}
NARROWED: dict[str, Words] = {
    "hostname": {"pattern": rf"^{LABEL}(\.{LABEL})*$", "maxLength": 253},
    "email": {"pattern": r'^[^"\[]*$'},
    "ipv6": {"pattern": "^[^.]*$"},
}
BOUNDS = {
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), MOST_REPEATS),
    **dict.fromkeys(LIMITS, MOST_WHOLE),
    "minProperties": 1,  # an answer may say a name twice, and then has fewer than were counted
}
WHOLE = {"minimum": -MOST_WHOLE, "maximum": MOST_WHOLE}  # an integer without bounds could have any number of digits
# To where schemas are, and not into a constant, which nobody has read.
REFERENCE = re.compile(
    r"#(/(\$defs|definitions|properties|patternProperties)/[^/]+|/(anyOf|oneOf|allOf|prefixItems)/\d+"
    r"|/(items|additionalProperties))*"
)
ROUND, NO_BRACKETS = bytes.maketrans(b"[]{}", b"()()"), bytes(frozenset(range(256)) - frozenset(b"[]{}"))
LINE = r"[^\n\r\u2028\u2029]"
EXPRESSION = re.compile(r"\\.|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", re.DOTALL)
IN_WORDS = (  # instead of what the libraries say of themselves
    (r"regex parse error:.*error: ", "a pattern cannot be read: "),
    (r"(Unsatisfiable schema: )?Regex is empty.*", "no text fits its patterns, formats and lengths"),
    (r"Unsatisfiable schema: ", "nothing fits it: "),
    (r"(Unable to determine if regex|initial lexer configuration).*", "it is too complex"),
    (r"\bf64\b", "a number"),
    (r"(Value is not JSON serializable|'utf-8' codec).*", "it has a lone surrogate, half a character that is no text"),
    (r"maximum recursion depth exceeded.*", "its recursion is too deep"),
    (r"; use sys\..*", ""),
    (
        r"(Out of range float|Invalid literal for Fraction|number out of range).*",
        "a number in it is beyond 1e308, or none",
    ),
)
# Of a schema that says what nobody foresaw. One question must not end the process, and with it everybody's answers.
UNFORESEEN = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)


def said(text: str) -> str:
    """In few and plain words, and in characters that any reader can show."""
    for found, words in IN_WORDS:
        text = re.sub(found, words, text, flags=re.DOTALL)
    text = " ".join(text.encode(errors="backslashreplace").decode().split())
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}…"


# -- a schema, read


def read(schema: str, *, loosely: bool = False) -> Any:
    """A schema whose every answer fits the given one, in words that are enforced; `loosely`: but for a `oneOf`, of which it
    may fit several. Raises SchemaRefused, ValueError."""
    size = len(schema.encode())
    if size > MOST_SCHEMA_BYTES:
        raise SchemaRefused(f"the JSON schema has {size} bytes; at most {MOST_SCHEMA_BYTES} are taken")
    pieces = at_quotes(schema)
    check_depth(pieces)
    try:
        root = json.loads(schema)
    except ValueError as error:
        raise SchemaRefused(f"the JSON schema is not JSON: {error}") from error
    lengthy = max(map(len, pieces)) > MOST_TEXT
    reader = _Reader(root, lengthy=lengthy, loosely=loosely)
    try:
        return reader.read(root)
    except SchemaRefused:
        if not reader.joined:
            raise
    return _Reader(root, lengthy=lengthy, loosely=loosely, joins=False).read(root)


def at_quotes(schema: str) -> list[str]:
    """What is outside of strings and what is in them, in turns. A string has no fewer signs here than characters."""
    return schema.replace("\\\\", "_").replace('\\"', "_").split('"')


def check_depth(pieces: Sequence[str]) -> None:
    """Counted on the text, before a parser recurses into it: each round takes the innermost pairs away."""
    brackets = "".join(pieces[::2]).encode().translate(ROUND, NO_BRACKETS)
    for _ in range(MOST_DEPTH):
        brackets = brackets.replace(b"()", b"")
    if b"()" in brackets or brackets.count(b"(") > MOST_DEPTH:
        raise SchemaRefused(f"the JSON schema is nested deeper than {MOST_DEPTH}")


class _Reader:
    """What is malformed stays as it is: llguidance says so."""

    def __init__(self, root: Any, *, lengthy: bool, loosely: bool, joins: bool = True) -> None:
        self._root = root
        self._lengthy = lengthy  # there may be a text that is too long
        self._loosely = loosely
        self._joins = joins  # parts of one object; where alternatives are told apart by what each names alone, none are
        self.joined = False
        self._parts = self._patterns = self._compared = 0
        self._factor = 1

    def read(self, given: Any) -> Any:
        self._count(1)
        if not isinstance(given, dict):
            return given
        words = unannotated(given)
        if len(words) == 1 and isinstance(kind := words.get("type"), str):  # most are
            return {**words, **WHOLE} if kind == "integer" else words
        if not words.keys() <= ENFORCED:
            keyword = next(iter(words.keys() - ENFORCED))
            raise SchemaRefused(f"the keyword {keyword} is not enforced: leave it out or say it otherwise")
        if "oneOf" in words and "discriminator" in given:
            words["discriminator"] = given["discriminator"]
        if "allOf" in words or ("$ref" in words and words.keys() - PLACES != {"$ref"}):
            words = self._combined(words)
        if self._joins and not words.keys().isdisjoint(IN_PLACE):
            found = Parts(self._target, self._count).joined(words)
            words, self.joined = found or words, self.joined or found is not None
        if "oneOf" in words:
            words = self._told_apart(words)
        self._check(words)
        return closed(with_inner(typed(words), self.read))

    def _told_apart(self, words: Words) -> Words:
        """With the property that a discriminator names in each of the alternatives, instead of it; refused where nothing
        tells them apart."""
        discriminator = words.get("discriminator")
        named = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
        tag = (named,) if isinstance(named, str) else ()
        always = frozenset((*tag, *words.get("required", ())))
        alternatives = Alternatives(self._target, self._compare, always, joined=self._joins)
        if not self._loosely and not alternatives.apart(words["oneOf"]):
            raise SchemaRefused("an answer might fit two alternatives of a oneOf: say anyOf, or what tells them apart")
        tagged = [{"allOf": [one, {"required": [name]}]} for one in words["oneOf"] for name in tag]
        rest = {key: value for key, value in words.items() if key != "discriminator"}
        return {**rest, "oneOf": tagged or words["oneOf"]}

    def _combined(self, words: Words) -> Words:
        """Objects become one, so that it can be closed; llguidance combines everything else."""
        places = {key: words[key] for key in words.keys() & PLACES}
        rest = {key: value for key, value in words.items() if key not in (*PLACES, "$ref", "allOf")}
        reference = {key: words[key] for key in words.keys() & {"$ref"}}
        parts = [part for part in (reference, rest, *words.get("allOf", ())) if part != {}]
        targets = [self._target(part) for part in parts]
        if len(parts) < 2 or not all(map(only_properties, targets)):
            return {**places, **({"allOf": parts} if parts else {})}
        properties: dict[str, Any] = {}
        required: dict[str, None] = {}
        for target in targets:
            self._count(len(target.get("properties", ())) + len(target.get("required", ())))
            for name, inside in target.get("properties", {}).items():
                before = properties.setdefault(name, inside)
                properties[name] = before if before is inside else {"allOf": [before, inside]}
            required.update(dict.fromkeys(target.get("required", ())))
        return {**places, "type": "object", "properties": properties, "required": list(required)}

    def _target(self, part: Any) -> Any:
        """The schema that a part is, or that it refers to."""
        while isinstance(part, dict) and unannotated(part).keys() == {"$ref"}:
            self._count(1)
            check_reference(part["$ref"])
            found = self._root
            for name in part["$ref"].split("/")[1:]:
                name = unquote(name).replace("~1", "/").replace("~0", "~")
                found = found[int(name)] if isinstance(found, list) else found[name]
            part = found
        return part

    def _check(self, words: Words) -> None:
        if "$ref" in words:
            check_reference(words["$ref"])
        names, required = words.get("properties", ()), words.get("required", ())
        # Each required name becomes a property where it is none.
        if len(names) + len(required) > MOST_PROPERTIES and (many := len({*names, *required})) > MOST_PROPERTIES:
            raise SchemaRefused(f"an object has {many} properties; at most {MOST_PROPERTIES} are taken")
        self._patterns += len(words.get("patternProperties", ()))
        if self._patterns > MOST_PATTERNS:
            raise SchemaRefused(f"the JSON schema has more than {MOST_PATTERNS} patternProperties")
        for keyword in words:
            if keyword in BOUNDS and abs(words[keyword]) > BOUNDS[keyword]:
                raise SchemaRefused(f"{keyword} {words[keyword]} is not enforced: it goes beyond {BOUNDS[keyword]}")
        if self._lengthy and (longest := max(map(len, texts_of(words)), default=0)) > MOST_TEXT:
            raise SchemaRefused(f"a name or a constant has {longest} characters; at most {MOST_TEXT} are taken")
        if "multipleOf" in words:
            self._check_factor(words["multipleOf"])
        if words.get("format", FORMATS[0]) not in (*FORMATS, *UUIDS):
            raise SchemaRefused(f"format {words['format']!r} is not enforced; these are: {', '.join(FORMATS)}")

    def _check_factor(self, multiple: Any) -> None:
        if multiple <= 0:
            raise SchemaRefused("multipleOf must be above 0")
        self._factor = math.lcm(self._factor, Fraction(str(multiple)).numerator)
        if self._factor > MOST_FACTOR:
            raise SchemaRefused(f"multipleOf is not enforced where a common multiple of all is above {MOST_FACTOR}")

    def _compare(self) -> None:
        self._compared += 1
        if self._compared > MOST_COMPARED:
            raise SchemaRefused("the JSON schema has too many alternatives of oneOf to tell them apart: say anyOf")

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MOST_PARTS:
            raise SchemaRefused("the JSON schema has too many parts, or more than that once its parts are merged")


def with_inner(words: Words, change: Callable[[Any], Any]) -> Words:
    """With each schema directly within it changed."""
    if words.keys().isdisjoint(HOLDING):
        return words
    found = dict(words)
    for keyword, inside in words.items():
        if keyword in NAMED:
            found[keyword] = {name: change(one) for name, one in inside.items()}
        elif keyword in LISTED:
            found[keyword] = [change(one) for one in inside]
        elif keyword in SINGLE:
            found[keyword] = change(inside)
    return found


def shared(words: Words) -> Words:
    """The same schema with one definition for what stands in many places: llguidance makes an automaton for each of them.

    Twenty whole numbers with bounds take 13 ms, and 1.5 ms as one definition. What is in an `allOf` stays: it is merged."""
    prefix, leaves = "shared", dict[str, str]()
    while any(name.startswith(prefix) for name in words.get("$defs", ())):
        prefix += "_"
    definitions: Words = {}

    def moved(inside: Any) -> Any:
        if not isinstance(inside, dict) or "allOf" in inside:
            return inside
        if not inside.keys().isdisjoint(HOLDING):
            return with_inner(inside, moved)
        if inside.keys().isdisjoint(AUTOMATA):
            return inside
        name = leaves.setdefault(str(inside), f"{prefix}{len(leaves)}")
        definitions[name] = inside
        return {"$ref": f"#/$defs/{name}"}

    found = with_inner(words, moved)
    return {**found, "$defs": {**found.get("$defs", {}), **definitions}} if definitions else found


def unannotated(schema: Words) -> Words:
    return {
        key: value
        for key, value in schema.items()
        if key in ENFORCED or (key not in ANNOTATIONS and not binds_nothing(key, value))
    }


def binds_nothing(word: str, value: Any) -> bool:
    """Whether it is no keyword, and none that is misspelt or in the wrong place."""
    if isinstance(value, dict) and not value.keys().isdisjoint((*KINDS, "properties", "items")):
        return False  # a schema: of a property that stands beside `properties`
    if word in SAYS_NOTHING:
        return bool(SAYS_NOTHING[word] == value)
    return word in OF_OTHERS or (word.startswith(("x-", "_")) and word != "x-guidance")


def texts_of(words: Words) -> Iterator[str]:
    """Its names and constants."""
    waiting: list[Any] = [
        [*words.get("properties", ()), *words.get("required", ())],
        words.get("enum"),
        words.get("const"),
    ]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict | list):
            waiting += [*one, *one.values()] if isinstance(one, dict) else one


def check_reference(reference: Any) -> None:
    if not isinstance(reference, str) or not REFERENCE.fullmatch(reference):
        raise SchemaRefused(f"the JSON schema refers to {reference!r}; only references inside it (#/…) are followed")


def only_properties(schema: Any) -> bool:
    """Whether it says nothing but which properties an object has."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return False
    return unannotated(schema).keys() <= {"type", "properties", "required"}


def typed(words: Words) -> Words:
    """With what goes without saying: the one type that it is about, bounds of whole numbers, the length of a tuple."""
    if words.keys().isdisjoint(KINDS):
        kinds = [kind for kind, keywords in ABOUT.items() if not words.keys().isdisjoint(keywords)]
        words = {"type": kinds[0], **words} if len(kinds) == 1 else words
    declared = words.get("type")
    if declared == "integer" or (isinstance(declared, list) and "integer" in declared and "number" not in declared):
        words = {**WHOLE, **words}
    if words.keys().isdisjoint(REWRITTEN):
        return words
    if isinstance(words.get("items"), list):
        words = {**words, "prefixItems": words["items"], "items": words.get("additionalItems", False)}
    if "prefixItems" in words:
        length = {} if words.keys() & {"minItems", "maxItems"} else {"minItems": len(words["prefixItems"])}
        words = {"items": False, **length, **words}
    if "pattern" in words:
        words = {**words, "pattern": rust_pattern(words["pattern"])}
    if "format" in words:
        words = formatted(words)
    if "patternProperties" in words:
        named = {rust_pattern(pattern): inside for pattern, inside in words["patternProperties"].items()}
        words = {**words, "patternProperties": named}
    return {key: value for key, value in words.items() if key != "additionalItems"}


def formatted(words: Words) -> Words:
    """With what its format leaves to be said."""
    name = "uuid" if words["format"] in UUIDS else words["format"]
    if name in PATTERNS and "pattern" not in words:
        return {**{key: value for key, value in words.items() if key != "format"}, "pattern": PATTERNS[name]}
    return {**NARROWED.get(name, {}), **words, "format": name}


def closed(words: Words) -> Words:
    """Without properties beside the named ones, where it says nothing of others: an answer would name more and more."""
    if not is_closed(words):
        return words
    required = () if "patternProperties" in words else words.get("required", ())
    properties = {**words["properties"], **{name: True for name in required if name not in words["properties"]}}
    return {**words, "properties": properties, "additionalProperties": False}


def rust_pattern(pattern: str) -> str:
    """ECMAScript's expression as Rust reads it: a dot is no end of a line, and a class of characters holds no other."""
    found: list[str] = []
    most, groups = 1, [1]  # characters that repetitions make of one: in the last item, and in each group that is open
    for word in EXPRESSION.finditer(pattern):
        text = word[0]
        if text == "(":
            groups.append(1)
        elif text == ")" and len(groups) > 1:
            most = groups.pop()
        elif word[1]:
            most *= max(int(word[1]), int(word[2] or 0))
        elif text not in "*+?":
            most = 1
        groups[-1] = max(groups[-1], most)
        if most > MOST_REPEATS:
            raise SchemaRefused(f"a pattern repeats a character more than {MOST_REPEATS} times")
        found.append(rust_sign(text))
    return "".join(found)


def rust_sign(text: str) -> str:
    if text in ("\\", "[]", "[^]") or (text[0] == "[" and ("--" in text or text[-1] != "]")):
        raise SchemaRefused(f"{text} in a pattern is not enforced: write it otherwise")
    if text[0] != "[":
        return {".": LINE, r"\0": r"\x00"}.get(text, text)
    signs = re.findall(r"\\.|.", text[1:], re.DOTALL)
    return "[" + "".join(f"\\{sign}" if sign in "[&~" else sign.replace(r"\0", r"\x00") for sign in signs)
