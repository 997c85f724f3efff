"""Whether a text says of itself that a program wrote it: what stands in the comments of its first lines.

The words are those that generators write: Go's convention (`Code generated … DO NOT EDIT.`), `@generated`, and the
sentences of protocol buffers, Thrift, Cython, SWIG, OpenAPI and parser generators. Only a sentence about this very file
counts, at the beginning of its line: a generator's own source speaks of what it writes, and is written by hand.
A path says only whether it is prose.
"""

import re
from collections.abc import Iterator

from codex.documents import Document
from codex.trees.roles import FileRole, role_of

_HEAD_CHARS = 2_048
_CODE_LINES = 3  # a package clause, an opening tag: some generators put it first
GENERATED = "generated"

_SIGNS = re.compile(r"""//+[!/]?|/\*+!?|\*+|\#+!?|--+|;+|<!--|%+|\"{3}|'{3}|\.\.(?=\s)|\(\*|\{-|dnl\b|@?rem\b|REM\b""")
_BLOCKS = {"/*": "*/", "<!--": "-->", '"""': '"""', "'''": "'''", "(*": "*)", "{-": "-}"}
_LONG_STRINGS = ('"""', "'''", "`")  # what follows such an opening is what a program may write elsewhere
_HIDDEN_IN_PROSE = ("<!--", "..")  # a heading and a bullet are no comments

_LEADS = re.compile(r"[\W_]*(?:(?:warning|note|attention|caution|notice)[\W_]+)?", re.IGNORECASE)
_BY_ITSELF = r"(?:auto(?:matically)?|machine|programmatically)[ -]?"
_THIS = r"(?:this|the following) (?:\w{1,30} ){0,2}?(?:file|code|module|source|header|document)(?: code| file)?"
_TOOLS = (
    "protocol buffer|protoc|cython|swig|thrift|antlr|ragel|re2c|flex|openapi|swagger|grpc|flatc|sqlc|mockgen|bindgen"
)
_SAYS = re.compile(
    r"code generated\b.{0,200}?\bdo not (?:edit|modify)"
    rf"|{_THIS} (?:is|was|has been) (?:{_BY_ITSELF})?@?(?:generated|created automatically)\b(?! (?:if|when|at run))"
    rf"|{_BY_ITSELF}(?:generated|created)(?: (?:by|from|with|using|via|on|at)\b|\W+do not)"
    rf"|(?-i:(?=[A-Z])){_BY_ITSELF}generated(?: (?:file|code|source|module)\b|\W*$)"  # not the end of a sentence
    r"|generated (?:automatically|(?:code|file)\W+do not)"
    rf"|generated (?:by|with|using) (?:the )?(?:{_TOOLS})\b"
    r"|a (?:bison parser, made|lexical scanner generated)\b"
    r"|created by: the resource compiler",
    re.IGNORECASE,
)
_AT_GENERATED = re.compile(r"(?:[^`'\"]{0,200}\s)?@generated(?![\w`'\"(])")
_LOUD = re.compile(r"(?:PLEASE )?DO NOT (?:EDIT|MODIFY|CHANGE)\b")
_MADE = re.compile(r"generated (?:by|from|using|with|via)\b", re.IGNORECASE)
_ORDER = re.compile(r"\b(?:do not|don't) (?:edit|modify|hand-edit|change)\b", re.IGNORECASE)


def is_generated(text: str, *, prose: bool = False) -> bool:
    """Whether the comments at a text's beginning say so. In `prose` only comments that are not shown count."""
    made = ordered = False
    for line in _comments(text[:_HEAD_CHARS], prose):
        said = line[_end_of(_LEADS.match(line)) :]
        if _AT_GENERATED.match(line) or _SAYS.match(said) or _LOUD.match(said):
            return True
        made = made or bool(_MADE.match(said))
        ordered = ordered or bool(_ORDER.search(line))
    return made and ordered


def says_generated(document: Document) -> bool:
    """Whether a document says so; in prose, which may speak of generators, only where it is not shown."""
    return is_generated(document.text, prose=role_of(document.path) is FileRole.PROSE)


def marked(kind: str) -> str:
    """The kind of a definition, or '', as that of one that a program wrote."""
    return f"{GENERATED} {kind}".rstrip()


def is_marked(kind: str) -> bool:
    """Whether a kind is one of those."""
    return kind == GENERATED or kind.startswith(f"{GENERATED} ")


def _comments(head: str, prose: bool) -> Iterator[str]:
    """What the comments say, line by line, until a few lines of code have come."""
    closing, code = "", 0
    for line in map(str.strip, head.split("\n")):
        sign = _end_of(_SIGNS.match(line))
        if closing:
            yield line[sign:].strip()
            closing = "" if closing in line else closing
        elif sign and not (prose and not line.startswith(_HIDDEN_IN_PROSE)):
            yield line[sign:].strip()
            closing = next((end for begin, end in _BLOCKS.items() if _begins_block(line, begin, end)), "")
        elif line:
            code += 1
            if code > _CODE_LINES or any(line.count(quotes) % 2 for quotes in _LONG_STRINGS):
                return


def _begins_block(line: str, begin: str, end: str) -> bool:
    return line.startswith(begin) and end not in line[len(begin) :]


def _end_of(found: re.Match[str] | None) -> int:
    return 0 if found is None else found.end()
