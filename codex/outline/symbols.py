"""The outline of a file: what it defines, what it uses, what it imports.

Tree-sitter finds the names; this file nests them and adds signatures and first doc lines. A file without a grammar, too
large to parse, or that the parser gives up on, has the outline of plain text: its headings (`= Title =`, underlined lines,
`# Title`, `[section]` of configuration files). Parse errors cost the definitions they cover and nothing else.

Lines are 1-based and inclusive. A symbol begins at its decorators, not at the comment above it.
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from tree_sitter import Node, QueryCursor, Tree

from codex.documents import Document
from codex.outline.languages import Language, language_of, parser_of, query_of
from codex.outline.signatures import doc_line, signature_of, text_of
from codex.trees.roles import says_generated

OUTLINE_VERSION = 2  # raise it when outlines of the same text change: what was cached by digest is made again
_PARSE_BYTES = 2_000_000  # a grammar reads 1–3 MB/s: a larger file is generated, and plain text will do
_LINE_BYTES = 20_000  # a longer line is minified or hostile: its nesting costs a parser the square of its depth
_SIGNS = re.compile(rb"[^\w\x80-\xff]{2000}")  # without a word: no code has it, and a thousand open `*` take a second
_PARSE_SECONDS = 2.0  # a file of ordinary code takes milliseconds
MATCHES_IN_PROGRESS = 4096
_SIGNS_AT_MOST = 1_000  # of an error node: 5 ms for the square of it; code that a parser does not know has dozens
_PARTS_AT_MOST = 20_000  # of a tree that is not queried whole: each takes some microseconds
_WRAPPERS = frozenset(
    {"decorated_definition", "export_statement", "template_declaration", "ambient_declaration", "statement"}
)
_GROUPS = frozenset({"type_declaration", "const_declaration", "var_declaration"})
_WORD_AND_ONE = 2
_FIELD = "field"
_PLAIN = frozenset({"field", "variable"})  # where a query also gives `function`, that is more exact
_SCOPES = frozenset({"class", "struct", "interface", "object", "impl", "enum"})
_parsing = threading.Lock()
_PIECE = 65_536  # bytes
_PIECE_OF_NODE = 256  # names are short, and the binding takes from the start of a node what it needs
_given = bytearray()
_MACRO = re.compile(
    rb"\b(?P<head>(?:class|struct|union|enum(?:[ \t]+class)?)[ \t]+)"
    rb"(?P<macro>[A-Z][A-Z0-9_]{2,80})(?=[ \t\n]+[A-Za-z_][\w:]{0,200}(?:[ \t]+final)?[ \t\r\n]{0,80}[:{](?!:))"
)
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+])\1{2,}\s*$")
_HEADING = re.compile(r"^(?:#{1,6}\s+(?P<hash>\S.*)|={1,6}\s+(?P<equals>\S.*)|\[(?P<section>[^\]\n]{1,80})\])\s*$")
_HEADINGS_AT_MOST = 2_000
_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Symbol:
    """A definition. `qualname` joins the names of its outer definitions by dots; `doc` is its first doc line or ''."""

    name: str
    qualname: str
    kind: str
    start: int
    end: int
    signature: str
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A name used at a line. `kind` is call, type, base or import."""

    name: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class Outline:
    """What a file holds; `symbols` by their start, the outer before the inner.

    `fields` are those of classes and tables, apart: a skeleton shows them, but a chunk is not cut at one, and a name like
    `id` or `name` links no files. `generated`: its first lines mark it as written by a program.
    """

    symbols: tuple[Symbol, ...] = ()
    references: tuple[Reference, ...] = ()
    imports: tuple[str, ...] = ()
    fields: tuple[Symbol, ...] = ()
    generated: bool = False


def outline(document: Document, *, private: bool = False) -> Outline:
    """The outline of a document. Never raises for what the text holds; takes at most a few seconds. `private`: with the
    fields whose names begin with an underscore."""
    return replace(_outline(document, private), generated=says_generated(document))


def tree_of(document: Document, raw: bytes) -> tuple[Language, Tree] | None:
    """The language and syntax tree of a document whose text `raw` is; None for what is no code that can be parsed."""
    language = language_of(document.path, document.text)
    tree = _tree(language, raw) if language is not None and _can_be_code(raw) else None
    return (language, tree) if language is not None and tree is not None else None


@dataclass(frozen=True, slots=True)
class _Definition:
    """A match before it is nested: byte range of the whole, lines, and the words made of its nodes."""

    first: int
    last: int
    symbol: Symbol


def _outline(document: Document, private: bool) -> Outline:
    raw = document.text.encode("utf-8", errors="replace")
    found = tree_of(document, raw)
    return Outline(tuple(plain_symbols(document.text))) if found is None else _parsed(*found, raw, private)


