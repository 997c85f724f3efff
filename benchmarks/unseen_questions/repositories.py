"""The repositories, and how their questions come together."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from code_questions.corpora import documents_in, unpacked

from unseen_questions.changes import Note, changes, django_notes, sqlalchemy_notes
from unseen_questions.names import Docstring, asked_by_docstring, asked_by_name, definitions, without
from unseen_questions.questions import Made, Repository, drawn

DJANGO = Repository("django", "5.2.6", "django/", frozenset())  # its django/test is what it gives to its users
SQLALCHEMY = Repository("sqlalchemy", "2.0.43", "lib/")
SYMPY = Repository("sympy", "1.14.0", "sympy/")
AIOHTTP = Repository("aiohttp", "3.14.3", "aiohttp/")
SCRAPY = Repository("scrapy", "2.18.0", "scrapy/")
REPOSITORIES = (DJANGO, SQLALCHEMY, SYMPY)


def made(repository: Repository, number: int, root: Path | None = None) -> Made:
    """At most `number` questions of each kind, and the corpus without the docstrings that are asked by. `root`: a checkout
    of that version, where the source distribution is not to be fetched."""
    root = root or unpacked(repository.package, repository.version)
    corpus = documents_in(root)
    defined = [one for document in corpus for one in definitions(document)]
    by_docstring = dict(asked_by_docstring(repository, defined))
    noted = changes(repository, notes(repository, root), corpus)
    questions = drawn([*by_docstring, *noted, *asked_by_name(repository, defined, corpus)], number)
    taken: dict[str, list[Docstring]] = defaultdict(list)
    for one in questions:
        if one in by_docstring:
            taken[by_docstring[one].path].append(by_docstring[one])
    return Made(questions, tuple(without(one, taken[one.path]) for one in corpus))


def notes(repository: Repository, root: Path) -> Iterator[Note]:
    """Of the changelogs in its folder `root`. SymPy keeps none there; aiohttp's and Scrapy's code names few tickets."""
    if repository is DJANGO:
        for path in releases(root / "docs" / "releases", "*.txt"):
            yield from django_notes(path.read_text(encoding="utf-8"))
    if repository is SQLALCHEMY:
        for path in releases(root / "doc" / "build" / "changelog", "changelog_*.rst"):
            yield from sqlalchemy_notes(path.read_text(encoding="utf-8"))


def releases(folder: Path, names: str) -> list[Path]:
    return sorted(folder.glob(names))
