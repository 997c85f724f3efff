"""Definitions as questions: by what a docstring says once it is taken out of the code, and by a name that many use."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codex.documents import Document
from unseen_questions.questions import Question, Repository

FEWEST_WORDS = 7
FEWEST_USERS = 5  # files beside the defining one that mention a name
FEWEST_LETTERS = 8

_WORD = re.compile(r"[A-Za-z_]\w*")
_COMPOUND = re.compile(r"[a-z]_[a-z]|[a-z][A-Z]")
_Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Docstring:
    """Lines `start`–`end` (1-based, inclusive) of a file; `alone` when the definition has nothing else."""

    path: str
    sentence: str
    start: int
    end: int
    indent: int
    alone: bool


@dataclass(frozen=True)
class Defined:
    path: str
    name: str
    docstring: Docstring | None


def definitions(document: Document) -> Iterator[Defined]:
    """None of a file that is no Python, as some in test trees are on purpose."""
    try:
        tree = ast.parse(document.text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, _Node):
            yield Defined(document.path, node.name, docstring(document.path, node))


def docstring(path: str, node: _Node) -> Docstring | None:
    """Of a public definition, where it has lines of its own and says something."""
    said, first = ast.get_docstring(node), node.body[0]
    if said is None or node.name.startswith("_") or first.lineno == node.lineno:
        return None
    sentence = first_sentence(said)
    if len(sentence.split()) < FEWEST_WORDS:
        return None
    return Docstring(path, sentence, first.lineno, first.end_lineno or 0, first.col_offset, len(node.body) == 1)


def first_sentence(said: str) -> str:
    """Of the first paragraph, without markup."""
    paragraph = re.sub(r":[\w:+-]+:`[~._]*([^`]*)`|`+([^`]*)`+", r"\1\2", said.strip().split("\n\n")[0])
    return re.split(r"(?<=[.!?])\s", " ".join(paragraph.split()))[0]


def without(document: Document, taken: Sequence[Docstring]) -> Document:
    """The document with these docstrings gone."""
    lines = document.text.split("\n")
    for one in sorted(taken, key=lambda one: -one.start):
        lines[one.start - 1 : one.end] = [" " * one.indent + "pass"] if one.alone else []
    return replace(document, text="\n".join(lines))


def asked_by_docstring(repository: Repository, defined: Sequence[Defined]) -> Iterator[tuple[Question, Docstring]]:
    """A sentence that stands twice is no question."""
    found = [one.docstring for one in defined if one.docstring is not None]
    often = Counter(one.sentence for one in found)
    for one in found:
        if often[one.sentence] == 1 and repository.is_source(one.path):
            yield Question(repository.package, "docstring", one.sentence, (one.path,)), one


def asked_by_name(
    repository: Repository, defined: Sequence[Defined], documents: Sequence[Document]
) -> Iterator[Question]:
    """Compound names that one place of the source defines and at least five other files mention."""
    places: dict[str, list[str]] = defaultdict(list)
    for one in defined:
        places[one.name].append(one.path)
    users = Counter(word for document in documents for word in set(_WORD.findall(document.text)))
    for name, paths in places.items():
        telling = len(name) >= FEWEST_LETTERS and not name.startswith("_") and _COMPOUND.search(name)
        if telling and len(paths) == 1 and repository.is_source(paths[0]) and users[name] > FEWEST_USERS:
            yield Question(repository.package, "name", f"Where is {name} defined?", (paths[0],))