def _can_be_code(raw: bytes) -> bool:
    """Whether a parser may read it: at the end of a text it takes the square of the expressions that are unfinished there,
    and no deadline ends that (docs/decisions/0027)."""
    if len(raw) > _PARSE_BYTES or max(map(len, raw.split(b"\n"))) > _LINE_BYTES:
        return False
    return _SIGNS.search(raw.translate(None, b" \t\r\n\f\v")) is None


def _parsed(language: Language, tree: Tree, raw: bytes, private: bool) -> Outline:
    count = raw.count(b"\n") + (not raw.endswith(b"\n"))
    definitions: dict[tuple[int, int, str], _Definition] = {}
    references: dict[tuple[str, str, int], None] = {}
    imports: dict[str, None] = {}
    cursor = QueryCursor(query_of(language), match_limit=MATCHES_IN_PROGRESS)
    for _, captures in chain.from_iterable(map(cursor.matches, readable(tree.root_node))):
        for capture, nodes in captures.items():
            kind, _, detail = capture.partition(".")
            if kind == "definition" and (private or not _is_private_field(detail, captures, raw)):
                found = _definition(nodes[0], captures, detail, raw, count)
                key = (found.first, found.last, found.symbol.name)
                if key not in definitions or definitions[key].symbol.kind in _PLAIN:
                    definitions[key] = found
            elif kind == "reference":
                references.update({(text_of(node, raw), detail, node.start_point[0] + 1): None for node in nodes})
            elif kind == "import":
                imports.update({text_of(node, raw).strip("\"'<>"): None for node in nodes})
    symbols = _nested(definitions.values(), language)
    return Outline(
        tuple(one for one in symbols if one.kind != _FIELD),
        tuple(sorted((Reference(*key) for key in references), key=lambda one: (one.line, one.name, one.kind))),
        tuple(imports),
        tuple(one for one in symbols if one.kind == _FIELD),
    )


def _tree(language: Language, raw: bytes) -> Tree | None:
    """None when it takes too long: an error-ridden text can cost the square of its length."""
    deadline = time.monotonic() + _PARSE_SECONDS
    with _parsing:
        parser = parser_of(language)
        pieces = Pieces(without_class_macros(raw) if language.class_macros else raw)
        try:  # the progress callback works only where the text is read in pieces (tree-sitter 0.26)
            return parser.parse(pieces, progress_callback=lambda *_: time.monotonic() > deadline)
        except ValueError:
            parser.reset()
            return None
        finally:
            pieces.parsed()


def readable(root: Node) -> Iterator[Node]:
    """The nodes to be queried: the root, or what is named around and between the signs that the parser made nothing of.

    At each sign a query looks for the next named node behind it, which takes the square of a run of signs. No definition
    begins at one, so nodes that are nothing but that are opened, and what they are in. Most trees have none.
    """
    opened = _opened(root)
    waiting, most = [root], _PARTS_AT_MOST
    while waiting and most:
        node = waiting.pop()
        if node.id in opened:
            waiting.extend(reversed([child for child in _children(node) if child.is_named]))
        else:
            most -= 1
            yield node


