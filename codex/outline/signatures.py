"""The signature and the first doc line of a definition, from its syntax node.

A signature is the definition up to its body, on one line, without the annotations before it. A doc line is the first
line of the docstring inside, or of the comment right above. Knows the node types of comments, annotations and strings,
and no language by name.
"""

import re
from collections.abc import Iterable

from tree_sitter import Node

_SIGNATURE_CHARS = 240
_VALUE_CHARS = 60  # of a field or variable: what it is called, its type, how its value begins
_DOC_CHARS = 160
_HEAD_BYTES = 2_000  # looked through for the end of a head: its indentation does not count among its characters
_SIBLINGS = 100  # read upwards for a comment: each costs the parser a walk, in the worst case past all before it
_COMMENT_BYTES = 2_000  # of one comment: its first line is wanted, and every name of a declaration asks for it
_BESIDE_BYTES = 200  # of a line before a comment: enough to see that it follows code
_ANNOTATIONS = frozenset(
    {"annotation", "marker_annotation", "attribute", "attribute_item", "attribute_list", "decorator"}
)
_COMMENTS = frozenset({"haddock", "marginalia"})  # beside what has `comment` in its type
_MODES = frozenset({"use strict", "use client", "use server", "use asm"})  # what else a body begins with as a string
_MARKS_BEFORE = re.compile(r"^(?:\{-|[\s/*#!<=\-;|])+")
_MARKS_BEHIND = re.compile(r"(?<![\s*/>=\-])[\s*/>=\-]+$")  # begins where such a run does, or takes its square
_STRING_MARKS = re.compile(r"^[rRuUbBfF]*(?:\"\"\"|'''|\"|')|(?:\"\"\"|'''|\"|')$")
_NAMED_TAG = re.compile(r"<[a-z]+ (?:cref|name|langword)=\"(?:[A-Z]:)?([^\"<>]*)\" ?/>")
_TAG = re.compile(r"(?<!\w)<[a-z][^<>]*>|</[a-z][^<>]*>")  # behind a word it is a type's argument: Vec<u8>
_EMPTY_BODY = re.compile(r"; ?end$")
_DIRECTIVE = re.compile(
    r"(?:\{@inheritDoc\}|shellcheck|eslint-|prettier-|rubocop:|nolint|NOLINT|go:|noqa|pylint:|@ts-|clang-format|phpcs:)"
)
_PART = re.compile(r"[@\\](?:param|returns?|throws)\b")  # where it comes first, the whole is not described
_BRIEF = re.compile(r"^[@\\]brief\s+|^@(?:module)?doc (?:~[sS])?\"{1,3}|(?<!\")\"{1,3}$")


def signature_of(node: Node, raw: bytes, name: str = "", body: Node | None = None, *, whole: bool = True) -> str:
    """The definition's head on one line, at most 240 characters, without what opens its body.

    `body` is where it ends for a node that has no such field. What has no body ends with its line; unless `whole` is
    false, behind the parentheses that are open there. A head that lacks the name (a typedef's comes last) gets it
    behind an ellipsis.
    """
    body = body or node.child_by_field_name("body")
    start = _behind_annotations(node)
    end = body.start_byte if body is not None else _end_of_head(start, node, raw, whole)
    head = _one_line(raw[start : max(start, min(end, start + _HEAD_BYTES))].decode("utf-8", errors="replace"))
    head = _EMPTY_BODY.sub("", head[:_SIGNATURE_CHARS]).rstrip(" {:=;,")
    if not whole and len(head) > _VALUE_CHARS:
        head = f"{head[:_VALUE_CHARS].rstrip()}…"
    keyword = _keyword_of_group(node)
    head = f"{keyword} {head}" if keyword else head
    return head if name in head or len(head) >= _SIGNATURE_CHARS else f"{head} … {name}"


def doc_line(node: Node, outer: Node, raw: bytes, body: Node | None = None) -> str:
    """The first line of a definition's documentation, or ''. `body` as above."""
    return _docstring(body or node.child_by_field_name("body"), raw) or _comment_above(outer, raw)


def text_of(node: Node, raw: bytes) -> str:
    """What a node covers. `node.text` is as true, and of a text that is parsed in pieces reads a whole piece each time."""
    return raw[node.start_byte : node.end_byte].decode("utf-8", errors="replace")


def _one_line(head: str) -> str:
    joined = " ".join(head.split())
    if "\n" in head:  # a parameter a line is written with blanks and a comma that one line has not
        joined = joined.replace("( ", "(").replace(", )", ")").replace(" )", ")")
    return joined


def _behind_annotations(node: Node) -> int:
    """The byte where the head begins: `@Override`, `[Obsolete]` and `#[inline]` have little content, and can be long."""
    part = _first_word(node)
    if part is not None and part.type == "modifiers":
        part = _first_word(part) or part.next_sibling
    return part.start_byte if part is not None else node.start_byte


