"""The role of a file: source, test, prose, vendored, generated, or a build's output.

`role_of` reads the path only. `is_generated` reads the comments of a text's first lines for the marks of generators: Go's
convention (`Code generated … DO NOT EDIT.`), `@generated`, and the sentences of protocol buffers, Thrift, Cython, SWIG,
OpenAPI and parser generators. Only a sentence about the file itself counts, at the beginning of its line: the source of a
generator contains such sentences elsewhere, and is written by hand.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePosixPath

from codex.documents import Document

_TEST_FOLDERS = frozenset({"test", "tests", "testing", "spec", "specs", "__tests__", "testdata", "fixtures", "e2e"})
_TEST_NAME = re.compile(r"^(?:test_|conftest\.)|(?:_test|_spec|\.test|\.spec|Test|Tests|Spec)\.[A-Za-z0-9]+$")
_VENDORED = frozenset(
    {"vendor", "vendored", "_vendor", "third_party", "third-party", "node_modules", "extern", "external"}
)
_BUILT = frozenset({"dist", "build", "out", "target", "gen", "_build"})
_WRITTEN = frozenset({"src", "lib", "source", "sources", "doc", "docs"})  # below them people name folders so themselves
_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".adoc", ".org"})
_GENERATED_NAME = re.compile(
    r"(?:_pb2(?:_grpc)?\.pyi?|\.pb\.\w+|\.min\.\w+|\.g\.\w+|_generated\.\w+|\.generated\.\w+)$"
)
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


class FileRole(StrEnum):
    """What a file is for."""

    SOURCE = "source"
    TEST = "test"
    PROSE = "prose"
    VENDORED = "vendored"
    GENERATED = "generated"
    BUILT = "built"


# What a file counts beside a source file of equal merit. Tests repeat the words of what they test; copies and generated
# code repeat those of everything.
ROLE_SHARES = {
    FileRole.SOURCE: 1.0,
    FileRole.PROSE: 0.9,
    FileRole.TEST: 0.8,
    FileRole.BUILT: 0.6,  # by the name of a folder only: a weaker sign than the file's own comments
    FileRole.GENERATED: 0.4,
    FileRole.VENDORED: 0.3,
}


@lru_cache(maxsize=100_000)
def role_of(path: str) -> FileRole:
    """The role of a file by its path."""
    pure = PurePosixPath(path)
    folders = {part.lower() for part in pure.parts[:-1]}
    if folders & _VENDORED:
        return FileRole.VENDORED
    if _GENERATED_NAME.search(pure.name) or "generated" in folders:
        return FileRole.GENERATED
    if folders & _TEST_FOLDERS or _TEST_NAME.search(pure.name):
        return FileRole.TEST
    if _is_built(pure.parts[:-1]):
        return FileRole.BUILT
    return FileRole.PROSE if pure.suffix.lower() in _PROSE else FileRole.SOURCE


def share_of(path: str, *, generated: bool = False) -> float:
    """The weight of a file relative to a source file of equal score; `generated`: by its comments, whatever its path."""
    share = ROLE_SHARES[role_of(path)]
    return min(share, ROLE_SHARES[FileRole.GENERATED]) if generated else share


def is_generated(text: str, *, prose: bool = False) -> bool:
    """Whether the comments at a text's beginning mark it as generated. In `prose` only hidden comments count."""
    made = ordered = False
    for line in _comments(text[:_HEAD_CHARS], prose):
        rest = line[_end_of(_LEADS.match(line)) :]
        if _AT_GENERATED.match(line) or _SAYS.match(rest) or _LOUD.match(rest):
            return True
        made = made or bool(_MADE.match(rest))
        ordered = ordered or bool(_ORDER.search(line))
    return made and ordered


def says_generated(document: Document) -> bool:
    """Whether a document is marked as generated; in prose, which may describe generators, only in hidden comments."""
    return is_generated(document.text, prose=role_of(document.path) is FileRole.PROSE)


def marked(kind: str) -> str:
    """The kind of a definition, or '', as that of one that a program wrote."""
    return f"{GENERATED} {kind}".rstrip()


def _is_built(folders: tuple[str, ...]) -> bool:
    """In the output of a build: at the top, or in a package of a repository of packages."""
    for folder in map(str.lower, folders):
        if folder in _BUILT:
            return True
        if folder in _WRITTEN:
            return False
    return False


def _comments(head: str, prose: bool) -> Iterator[str]:
    """The text of the comments, line by line, up to the first few lines of code."""
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
