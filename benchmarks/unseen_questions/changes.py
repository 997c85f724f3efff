"""Notes of a changelog as questions: the files that name a note's ticket in their code or comments answer it.

A maintainer wrote the note for users, and wrote the ticket's number beside the lines that it is about. The number itself
is taken out of the question.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from codex.documents import Document
from unseen_questions.questions import Question, Repository

MOST_FILES = 3  # a ticket that more files name is a theme, not a change
FEWEST_WORDS, MOST_WORDS = 8, 60
TESTS_OF = "Which tests check this change?"

_DJANGO = re.compile(r"^\* (.*?)(?=^\* |^\S|\Z)", re.MULTILINE | re.DOTALL)
_DJANGO_TICKET = re.compile(r":ticket:`(\d+)`")
_SQLALCHEMY = re.compile(r"^( *)\.\. change::\n(.*?)(?=^\1\S|^\S|\Z)", re.MULTILINE | re.DOTALL)
_SQLALCHEMY_TICKETS = re.compile(r"^\s*:tickets:(.*)$", re.MULTILINE)
_NAMED = re.compile(r"#(\d{4,5})\b")


@dataclass(frozen=True)
class Note:
    ticket: str
    text: str


def changes(repository: Repository, notes: Iterable[Note], documents: Sequence[Document]) -> Iterator[Question]:
    """Of the kind `change` where source names the ticket. Where only tests do, the note is asked as it is (`change, in
    tests`: a search that puts source first must lose here) and as a question for tests (`change, tests asked for`).
    """
    naming: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        for ticket in _NAMED.findall(document.text):
            naming[ticket].add(document.path)
    for note in notes:
        named = naming[note.ticket]
        source = {path for path in named if repository.is_source(path)}
        files = source or named
        if 0 < len(files) <= MOST_FILES and len(note.text.split()) >= FEWEST_WORDS:
            answer = tuple(sorted(files))
            yield Question(repository.package, "change" if source else "change, in tests", note.text, answer)
            if not source:
                yield Question(repository.package, "change, tests asked for", f"{TESTS_OF} {note.text}", answer)


def django_notes(text: str) -> Iterator[Note]:
    """`* What was done (:ticket:`1`).` of a release's notes; a note of two tickets is left out."""
    for found in _DJANGO.findall(text):
        tickets = _DJANGO_TICKET.findall(found)
        if len(tickets) == 1:
            yield Note(tickets[0], plain(_DJANGO_TICKET.sub("", found)))


def sqlalchemy_notes(text: str) -> Iterator[Note]:
    """`.. change::` with one number in `:tickets:`, and the prose behind its options."""
    for _, block in _SQLALCHEMY.findall(text):
        tickets = [number for line in _SQLALCHEMY_TICKETS.findall(block) for number in re.findall(r"\d+", line)]
        prose = "\n".join(line for line in block.splitlines() if not re.match(r"\s*:\w+:( |$)", line))
        if len(tickets) == 1:
            yield Note(tickets[0], plain(prose))


def plain(text: str) -> str:
    """Markup taken away, numbers of tickets too; the first sixty words."""
    text = re.split(r"^\s*\.\. ", text, maxsplit=1, flags=re.MULTILINE)[0]  # a directive begins
    text = re.sub(r":[\w:+-]+:`(?:[^`<]*<)?[~._]*([^`<>]*)>?`", r"\1", text)
    text = re.sub(r"`+([^`]*)`+", r"\1", text)
    text = re.sub(r"Pull request courtesy.*", "", text, flags=re.DOTALL)
    text = re.sub(r"#?\b\d{4,5}\b|\s\(\s*\)", "", text)
    return re.sub(r"\s+([.,])", r"\1", " ".join(text.split()[:MOST_WORDS]))
