"""What one file says of names: its definitions, where it uses names and of whom, what its imports bind, of what type its
variables are. From this alone a file's part in a symbol graph is resolved (`codex.graph.resolving`).

The definitions are those of the outline, with the line of the name. A language with a query `NAME.uses.scm` also tells of
receivers, bindings and types; of any other the outline's references are the uses, and nobody knows of whom.
"""

import json
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tree_sitter import Node, QueryCursor, Tree

from codex.documents import Document, lines
from codex.outline.languages import Language, uses_query_of
from codex.outline.signatures import text_of
from codex.outline.symbols import MATCHES_IN_PROGRESS, Outline, Symbol, outline, readable, tree_of

FACTS_VERSION = 2  # raise it when the facts of the same text change
_HEAD_CHARS = 60  # of a line that sets a variable
CALL, BASE = "call", "base"
WHOLE_MODULE, EVERYTHING = "", "*"  # members of a binding
_RECEIVER = 200  # characters of an expression: a longer one is nobody's name
_ANNOTATION = ("@", "#[", "[")  # how a line begins that names a definition and is not its own
_HEAD = 50  # lines in which the name of a definition comes
_CLASSES = frozenset({"class", "struct", "interface", "object", "impl", "enum", "trait", "module", "type"})
_LITERAL = re.compile(r"""[\[{("'\d]|[rbfuRBFU]{1,2}["']|(?:None|True|False|lambda|not|await)\b""")


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition, by its qualified name in the file. `line` is that of its name, `end` its last one, `returns` the type
    that a function says it returns, `holder` the number of the definition around it in the file, -1 for none."""

    name: str
    qualname: str
    kind: str
    line: int
    start: int
    end: int
    signature: str = ""
    doc: str = ""
    returns: str = ""
    holder: int = -1

    @property
    def is_class(self) -> bool:
        return self.kind in _CLASSES


@dataclass(frozen=True, slots=True)
class Use:
    """A name that is called, or is a base of a class. `receiver` is the expression before its dot, '' for none, None where
    that is not known."""

    name: str
    kind: str
    line: int
    receiver: str | None


@dataclass(frozen=True, slots=True)
class Binding:
    """`bound` is what the file calls `member` of `module`; WHOLE_MODULE: the module itself; EVERYTHING: all its names."""

    bound: str
    module: str
    member: str


@dataclass(frozen=True, slots=True)
class Typed:
    """At `line`, `variable` (`x` or `self.x`) is of this `type`, or is what `value` gives; '' where that is not known."""

    variable: str
    line: int
    type: str
    value: str


@dataclass(frozen=True)
class FileFacts:
    """Of a language without a query for uses a receiver is None, a binding has its module alone, and no types are known."""

    path: str
    defined: tuple[Defined, ...]
    uses: tuple[Use, ...]
    bindings: tuple[Binding, ...]
    typed: tuple[Typed, ...]

    def around(self, line: int) -> int:
        """The number of the innermost definition, other than a variable, that has this line; -1 for none."""
        return self._around[line] if 0 <= line < len(self._around) else -1

    @cached_property
    def _around(self) -> "array[int]":
        """By line."""
        found = array("i", [-1]) * (1 + max((one.end for one in self.defined), default=0))
        for at, one in enumerate(self.defined):  # the outer before the inner
            if one.kind not in _FLAT:
                found[one.start : one.end + 1] = array("i", [at]) * (one.end + 1 - one.start)
        return found

    @cached_property
    def bases_by_class(self) -> dict[int, list[Use]]:
        """What names the bases of each class, by its number."""
        found: dict[int, list[Use]] = {}
        for use in self.uses:
            if use.kind == BASE:
                found.setdefault(self.around(use.line), []).append(use)
        return found

    @cached_property
    def by_qualname(self) -> dict[str, list[int]]:
        """Numbers of definitions by their qualified name."""
        found: dict[str, list[int]] = {}
        for at, one in enumerate(self.defined):
            found.setdefault(one.qualname, []).append(at)
        return found

    @cached_property
    def by_bound(self) -> dict[str, list[Binding]]:
        found: dict[str, list[Binding]] = {}
        for one in self.bindings:
            found.setdefault(one.bound, []).append(one)
        return found

    @cached_property
    def by_variable(self) -> dict[str, list[tuple[int, Typed]]]:
        """What is said of a variable, each with the number of the definition in which it is said."""
        found: dict[str, list[tuple[int, Typed]]] = {}
        for one in self.typed:
            found.setdefault(one.variable, []).append((self.around(one.line), one))
        return found


_FLAT = frozenset({"variable", "field", "constant"})


def facts(document: Document) -> FileFacts:
    """The facts of a document. Never raises for what the text holds; takes as long as its outline, twice at most."""
    parsed, text = outline(document, private=True), lines(document.text)
    raw = document.text.encode("utf-8", errors="replace")
    found = tree_of(document, raw)
    told = _told(*found, raw) if found is not None and uses_query_of(found[0]) is not None else None
    if told is None:
        uses = tuple(Use(one.name, one.kind, one.line, None) for one in parsed.references if one.kind in (CALL, BASE))
        bindings = tuple(Binding("", module, WHOLE_MODULE) for module in parsed.imports)
        return FileFacts(document.path, _defined(parsed, text), uses, bindings, ())
    bare = FileFacts(document.path, _defined(parsed, text, told), told.uses, told.bindings, told.typed)
    return replace(bare, defined=_with_variables(bare, text))


# -- what the query finds


@dataclass(frozen=True)
class _Told:
    uses: tuple[Use, ...]
    bindings: tuple[Binding, ...]
    typed: tuple[Typed, ...]
    returns: dict[tuple[str, int], str]
    lines: dict[str, list[int]]  # of the names of classes and functions


def _told(language: Language, tree: Tree, raw: bytes) -> _Told:
    query = uses_query_of(language)
    assert query is not None, "it was asked for"
    uses: dict[Use, None] = {}
    bindings: dict[Binding, None] = {}
    typed: dict[Typed, None] = {}
    returns: dict[tuple[str, int], str] = {}
    named: dict[str, list[int]] = {}
    cursor = QueryCursor(query, match_limit=MATCHES_IN_PROGRESS)
    for node in readable(tree.root_node):
        for _, captures in cursor.matches(node):
            words = {name: _expression(nodes[0], raw) for name, nodes in captures.items()}
            first = min(nodes[0].start_point[0] for nodes in captures.values()) + 1
            kind = next((one for one in (CALL, BASE) if one in captures), "")
            if kind:
                uses[Use(words[kind], kind, captures[kind][0].start_point[0] + 1, words.get("receiver", ""))] = None
            elif "module" in captures:
                bindings.update(dict.fromkeys(_bindings(words)))
            elif "defined" in captures:
                named.setdefault(words["defined"], []).append(first)
            elif "function" in captures:
                returns[words["function"], first] = words["type"]
            elif "several" in captures:
                typed[Typed(words["several"].lstrip("*"), first, "", "[]")] = None
            elif "variable" in captures:
                line = captures["variable"][0].start_point[0] + 1
                typed[Typed(words["variable"], line, words.get("type", ""), words.get("value", ""))] = None
    return _Told(tuple(uses), tuple(bindings), tuple(typed), returns, named)


def _expression(node: Node, raw: bytes) -> str:
    """On one line; of a literal its beginning; '' for one that is too long to be read."""
    text = text_of(node, raw) if node.end_byte - node.start_byte <= 10 * _RECEIVER else text_of(node, raw)[:_RECEIVER]
    text = " ".join(text.split())
    if _LITERAL.match(text) and node.type != "type":
        return text[:1] if text[:1] in "[{(\"'" or text[:1].isdigit() else text[:_RECEIVER]
    return text if len(text) <= _RECEIVER else ""


def _bindings(words: dict[str, str]) -> Iterator[Binding]:
    module, member = words["module"].replace(" ", ""), words.get("member", WHOLE_MODULE)
    if member or "bound" in words:
        yield Binding(words.get("bound", member), module, member)
    else:  # `import a.b` binds `a`, and its dots lead to `a.b`
        yield Binding(module.split(".")[0], module.split(".")[0], WHOLE_MODULE)


# -- definitions


def _defined(parsed: Outline, text: Sequence[str], told: _Told | None = None) -> tuple[Defined, ...]:
    """A variable that is set again is defined once."""
    ordered = sorted((*parsed.symbols, *parsed.fields), key=lambda one: (one.start, -one.end))
    made: dict[tuple[str, int], Defined] = {}
    for one in ordered:
        line = _line_of(one, text, told.lines.get(one.name, ()) if told is not None else ())
        said = told.returns.get((one.name, line), "") if told is not None else ""
        whole = Defined(one.name, one.qualname, one.kind, line, one.start, one.end, one.signature, one.doc, said)
        made.setdefault((one.qualname, 0 if one.kind in _FLAT else line), whole)
    return _held(made.values())


def _line_of(one: Symbol, text: Sequence[str], named: Sequence[int]) -> int:
    """The line of its name: a symbol begins at its decorators. `named`: lines at which a query found such names."""
    known = next((line for line in named if one.start <= line <= one.end), None)
    if known is not None:
        return known
    word = re.compile(rf"(?<!\w){re.escape(one.name)}(?!\w)") if one.name else None
    for number in range(one.start, min(one.end, one.start + _HEAD) + 1):
        line = text[number - 1] if number <= len(text) else ""
        if word is not None and not line.lstrip().startswith(_ANNOTATION) and word.search(line):
            return number
    return one.start


def _held(ordered: Iterable[Defined]) -> tuple[Defined, ...]:
    """Each with the number of the definition around it."""
    found: list[Defined] = []
    around: list[int] = []
    for one in ordered:
        while around and not _holds(found[around[-1]], one):
            around.pop()
        found.append(replace(one, holder=around[-1] if around else -1))
        around.append(len(found) - 1)
    return tuple(found)


def _holds(outer: Defined, inner: Defined) -> bool:
    return inner.start <= outer.end and inner.qualname.startswith(f"{outer.qualname}.")


def _with_variables(told: FileFacts, text: Sequence[str]) -> tuple[Defined, ...]:
    """The definitions, and the variables of classes and of the module that the outline leaves out: what is set within an
    `if` or a `try`."""
    known = set(told.by_qualname)
    more: dict[str, Defined] = {}
    for one in told.typed:
        at = told.around(one.line)
        holder = told.defined[at] if at >= 0 else None
        if not one.variable.isidentifier() or (holder is not None and not holder.is_class):
            continue
        qualname = f"{holder.qualname}.{one.variable}" if holder is not None else one.variable
        if qualname not in known:
            head = _head_of(text[one.line - 1].strip(), one.variable) if one.line <= len(text) else ""
            kind = "variable" if holder is None else "field"
            more.setdefault(qualname, Defined(one.variable, qualname, kind, one.line, one.line, one.line, head))
    return _held(sorted((*told.defined, *more.values()), key=lambda one: (one.start, -one.end)))


def _head_of(line: str, name: str) -> str:
    """How the line begins. One that begins with something else than the name has it behind an ellipsis, as signatures do:
    of four names that one line sets each row says which it is about."""
    head = line if len(line) <= _HEAD_CHARS else f"{line[:_HEAD_CHARS].rstrip()}…"
    return head if head.startswith(name) else f"{head.removesuffix('…')} … {name}"


# -- as bytes


def to_bytes(one: FileFacts) -> bytes:
    parts = (
        [[*(getattr(each, name) for name in Defined.__slots__)] for each in one.defined],
        [[each.name, each.kind, each.line, each.receiver] for each in one.uses],
        [[each.bound, each.module, each.member] for each in one.bindings],
        [[each.variable, each.line, each.type, each.value] for each in one.typed],
    )
    return zlib.compress(json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"), 1)


def from_bytes(path: str, packed: bytes) -> FileFacts:
    """Raises ValueError or zlib.error for what `to_bytes` did not make."""
    defined, uses, bindings, typed = json.loads(zlib.decompress(packed))
    kept: dict[str, str] = {}

    def same(word: str) -> str:
        """The same words come again and again."""
        return kept.setdefault(word, word)

    return FileFacts(
        path,
        tuple(Defined(*each) for each in defined),
        tuple(Use(same(name), same(kind), line, whose and same(whose)) for name, kind, line, whose in uses),
        tuple(Binding(*each) for each in bindings),
        tuple(Typed(*each) for each in typed),
    )