def _opened(root: Node) -> set[int]:
    """The nodes that hold too many such signs, and all that these are in."""
    opened: set[int] = set()
    above: dict[int, Node] = {}
    waiting = [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        within = [child for child in _children(node) if child.has_error]
        above.update((child.id, node) for child in within)
        waiting += within
        if node.is_error and node.child_count - node.named_child_count > _SIGNS_AT_MOST:
            outer: Node | None = node
            while outer is not None and outer.id not in opened:
                opened.add(outer.id)
                outer = above.get(outer.id)
    return opened


def _children(node: Node) -> Iterator[Node]:
    """One at a time: a list of a million would take a hundred megabytes."""
    cursor = node.walk()
    more = cursor.goto_first_child()
    while more and cursor.node is not None:
        yield cursor.node
        more = cursor.goto_next_sibling()


def _is_private_field(kind: str, captures: dict[str, list[Node]], raw: bytes) -> bool:
    """`_cache`, `__slots__`: of no use from elsewhere, and a third of the fields of some codebases."""
    return kind == _FIELD and raw.startswith(b"_", captures["name"][0].start_byte)


def _definition(node: Node, captures: dict[str, list[Node]], kind: str, raw: bytes, count: int) -> _Definition:
    outer = _outermost(node)
    names, body = captures.get("name"), captures.get("body", [None])[0]
    name = " ".join(text_of(names[0], raw).strip("\"'").split())[:200] if names else kind
    start = outer.start_point[0] + 1
    end = outer.end_point[0] + (1 if outer.end_point[1] > 0 else 0)
    symbol = Symbol(
        name=name,
        qualname="",
        kind=kind,
        start=start,
        end=min(max(start, end), max(count, start)),
        signature=signature_of(node, raw, name if names else "", body, whole=kind not in _PLAIN),
        doc=doc_line(node, outer, raw, body),
    )
    return _Definition(outer.start_byte, outer.end_byte, symbol)


def _outermost(node: Node) -> Node:
    """The node with what only wraps it: decorators, `export`, `declare`, `template`; `type` before the only one of it."""
    while (parent := node.parent) is not None:
        if parent.type not in _WRAPPERS and not (parent.type in _GROUPS and parent.child_count == _WORD_AND_ONE):
            break
        node = parent
    return node


def _nested(definitions: Iterable[_Definition], language: Language) -> list[Symbol]:
    """Gives every definition the names of those that hold it, and calls a function in a class a method.

    A clause (one more equation of a function) lengthens the function that it follows.
    """
    holders: list[tuple[int, Symbol]] = []
    found: list[Symbol] = []
    for one in sorted(definitions, key=lambda found: (found.first, -found.last)):
        while holders and holders[-1][0] <= one.first:
            holders.pop()
        symbol = _in(holders[-1][1] if holders else None, one.symbol, language)
        if one.symbol.kind == "clause" and not symbol.doc and found and found[-1].qualname == symbol.qualname:
            found[-1] = replace(found[-1], end=max(found[-1].end, symbol.end))
        else:
            found.append(symbol)
        holders.append((one.last, symbol))
    return found


def _in(holder: Symbol | None, symbol: Symbol, language: Language) -> Symbol:
    name = symbol.name.replace("::", ".")
    qualname = f"{holder.qualname}.{name}" if holder is not None and not language.prose else name
    kind = "function" if symbol.kind == "clause" else symbol.kind
    if kind == "function" and holder is not None and holder.kind in _SCOPES:
        kind = "method"
    return Symbol(symbol.name, qualname, kind, symbol.start, symbol.end, symbol.signature, symbol.doc)


class Pieces:
    """What `Parser.parse` reads from; and behind `parsed` what predicates of queries read of its tree.

    One parse at a time, in the whole process.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parsed = False
        self._last = b""  # the binding looks at it once more when it has let it go

    def __call__(self, offset: int, point: object) -> bytes | bytearray:  # noqa: ARG002 - the binding gives it too
        if self._parsed:
            self._last = self._raw[offset : offset + _PIECE_OF_NODE]
            return self._last
        _given[:] = memoryview(self._raw)[offset : offset + _PIECE]
        return _given

    def parsed(self) -> None:
        """The parse is over, however it ended."""
        self._parsed = True


def without_class_macros(raw: bytes) -> bytes:
    """The same number of bytes, with spaces instead of such macros."""
    return _MACRO.sub(lambda found: found["head"] + b" " * len(found["macro"]), raw)


def plain_symbols(text: str) -> list[Symbol]:
    """Sections of a text, each from its heading to the line before the next one."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    heads = _headings(lines)[:_HEADINGS_AT_MOST]
    ends = [start - 1 for start, _ in heads[1:]] + [len(lines)] * bool(heads)
    return [
        Symbol(title, title, "section", start, end, title, _first_text(lines, start, end))
        for (start, title), end in zip(heads, ends, strict=True)
    ]


def first_lines(text: str, count: int) -> list[tuple[int, str]]:
    """The first lines that are not blank, with their numbers: the outline of a text without headings."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(text[: count * 4 * _LINE_CHARS].split("\n"), start=1):
        if line.strip():
            found.append((number, line.strip()[:_LINE_CHARS]))
        if len(found) == count:
            break
    return found


def _headings(lines: list[str]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for index, line in enumerate(lines):
        if len(line) > _LINE_CHARS:
            continue
        match = _HEADING.match(line)
        if match is not None:
            title = match["hash"] or match["equals"] or match["section"]
            found.append((index + 1, title.strip(" =#")[:_LINE_CHARS]))
        elif index and _UNDERLINE.match(line) and _is_title(lines[index - 1], line):
            found.append((index, lines[index - 1].strip()))
    return found


def _is_title(line: str, underline: str) -> bool:
    title = line.strip()
    return bool(title) and title[0].isalnum() and len(title) <= len(underline.strip()) + 2 and len(title) < _LINE_CHARS


def _first_text(lines: list[str], start: int, end: int) -> str:
    for line in lines[start:end]:
        text = line.strip()
        if text and any(character.isalnum() for character in text):
            return " ".join(text.split())[:160]
    return ""
