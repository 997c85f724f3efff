"""The signature and the first doc line of a definition, from its syntax node.

A signature is the definition up to its body, on one line. A doc line is the first line of the docstring inside, or of
the comment right above. Knows the node types of comments and strings, and no language by name.
"""

import re

from tree_sitter import Node

_SIGNATURE_CHARS = 240
_DOC_CHARS = 160
_MARKS_BEFORE = re.compile(r"^[\s/*#!<=\-;]+")
_MARKS_BEHIND = re.compile(r"(?<![\s*/>=\-])[\s*/>=\-]+$")  # begins where such a run does, or takes its square
_STRING_MARKS = re.compile(r"^[rRuUbBfF]*(?:\"\"\"|'''|\"|')|(?:\"\"\"|'''|\"|')$")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


def signature_of(node: Node, raw: bytes) -> str:
    """The definition's head on one line, at most 240 characters, without what opens its body."""
    body = node.child_by_field_name("body")
    end = body.start_byte if body is not None else _end_of_first_line(node, raw)
    head = raw[node.start_byte : max(end, node.start_byte)].decode("utf-8", errors="replace")
    return " ".join(head.split())[:_SIGNATURE_CHARS].rstrip(" {:=")


def doc_line(node: Node, outer: Node, raw: bytes) -> str:
    """The first line of a definition's documentation, or ''."""
    return _docstring(node, raw) or _comment_above(outer, raw)


def text_of(node: Node, raw: bytes) -> str:
    """What a node covers. `node.text` is as true, and of a text that is parsed in pieces reads a whole piece each time."""
    return raw[node.start_byte : node.end_byte].decode("utf-8", errors="replace")


def _end_of_first_line(node: Node, raw: bytes) -> int:
    newline = raw.find(b"\n", node.start_byte, node.end_byte)
    return node.end_byte if newline < 0 else newline


def _docstring(node: Node, raw: bytes) -> str:
    body = node.child_by_field_name("body")
    first = body.named_children[0] if body is not None and body.named_child_count else None
    if first is not None and first.type == "expression_statement" and first.named_child_count:
        first = first.named_children[0]
    if first is None or first.type != "string":
        return ""
    text = _STRING_MARKS.sub("", text_of(first, raw).strip())
    return _first_line(text.split("\n"))


def _comment_above(node: Node, raw: bytes) -> str:
    """The first line of the block of comments that ends on the line above."""
    lines: list[str] = []
    line, above = node.start_point[0], node.prev_sibling
    while above is not None and "comment" in above.type and above.end_point[0] + (above.end_point[1] > 0) >= line:
        text = text_of(above, raw)
        lines[:0] = [_TAG.sub("", _bare(one)) for one in text.split("\n")]
        line, above = above.start_point[0], above.prev_sibling
    return _first_line(lines)


def _bare(line: str) -> str:
    return _MARKS_BEHIND.sub("", _MARKS_BEFORE.sub("", line))


def _first_line(lines: list[str]) -> str:
    return next((" ".join(line.split())[:_DOC_CHARS] for line in lines if line.strip()), "")