def _first_word(node: Node) -> Node | None:
    part = node.child(0) if node.child_count else None
    while part is not None and part.type in _ANNOTATIONS:
        part = part.next_sibling
    return part


def _end_of_head(start: int, node: Node, raw: bytes, whole: bool) -> int:
    """The end of the first line, or of the first that leaves no parenthesis open; a comment behind it is not of it."""
    last = node.child(node.child_count - 1) if node.child_count else None
    end = last.start_byte if last is not None and _is_comment(last) else node.end_byte
    end = min(end, start + _HEAD_BYTES)
    at, opened = start, 0
    while (newline := raw.find(b"\n", at, end)) >= 0:
        opened += raw.count(b"(", at, newline) - raw.count(b")", at, newline)
        if opened <= 0 or not whole:
            return newline
        at = newline + 1
    return end


def _keyword_of_group(node: Node) -> str:
    """`type` for one of `type (…)`: its own line does not have the keyword."""
    group = node.parent if node.type.endswith(("_spec", "_alias")) else None
    if group is None:
        return ""
    if group.type.endswith("_list") and group.parent is not None:
        group = group.parent
    first = group.child(0)
    return first.type if first is not None and not first.is_named else ""


def _docstring(body: Node | None, raw: bytes) -> str:
    first = body.named_child(0) if body is not None and body.named_child_count else None
    if first is not None and _doc_attribute(first, raw):
        return _first_said(first, raw)
    if first is not None and first.type == "expression_statement" and first.named_child_count:
        first = first.named_child(0)
    if first is None or first.type != "string":
        return ""
    doc = _first_line(_STRING_MARKS.sub("", text_of(first, raw).strip()).split("\n"))
    return "" if doc in _MODES else doc


def _comment_above(node: Node, raw: bytes) -> str:
    """The first line of the block of comments that ends on the line above, or above the annotations there."""
    found: list[Node] = []
    line, above = node.start_point[0], _above(node)
    for _ in range(_SIBLINGS):
        if above is None or above.end_point[0] + (above.end_point[1] > 0) < line:
            break
        if (_is_comment(above) and _alone(above, raw)) or _doc_attribute(above, raw):
            found.append(above)
        elif above.type not in _ANNOTATIONS and not _is_attribute(above, raw):
            break
        line, above = above.start_point[0], above.prev_sibling
    return next((doc for comment in reversed(found) if (doc := _first_said(comment, raw))), "")


def _above(node: Node) -> Node | None:
    """The node before a node; before the first of a block, a comment that the grammar left outside of it."""
    above = node.prev_sibling
    if above is not None or node.parent is None:
        return above
    above = node.parent.prev_sibling
    if above is not None and not _is_comment(above) and above.child_count:
        above = above.child(above.child_count - 1)
    return above if above is not None and _is_comment(above) else None


def _first_said(comment: Node, raw: bytes) -> str:
    text = raw[comment.start_byte : min(comment.end_byte, comment.start_byte + _COMMENT_BYTES)]
    if text.startswith((b"#!", b"@doc false")):
        return ""
    doc = _first_line(_said(line) for line in text.decode("utf-8", errors="replace").split("\n"))
    return "" if _PART.match(doc) else doc


def _doc_attribute(node: Node, raw: bytes) -> bool:
    """Elixir's `@doc "…"`."""
    return node.type == "unary_operator" and raw.startswith((b"@doc ", b"@moduledoc "), node.start_byte)


def _is_attribute(node: Node, raw: bytes) -> bool:
    return node.type == "unary_operator" and raw.startswith((b"@spec ", b"@impl ", b"@deprecated "), node.start_byte)


def _is_comment(node: Node) -> bool:
    return "comment" in node.type or node.type in _COMMENTS


def _alone(comment: Node, raw: bytes) -> bool:
    """Not behind code: there it speaks of that line, not of the next."""
    column = min(comment.start_point[1], _BESIDE_BYTES)
    return not raw[comment.start_byte - column : comment.start_byte].strip()


def _said(line: str) -> str:
    """A line of a comment without marks and tags; of `<see cref="Name"/>` the name."""
    if "<" in line:
        line = _TAG.sub("", _NAMED_TAG.sub(r"\1", line))
    doc = _BRIEF.sub("", _bare(line))
    return "" if _DIRECTIVE.match(doc) else doc


def _bare(line: str) -> str:
    return _MARKS_BEHIND.sub("", _MARKS_BEFORE.sub("", line.removesuffix("-}")))


def _first_line(lines: Iterable[str]) -> str:
    return next((" ".join(line.split())[:_DOC_CHARS] for line in lines if line.strip()), "")
